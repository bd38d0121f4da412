"""The backend `mlcc` of `torch.compile`.

A graph that needs no gradients, writes to no input and returns no view of one is traced to ATen operators as
`torch.export` has them, attention, convolutions and norms whole. Others go through AOTAutograd, which makes them
functional, writes mutations back, and splits a backward graph off. A graph with operators that have no converter is
run by PyTorch, with a warning that names them.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._subclasses import FakeTensor

import mlcc
from mlcc.errors import CompileError
from mlcc.frontend.fx.decompositions import missing_decompositions
from mlcc.frontend.fx.module import function_of
from mlcc.frontend.fx.options import Options
from mlcc.frontend.fx.purity import is_pure
from mlcc.frontend.fx.runner import CompiledGraph
from mlcc.frontend.fx.trace import ModelError, Trace, trace_graph

_graph_numbers = itertools.count()  # that warnings show


def mlcc_backend(
    graph: torch.fx.GraphModule, inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Compile a graph that `torch.compile` captured. Raises ValueError for an unknown option."""
    if mode is not None:
        raise ValueError(f"the mlcc backend has no mode {mode!r}: use options={{...}}")
    return compile_graph(graph, inputs, Options.of(options))


def compile_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any], settings: Options) -> Callable[..., Any]:
    """Compile a captured graph for its inputs."""
    trace = None if _needs_gradients(inputs) else _pure_trace(graph, inputs, settings)
    if trace is not None:
        return _compile(trace, settings) or graph.forward
    return _compile_with_autograd(graph, inputs, settings)


def _needs_gradients(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs)


def _pure_trace(graph: torch.fx.GraphModule, inputs: Sequence[Any], settings: Options) -> Trace | None:
    """Return the graph with the operators of `torch.export`, if it is a pure function of its inputs."""
    if torch.is_autocast_enabled("cpu") or any(True for _ in graph.parameters()):
        return None
    try:
        trace = traced_graph(graph)
    except ModelError:  # AOTAutograd may be able to trace it
        return None
    if not is_pure(trace.module.graph):
        return None
    return freeze(trace, inputs) if settings.freeze else trace


def traced_graph(graph: torch.fx.GraphModule) -> Trace:
    """Trace a captured graph to an ATen graph, with PyTorch's own symbols."""
    examples = [node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")]
    return trace_graph(graph, examples, next(x.fake_mode for x in examples if isinstance(x, FakeTensor)))


def freeze(trace: Trace, inputs: Sequence[Any], names: Mapping[int, str] | None = None) -> Trace:
    """Bind the trace's parameters and buffers, which have the same memory in every call. `names` maps tensors, by
    identity, to names."""
    bound = list(trace.bound)
    nodes = list(trace.module.graph.find_nodes(op="placeholder"))
    for at, tensor in enumerate(inputs, trace.held_count):
        if hasattr(tensor, "_dynamo_static_input_type"):
            name = (names or {}).get(id(tensor), "")
            if name:
                nodes[at]._rename(f"p_{name.replace('.', '_')}")
            bound[at] = name or nodes[at].name, tensor
    return replace(trace, bound=tuple(bound))


def _compile_with_autograd(graph: torch.fx.GraphModule, inputs: Sequence[Any], settings: Options) -> Callable[..., Any]:
    """Compile the graphs that AOTAutograd makes of the graph: a functional one, or a forward and a backward graph."""

    def compile_part(part: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        run = _compile(Trace(part, (None,) * len(part.graph.find_nodes(op="placeholder"))), settings)
        return _boxed(run or part.forward)

    compiler: Callable[..., Any] = aot_autograd(fw_compiler=compile_part, decompositions=missing_decompositions())
    return compiler(graph, inputs)


def _boxed(run: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Return `run` with its arguments in a list, which it empties, so that their memory may be reused."""

    def boxed(args: list[Any]) -> Any:
        given = list(args)
        args.clear()
        return run(*given)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    return boxed


def _compile(trace: Trace, settings: Options) -> Callable[..., Any] | None:
    """Compile a traced graph. Return None, after a warning, if it has operators that cannot be imported."""
    number = next(_graph_numbers)
    outputs = trace.module.graph.output_node().all_input_nodes
    if not any(isinstance(node.meta.get("val"), torch.Tensor) for node in outputs):
        return None  # nothing to compute
    try:
        function = function_of(trace, f"graph {number}")
        artifact = mlcc.build(
            settings.apply_pipeline(function.module), target=settings.target, opt_level=settings.opt_level
        )
    except CompileError as problem:
        if settings.strict:
            raise
        reasons = "; ".join(diagnostic.message for diagnostic in problem.diagnostics)
        warnings.warn(f"mlcc: graph {number} of torch.compile is run by PyTorch: {reasons}", stacklevel=2)
        return None
    return CompiledGraph(function, mlcc.load(artifact)["main"])
