"""Translate an fx graph to a relax module, given the types of its inputs."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mlcc.errors import CompileError, error
from mlcc.frontend.aten.graph import Program, TensorMeta
from mlcc.frontend.aten.module import Options, translate
from mlcc.frontend.aten.table import Converter
from mlcc.frontend.fx.guards import guarded_ranges
from mlcc.frontend.fx.inputs import FakeInputs, fake_inputs
from mlcc.frontend.fx.program import program_of
from mlcc.frontend.fx.trace import ModelError, Trace, single_convolution_backend, trace_graph
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.ops.relations import variables

# Example sizes of symbols, by which PyTorch decides branches, tried in turn: first multiples of 32, for image networks,
# then small ones, for tables of positions. Different symbols get different sizes.
_EXAMPLE_SIZES = ([32 * n for n in (3, 5, 7, 11, 13, 17, 19, 23)], [5, 7, 11, 13, 17, 19, 23, 29])


def translate_graph(
    model: torch.fx.GraphModule, types: Sequence[relax.TensorStructInfo], *, converters: Mapping[str, Converter],
    keep_params: bool, unwrap: bool,
) -> IRModule:  # fmt: skip
    """Translate a graph to a module. Raises CompileError that lists everything that cannot be imported."""
    _check_count(model, len(types))
    trace, given, ranges = _weakest_trace(model, types)
    program = replace(program_of(trace, type(model).__name__), ranges=ranges)
    single = trace.structure is not None and trace.structure.is_leaf()
    options = Options(
        keep_params=keep_params, unwrap=unwrap or single, converters=converters,
        dim_names={symbol: name for symbol, name in given.names.items() if _is_whole_extent(symbol, program)},
        nest_results=functools.partial(_nest, trace.structure),
    )  # fmt: skip
    return translate(program, options)


def _is_whole_extent(symbol: str, program: Program) -> bool:
    metas = (program.graph.values.get(user.value) for user in program.inputs if user.kind == "user")
    return any(symbol in meta.shape for meta in metas if isinstance(meta, TensorMeta))


def _check_count(model: torch.fx.GraphModule, count: int) -> None:
    """Raise CompileError E1031 if the graph takes another number of inputs."""
    nodes = list(model.graph.find_nodes(op="placeholder"))
    if not len([node for node in nodes if not node.args]) <= count <= len(nodes):
        names = ", ".join(node.name for node in nodes) or "no inputs"
        message = f"the graph takes {names}, but `input_info` describes {count}"
        raise CompileError(error("E1031", message, help="give `input_info` an entry for each input, in this order"))


def _weakest_trace(
    model: torch.fx.GraphModule, types: Sequence[relax.TensorStructInfo]
) -> tuple[Trace, FakeInputs, dict[str, tuple[int, int | None]]]:
    """Return the trace with the weakest guards on the symbols, and the ranges of symbols for which it is valid.

    Raises CompileError E1030 if PyTorch cannot run the graph, E1032 if no trace is valid for all sizes.
    """
    traces: list[tuple[Trace, FakeInputs, dict[str, tuple[int, int | None]]]] = []
    problems: list[CompileError | ModelError] = []
    for sizes in _example_sizes([v.name for v in variables(*types)]):
        given = fake_inputs(types, sizes)
        try:
            with single_convolution_backend():
                trace = trace_graph(model, given.tensors, given.mode)
            traces.append((trace, given, guarded_ranges(given)))
        except (CompileError, ModelError) as problem:
            problems.append(problem)
        else:
            if not traces[-1][2]:
                return traces[-1]
    if traces:
        return traces[0]
    refused = [problem for problem in problems if isinstance(problem, CompileError)]
    if refused:
        raise refused[0]
    raise CompileError(error("E1030", _reason(problems[0]))) from problems[0]


def _reason(problem: Exception) -> str:
    """Return the first paragraph of PyTorch's message, and the node that caused it."""
    what, _, where = str(problem).partition("\n\nWhile executing ")
    node = where.partition(" ")[0]
    return f"PyTorch cannot run the graph with these inputs: {what.strip()}" + (f" (at `{node}`)" if node else "")


def _example_sizes(symbols: Sequence[str]) -> Iterator[dict[str, int]]:
    for sizes in _EXAMPLE_SIZES if symbols else _EXAMPLE_SIZES[:1]:
        yield {name: sizes[i % len(sizes)] + i // len(sizes) for i, name in enumerate(symbols)}


def _nest(structure: pytree.TreeSpec, results: list[Any]) -> list[Any]:
    """Nest the results as the model does: tuples for its tuples, lists and dicts; keys and None are dropped."""
    nested = _as_tuples(pytree.tree_unflatten(results, structure))
    return nested if isinstance(nested, list) else [nested]


def _as_tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return _as_tuples(list(value.values()))
    if isinstance(value, (list, tuple)):
        return [_as_tuples(part) for part in value if part is not None]
    return value
