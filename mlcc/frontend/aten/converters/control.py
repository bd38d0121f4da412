"""Control flow: branches as `if`, short loops of constant trip count unrolled, others as recursive functions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.frontend.aten.graph import Graph, NumberMeta, Ref, Subgraph
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.loops import Iteration, Loop, run_loop
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64

MAX_UNROLLED_STEPS = 64  # of an unrolled loop


@converts("higher_order.cond")
def _cond(t: Translator, arg0: Any, arg1: Subgraph, arg2: Subgraph, arg3: Sequence[Any] = ()) -> list[Any]:
    if not isinstance(arg0, (relax.Expr, tir.Expr)):
        return t.inline_graph((arg1 if arg0 else arg2).graph, arg3)
    condition = arg0 if isinstance(arg0, relax.Expr) else relax.PrimValue(arg0)
    then, other = (t.branch_body(inner.graph, arg3) for inner in (arg1, arg2))
    results = t.emit(relax.If(condition, then, other))
    return [t.emit(relax.TupleGetItem(results, i)) for i in range(len(arg1.graph.outputs))]


@converts("higher_order.map_impl", "higher_order.map")
def _map(t: Translator, arg0: Subgraph, arg1: Sequence[Any], arg2: Sequence[Any] = ()) -> list[Any]:
    return _emit_scan(t, arg0.graph, [], arg1, arg2)


@converts("higher_order.scan")
def _scan(
    t: Translator, arg0: Subgraph, arg1: Sequence[Any], arg2: Sequence[Any], arg3: Sequence[Any] = ()
) -> list[Any]:
    return _emit_scan(t, arg0.graph, arg1, arg2, arg3)


def _emit_scan(
    t: Translator, graph: Graph, carried: Sequence[Any], along: Sequence[Any], extra: Sequence[Any]
) -> list[Any]:
    """Emit a scan along the first axis; return the final carried values, and the stacked results of all steps."""
    if not along:
        raise Unsupported("a scan needs a tensor to scan over")
    length = t.shape(along[0])[0]
    count = tir.const_int(length)
    if count is not None and 0 < count <= MAX_UNROLLED_STEPS:
        return _unrolled(t, graph, carried, along, extra, count)
    tensors, all_of = _split_tensors(extra)

    def body(number: relax.Expr, state: list[relax.Expr], outer: list[relax.Expr]) -> Iteration:
        parts = [t.emit(t.op.take(x, number, 0)) for x in outer[: len(along)]]
        results = t.inline_graph(graph, [*state, *parts, *all_of(outer[len(along) :])])
        return Iteration(results[: len(state)], results[len(state) :])

    state, rows = run_loop(t, Loop(body, carried, [*along, *tensors], length if count is None else count))
    return [*state, *rows]


def _unrolled(
    t: Translator, graph: Graph, carried: Sequence[Any], along: Sequence[Any], extra: Sequence[Any], count: int
) -> list[Any]:
    state, kept = list(carried), []
    for i in range(count):
        results = t.inline_graph(graph, [*state, *(_row(t, x, i) for x in along), *extra])
        state = results[: len(state)]
        kept.append(results[len(state) :])
    return [*state, *_stacked(t, kept)]


@converts("higher_order.while_loop")
def _while(t: Translator, arg0: Subgraph, arg1: Subgraph, arg2: Sequence[Any], arg3: Sequence[Any] = ()) -> list[Any]:
    """Unroll a loop if its trip count is constant and small, else emit a run-time loop."""
    if _trip_count(arg0.graph, arg1.graph, arg2, arg3) is None:
        return _run_time_loop(t, arg0.graph, arg1.graph, arg2, arg3)
    carried, known = list(arg2), [_constant_number(value) for value in arg2]
    extra = [_constant_number(value) for value in arg3]
    while _fold_graph(arg0.graph, [*known, *extra])[0]:
        carried = t.inline_graph(arg1.graph, [*carried, *arg3])
        known = _fold_graph(arg1.graph, [*known, *extra])
    return carried


def _trip_count(test: Graph, step: Graph, carried: Sequence[Any], extra: Sequence[Any]) -> int | None:
    """Return the trip count of a loop; None if it is known at run time only or exceeds MOST_STEPS."""
    known, rest = [_constant_number(value) for value in carried], [_constant_number(value) for value in extra]
    for count in range(MAX_UNROLLED_STEPS + 1):
        (goes_on,) = _fold_graph(test, [*known, *rest])
        if goes_on is None or not goes_on:
            return None if goes_on is None else count
        known = _fold_graph(step, [*known, *rest])
    return None


def _run_time_loop(t: Translator, test: Graph, step: Graph, carried: Sequence[Any], extra: Sequence[Any]) -> list[Any]:
    """Emit a run-time loop. Loop-carried numbers are tensors between iterations."""
    counts = [not isinstance(value, relax.Expr) for value in carried]
    tensors, all_of = _split_tensors(extra)

    def inside(graph: Graph, state: Sequence[relax.Expr], outer: Sequence[relax.Expr]) -> list[relax.Expr]:
        with t.new_scope():
            given = [_bind_number(t, graph, i, v) if counts[i] else v for i, v in enumerate(state)]
            return [_as_tensor(t, v) for v in t.inline_graph(graph, [*given, *all_of(outer)])]

    def body(number: relax.Expr, state: list[relax.Expr], outer: list[relax.Expr]) -> Iteration:
        after = inside(step, state, outer)
        return Iteration(after, (), inside(test, after, outer)[0])

    begin = [_as_tensor(t, value) for value in carried]
    state, _ = run_loop(t, Loop(body, begin, tensors, None, inside(test, begin, tensors)[0]))
    return [_element_symbol(t, v, t.fresh("number")) if n else v for v, n in zip(state, counts, strict=True)]


def _split_tensors(values: Sequence[Any]) -> tuple[list[relax.Expr], Callable[[Sequence[relax.Expr]], list[Any]]]:
    """Return the tensors among values, and a function that replaces them by other tensors."""
    tensors = [v for v in values if isinstance(v, relax.Expr)]

    def again(given: Sequence[relax.Expr]) -> list[Any]:
        rest = iter(given)
        return [next(rest) if isinstance(v, relax.Expr) else v for v in values]

    return tensors, again


def _as_tensor(t: Translator, value: Any) -> relax.Expr:
    """Return a tensor unchanged, and an integer as a tensor of rank 0."""
    if isinstance(value, relax.Expr):
        return value
    if isinstance(value, (int, bool)):
        return t.scalar(int(value), "int64")
    if not isinstance(value, tir.Expr) or value.dtype.is_float:
        raise Unsupported("a loop-carried number must be an integer")
    number = tir.Select(INT64, value, c.const(1, INT64), c.const(0, INT64)) if value.dtype.is_bool else value
    return t.reshape(t.emit(t.op.shape_to_tensor(t.shape_expr([number]))), [])


def _bind_number(t: Translator, graph: Graph, index: int, value: relax.Expr) -> tir.Expr:
    """Bind the symbol of a graph's numeric input to the integer in a one-element tensor."""
    meta = graph.values.get(graph.inputs[index])
    name = meta.value if isinstance(meta, NumberMeta) and isinstance(meta.value, str) else "number"
    t.symbols[name] = _element_symbol(t, value, t.fresh("number"))
    return t.symbols[name]


def _element_symbol(t: Translator, value: relax.Expr, symbol: tir.Var) -> tir.Var:
    """Define a symbol as the only element of a tensor."""
    extents = t.emit(t.op.tensor_to_shape(t.reshape(value, [1])))
    t.bb.match_cast(extents, relax.ShapeStructInfo((symbol,), 1))
    return symbol


def _row(t: Translator, value: relax.Expr, index: int) -> relax.Expr:
    """Return the slice at an index of the first axis."""
    part = t.op.strided_slice(value, axes=[0], begin=[index], end=[index + 1])
    return t.emit(t.op.squeeze(t.emit(part), axis=[0]))


def _stacked(t: Translator, steps: Sequence[Sequence[Any]]) -> list[Any]:
    """Stack each result of the steps along a new first axis."""
    return [t.emit(t.op.stack(list(parts), axis=0)) for parts in zip(*steps, strict=True)]


# ---------------------------------------------------------------- constant folding of loop counters

_FOLDED: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha=1: a + alpha * b, "sub": lambda a, b, alpha=1: a - alpha * b,
    "mul": operator.mul, "lt": operator.lt, "le": operator.le,
    "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne, "logical_not": operator.not_,
    "neg": operator.neg,
    "logical_and": lambda a, b: bool(a) and bool(b), "bitwise_and": operator.and_, "__and__": operator.and_,
    "clone": lambda a: a, "alias": lambda a: a, "detach": lambda a: a, "maximum": max, "minimum": min,
}  # fmt: skip


def _constant_number(value: Any) -> bool | int | float | None:
    """Return the number of a one-element constant; None for values known at run time only."""
    if isinstance(value, (bool, int, float)):
        return value
    known = tir.const_int(value) if isinstance(value, tir.Expr) else None
    if isinstance(value, relax.Constant) and value.data.array is not None and value.data.size == 1:
        kind = value.data.dtype
        return value.data.array.reshape(-1)[0].item() if kind.is_int or kind.is_bool else None
    return known


def _fold_graph(graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Evaluate a graph on constants; None for results that are not constant numbers."""
    known: dict[str, Any] = dict(zip(graph.inputs, inputs, strict=False))
    for node in graph.nodes:
        fold = _FOLDED.get(node.target.split(".")[1])
        given = [known.get(v.name) if isinstance(v, Ref) else v for v in node.arguments.values()]
        if fold is not None and all(isinstance(v, (bool, int)) for v in given) and node.outputs and node.outputs[0]:
            known[node.outputs[0]] = fold(*given)
    return [known.get(out.name) if isinstance(out, Ref) else out for out in graph.outputs]
