"""Control flow: branches as `if`, loops of a known number of steps written out."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.frontend.aten.graph import Graph, Inner, Ref
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir

MOST_STEPS = 256  # of a loop that is written out
_REWRITE = "write the loop in Python with a known number of steps"


@converts("higher_order.cond")
def _cond(t: Translator, arg0: Any, arg1: Inner, arg2: Inner, arg3: Sequence[Any] = ()) -> list[Any]:
    if not isinstance(arg0, (relax.Expr, tir.Expr)):
        return t.inside((arg1 if arg0 else arg2).graph, arg3)
    condition = arg0 if isinstance(arg0, relax.Expr) else relax.PrimValue(arg0)
    then, other = (t.branch(inner.graph, arg3) for inner in (arg1, arg2))
    made = t.emit(relax.If(condition, then, other))
    return [t.emit(relax.TupleGetItem(made, i)) for i in range(len(arg1.graph.outputs))]


@converts("higher_order.map_impl", "higher_order.map")
def _map(t: Translator, arg0: Inner, arg1: Sequence[Any], arg2: Sequence[Any] = ()) -> list[Any]:
    steps = [t.inside(arg0.graph, [*(_at(t, x, i) for x in arg1), *arg2]) for i in range(_count(t, arg1))]
    return _stacked(t, steps)


@converts("higher_order.scan")
def _scan(t: Translator, arg0: Inner, arg1: Sequence[Any], arg2: Sequence[Any], arg3: Sequence[Any] = ()) -> list[Any]:
    carried, kept = list(arg1), []
    for i in range(_count(t, arg2)):
        results = t.inside(arg0.graph, [*carried, *(_at(t, x, i) for x in arg2), *arg3])
        carried = results[: len(carried)]
        kept.append(results[len(carried) :])
    return [*carried, *_stacked(t, kept)]


@converts("higher_order.while_loop")
def _while(t: Translator, arg0: Inner, arg1: Inner, arg2: Sequence[Any], arg3: Sequence[Any] = ()) -> list[Any]:
    """The steps one after the other, where what the loop counts is known."""
    carried, known = list(arg2), [_number(value) for value in arg2]
    extra = [_number(value) for value in arg3]
    for _ in range(MOST_STEPS + 1):
        (goes_on,) = _evaluated(arg0.graph, [*known, *extra])
        if goes_on is None:
            raise Unsupported("a loop whose number of steps depends on the data", _REWRITE)
        if not goes_on:
            return carried
        carried = t.inside(arg1.graph, [*carried, *arg3])
        known = _evaluated(arg1.graph, [*known, *extra])
    raise Unsupported(f"a loop of more than {MOST_STEPS} steps", _REWRITE)


def _count(t: Translator, scanned: Sequence[Any]) -> int:
    """The number of steps that go along the first axis."""
    count = tir.const_int(t.shape(scanned[0])[0]) if scanned else None
    if count is None or not 0 < count <= MOST_STEPS:
        raise Unsupported(f"a loop of {'symbolic length' if count is None else f'{count} steps'}", _REWRITE)
    return count


def _at(t: Translator, value: relax.Expr, index: int) -> relax.Expr:
    """An element along the first axis."""
    part = t.op.strided_slice(value, axes=[0], begin=[index], end=[index + 1])
    return t.emit(t.op.squeeze(t.emit(part), axis=[0]))


def _stacked(t: Translator, steps: Sequence[Sequence[Any]]) -> list[Any]:
    """What the steps give, each result along a new first axis."""
    return [t.emit(t.op.stack(list(parts), axis=0)) for parts in zip(*steps, strict=True)]


# ---------------------------------------------------------------- numbers that a loop counts

_FOLDED: Mapping[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "logical_not": operator.not_,
    "neg": operator.neg,
    "logical_and": lambda a, b: bool(a) and bool(b), "bitwise_and": operator.and_, "__and__": operator.and_,
    "clone": lambda a: a, "alias": lambda a: a, "detach": lambda a: a, "maximum": max, "minimum": min,
}  # fmt: skip


def _number(value: Any) -> bool | int | float | None:
    """The number that a constant of one element is; None for what is known at run time."""
    if isinstance(value, (bool, int, float)):
        return value
    found = tir.const_int(value) if isinstance(value, tir.Expr) else None
    if isinstance(value, relax.Constant) and value.data.array is not None and value.data.size == 1:
        kind = value.data.dtype
        return value.data.array.reshape(-1)[0].item() if kind.is_int or kind.is_bool else None
    return found


def _evaluated(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """The results of a graph as far as they are numbers that follow from numbers."""
    known: dict[str, Any] = dict(zip(graph.inputs, inputs, strict=False))
    for node in graph.nodes:
        fold = _FOLDED.get(node.target.split(".")[1])
        given = [known.get(v.name) if isinstance(v, Ref) else v for v in node.arguments.values()]
        if fold is not None and all(isinstance(v, (bool, int)) for v in given) and node.outputs and node.outputs[0]:
            known[node.outputs[0]] = fold(*given)
    return [known.get(out.name) if isinstance(out, Ref) else out for out in graph.outputs]
