"""Trace a `torch.fx` graph into a graph of ATen operators.

The graph is interpreted once with fake tensors, whose extents may be symbols, while a dispatch mode records the ATen
operators that run. Modules, functions, methods and Python arithmetic on shapes thus have PyTorch's semantics, and the
result has the operators of `torch.export`. No elements are computed, and the model is not changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx
from torch.utils import _pytree as pytree

from mlcc.frontend.fx.decompositions import missing_decompositions

_NAME_KEY = "mlcc_name"  # metadata key of the ATen node that ends an fx node: the fx node's name


class ModelError(Exception):
    """Raised for an error of the model during tracing."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A traced graph. `bound` has an entry for each placeholder: a tensor of the model and its name, or None for an
    input. The first `held` placeholders are tensors of the model, which callers do not pass."""

    module: torch.fx.GraphModule
    bound: tuple[tuple[str, torch.Tensor] | None, ...]
    held_count: int = 0
    structure: pytree.TreeSpec | None = None  # of the results, which the graph returns as a flat list


def trace_graph(model: torch.fx.GraphModule, inputs: Sequence[Any], mode: Any) -> Trace:
    """Trace a graph module to an ATen graph for inputs of a FakeTensorMode. Raises ModelError."""
    places = _tensor_attributes(model)
    weights = {name: getattr(owner, attribute) for name, (owner, attribute) in _first_names(places).items()}
    fakes = {name: mode.from_tensor(tensor.detach(), static_shapes=True) for name, tensor in weights.items()}
    structure: list[pytree.TreeSpec] = []

    def run(weight: dict[str, torch.Tensor], input: list[Any]) -> list[Any]:
        by_tensor = {id(weights[name]): fake for name, fake in weight.items()}
        with _tensors_replaced(places, by_tensor):
            result = _run(model, input)
        leaves, spec = pytree.tree_flatten(result)
        structure.append(spec)
        return leaves

    record = make_fx(run, missing_decompositions(), pre_dispatch=True, _allow_non_fake_inputs=True)
    with mode, torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        module = record(fakes, list(inputs))
    _name_nodes(module.graph, [f"p_{name.replace('.', '_')}" for name in weights], model.graph)
    return Trace(module, (*weights.items(), *[None] * len(inputs)), len(weights), structure[-1])


def _run(model: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
    try:
        return _Recorder(model).run(*inputs)
    except Exception as problem:  # whatever PyTorch and the model's own code raise
        raise ModelError(str(problem)) from problem


@contextmanager
def single_convolution_backend() -> Iterator[None]:
    """Use a single convolution backend inside the `with`: choosing one by size would add a guard, and the choice
    affects only strides."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with torch.backends.nnpack.flags(enabled=False):
            yield
    finally:
        torch._C._set_mkldnn_enabled(before)


class _Recorder(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs an fx graph. ATen nodes get the meta data of the fx node that is running, and the last one its name."""

    def run_node(self, n: torch.fx.Node) -> Any:
        mode = get_proxy_mode()
        graph = mode.tracer.graph if mode is not None else None
        before = graph and graph._root._prev
        with torch.fx.traceback.set_current_meta(n):
            result = super().run_node(n)
        if graph is not None and graph._root._prev is not before:
            graph._root._prev.meta[_NAME_KEY] = n.name
        return result


def _name_nodes(graph: torch.fx.Graph, weights: Sequence[str], model: torch.fx.Graph) -> None:
    """Name placeholders as in the model, and other nodes after the fx nodes that they end."""
    given = [node.name for node in model.find_nodes(op="placeholder")]
    for node, name in zip(graph.find_nodes(op="placeholder"), [*weights, *given], strict=False):
        node._rename(name)
    for node in graph.nodes:
        if _NAME_KEY in node.meta and node.name != node.meta[_NAME_KEY]:
            node._rename(node.meta[_NAME_KEY])


# ---------------------------------------------------------------- the tensors of a model

_TensorAttributes = dict[
    str, tuple[torch.nn.Module, str]
]  # by dotted name: the module that holds the tensor, the attribute


def _tensor_attributes(model: torch.nn.Module) -> _TensorAttributes:
    """Return the parameters, buffers and other tensor attributes by name; a tied tensor has several names."""
    places: _TensorAttributes = {}
    for prefix, module in model.named_modules(remove_duplicate=True):
        for held in (module._parameters, module._buffers, module.__dict__):
            for attribute, value in held.items():
                if isinstance(value, torch.Tensor):
                    places[f"{prefix}.{attribute}" if prefix else attribute] = (module, attribute)
    return places


def _first_names(places: _TensorAttributes) -> _TensorAttributes:
    """Keep the first name of each tensor."""
    by_tensor: dict[int, str] = {}
    for name, (owner, attribute) in places.items():
        by_tensor.setdefault(id(getattr(owner, attribute)), name)
    return {name: places[name] for name in by_tensor.values()}


@contextmanager
def _tensors_replaced(places: _TensorAttributes, by_tensor: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """Replace the tensors in the model's attributes inside the `with`."""
    before: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for owner, attribute in places.values():
            for held in (owner._parameters, owner._buffers, owner.__dict__):
                if isinstance(held.get(attribute), torch.Tensor):
                    before.append((held, attribute, held[attribute]))
                    held[attribute] = by_tensor[id(held[attribute])]
        yield
    finally:
        for held, attribute, tensor in before:
            held[attribute] = tensor
