"""Convert a traced graph to a relax module with new symbols, whose `main` takes and returns tensors only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from mlcc.errors import CompileError, error
from mlcc.frontend.aten.graph import Argument, Meta, NumberMeta, Program, Ref, TensorMeta
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.fx.program import program_of
from mlcc.frontend.fx.purity import storages, written_nodes
from mlcc.frontend.fx.trace import Trace
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.ir.module import IRModule


@dataclass(frozen=True, slots=True)
class SymbolSource:
    """The source of a symbol's value: an extent of an input, or the input itself if `axis` is None."""

    input: int
    axis: int | None


@dataclass(frozen=True, slots=True)
class NumberOutput:
    """An output that is a number: an expression over symbols, as sympy prints it."""

    text: str


@dataclass(frozen=True, slots=True)
class ResultOutput:
    """An output that is a result of `main`."""

    index: int


@dataclass(frozen=True, slots=True)
class ViewOutput:
    """An output that shares memory with another: a view of a result of `main`."""

    index: int
    size: tuple[NumberOutput, ...]
    stride: tuple[NumberOutput, ...]
    offset: NumberOutput


Output: TypeAlias = ResultOutput | ViewOutput | NumberOutput | None


@dataclass(frozen=True, slots=True)
class GraphFunction:
    """The module of a graph, and the graph's inputs and outputs that `main` has."""

    module: IRModule
    tensors: tuple[int, ...]  # positions of the inputs that are parameters of `main`
    sizes: tuple[int, ...]  # positions of the inputs that are elements of its last parameter, a shape
    results: tuple[torch.Tensor, ...]  # fake tensors: the results of `main` as PyTorch predicts them
    outputs: tuple[Output, ...]
    symbols: Mapping[str, SymbolSource]


def function_of(trace: Trace, name: str) -> GraphFunction:
    """Convert a traced graph to a module. Raises CompileError that lists everything that cannot be imported."""
    try:
        return _function_of(trace, Translator(program_of(trace, name)))
    except Unsupported as problem:
        raise CompileError(error("E1002", problem.reason, help=problem.help)) from None


def _function_of(trace: Trace, t: Translator) -> GraphFunction:
    users = _user_inputs(trace, t.program)
    symbols = _symbol_sources(users)
    t.symbols.update({symbol: t.symbol(symbol) for symbol in symbols})
    for given in t.program.inputs:
        if given.kind != "user":
            weight = t.program.weights[given.target]
            t.values[given.value] = t.constant(weight.load(), weight.dtype, given.target)
    tensors = [user for user in users if isinstance(user.meta, TensorMeta) and user.is_used]
    params = [_parameter(t, user) for user in tensors]
    sizes = {symbol: place.input for symbol, place in symbols.items() if place.axis is None}
    if sizes:
        params.append(relax.Var("sizes", relax.ShapeStructInfo(tuple(t.symbols[s] for s in sizes), len(sizes))))
    for user in users:
        if isinstance(user.meta, NumberMeta):
            t.values[user.name] = t.extent(str(user.meta.value))
    results, outputs = _outputs(trace.module.graph, [out.value for out in t.program.outputs])
    with t.function(params):
        t.walk(t.program.graph)
        t.problems.raise_all()
        t.result([t.argument(result) for result in results])
    positions = tuple(user.position for user in tensors)
    return GraphFunction(
        t.module(), positions, tuple(sizes.values()), tuple(results.values()), tuple(outputs), symbols
    )  # fmt: skip


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class _UserInput:
    """An input that callers pass."""

    position: int
    name: str
    meta: Meta | None
    is_used: bool  # by a node, or for the symbols in its shape


def _user_inputs(trace: Trace, program: Program) -> list[_UserInput]:
    nodes = list(trace.module.graph.find_nodes(op="placeholder"))
    users = []
    for index, (node, bound) in enumerate(zip(nodes, trace.bound, strict=True)):
        if bound is None:
            meta = program.graph.values.get(node.name)
            symbolic = isinstance(meta, TensorMeta) and any(isinstance(extent, str) for extent in meta.shape)
            users.append(_UserInput(index - trace.held_count, node.name, meta, bool(node.users) or symbolic))
    return users


def _symbol_sources(users: Sequence[_UserInput]) -> dict[str, SymbolSource]:
    """Map each symbol to the source of its value, preferably an extent of a tensor."""
    sources: dict[str, SymbolSource] = {}
    for user in users:
        for axis, extent in enumerate(user.meta.shape if isinstance(user.meta, TensorMeta) else ()):
            if isinstance(extent, str) and extent.isidentifier():
                sources.setdefault(extent, SymbolSource(user.position, axis))
    for user in users:
        if isinstance(user.meta, NumberMeta) and str(user.meta.value).isidentifier():
            sources.setdefault(str(user.meta.value), SymbolSource(user.position, None))
    return sources


def _parameter(t: Translator, user: _UserInput) -> relax.Var:
    assert isinstance(user.meta, TensorMeta)
    param = t.parameter(user.name, [t.extent(extent) for extent in user.meta.shape], user.meta.dtype)
    t.values[user.name] = param
    return param


# ---------------------------------------------------------------- outputs


def _outputs(graph: torch.fx.Graph, values: Sequence[Argument]) -> tuple[dict[Ref, torch.Tensor], list[Output]]:
    """Return the results of `main`, fake tensors for them, and the recipes of the graph's outputs over the results.

    Tensors that alias are views of the one that owns the memory. Raises Unsupported if that one cannot be returned.
    """
    given = graph.output_node().args[0]
    bases = _alias_owners(graph)
    results: dict[Ref, torch.Tensor] = {}
    outputs: list[Output] = []
    for node, value in zip(given, values, strict=True):
        fake = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
        base = bases.get(node)
        if base is not None:
            index = _result_index(results, Ref(base.name), base.meta["val"])
            outputs.append(
                ViewOutput(index, _numbers(fake.shape), _numbers(fake.stride()), _number(fake.storage_offset()))
            )
        elif isinstance(fake, torch.Tensor):
            outputs.append(ResultOutput(_result_index(results, value, fake)))
        elif fake is None or isinstance(fake, (int, float, torch.SymInt)):
            outputs.append(None if fake is None else _number(fake))
        else:
            raise Unsupported(f"the graph returns {type(fake).__name__}")
    return results, outputs


def _result_index(results: dict[Ref, torch.Tensor], name: Ref, fake: torch.Tensor) -> int:
    """Return the position of a result, adding it if it is new."""
    results.setdefault(name, fake)
    return list(results).index(name)


def _alias_owners(graph: torch.fx.Graph) -> dict[torch.fx.Node, torch.fx.Node]:
    """Map the outputs that share memory with other outputs to the node whose tensor owns the memory."""
    sharing: dict[StorageWeakRef, set[torch.fx.Node]] = {}
    for node in graph.output_node().all_input_nodes:
        for storage in storages([node]):
            sharing.setdefault(storage, set()).add(node)
    sharing = {storage: nodes for storage, nodes in sharing.items() if len(nodes) > 1}
    changed = {storage for node in graph.nodes for storage in storages(written_nodes(node))} if sharing else set()
    owners: dict[torch.fx.Node, torch.fx.Node] = {}
    for storage, nodes in sharing.items():
        owner = next(node for node in graph.nodes if storage in storages([node]))
        if storage in changed or not isinstance(owner.meta["val"], torch.Tensor):
            raise Unsupported("results share memory that the graph writes to")
        owners.update(dict.fromkeys(nodes, owner))
    return owners


def _numbers(extents: Iterable[Any]) -> tuple[NumberOutput, ...]:
    return tuple(_number(extent) for extent in extents)


def _number(value: Any) -> NumberOutput:
    return NumberOutput(str(value.node.expr) if isinstance(value, torch.SymInt) else repr(value))
