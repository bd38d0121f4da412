"""Loops whose trip count is known at run time only, emitted as recursive functions that stack the iterations' results.

Loop-carried values keep their shapes. Results of the iterations, and tensors that grow by the same extent in each
iteration, are written into buffers sized for the maximum trip count, which therefore has to be an extent, not data.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from mlcc.arith.analyzer import Analyzer
from mlcc.frontend.emitter import Dim, Emitter
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.node import walk
from mlcc.ops.relations import SubtypeCheck, can_differ, check_subtype
from mlcc.ops.values import tensor_info
from mlcc.passes.graph.symbolic import free_symbols, info_symbols, mentioned_symbols
from mlcc.relax.construct import prim_value, shape_expr
from mlcc.relax.queries import all_bindings

Exprs: TypeAlias = Sequence[relax.Expr]


@dataclass(frozen=True)
class Iteration:
    """The results of one iteration of a loop."""

    carried: Exprs  # the loop-carried values for the next iteration
    scan_outputs: Exprs = ()  # values stacked over all iterations
    condition: relax.Expr | None = None  # whether another iteration follows, a one-element bool; None: always


# body(iteration number, carried, captured): emits an iteration at the current position
Body: TypeAlias = Callable[[relax.Expr, list[relax.Expr], list[relax.Expr]], Iteration]


@dataclass(frozen=True)
class Loop:
    """A loop. `max_iterations` bounds the trip count: an extent, or a tensor of one int64. `condition` says whether the
    first iteration runs. `captured` are the outer values that the body uses."""

    body: Body
    carried: Exprs
    captured: Exprs = ()
    max_iterations: Dim | relax.Expr | None = None
    condition: relax.Expr | None = None


def run_loop(t: Emitter, loop: Loop) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """Emit a loop. Return the final carried values, and the scan outputs, stacked along a new first axis."""
    tried = _infer_iteration(t, loop)
    growing = _find_growth(t, loop, tried.carried)
    if growing:
        loop = _preallocate(t, loop, growing)
        tried = _infer_iteration(t, loop)
    _check_shapes(loop.carried, tried.carried)
    buffers = [_scan_buffer(t, row, loop.max_iterations, tried.symbols) for row in tried.rows]
    counted = loop.max_iterations is not None or tried.uses_number
    endless = loop.condition is None and tried.goes_on
    start = [] if endless else [_bool_scalar(t, loop.condition)]
    start += [t.scalar(0, "int64")] if counted else []
    limit = [] if loop.max_iterations is None else [_trip_count(t, loop.max_iterations)]
    symbols = [shape_expr(tried.symbols)] if tried.symbols else []
    groups = _PackedLists((start, loop.carried, buffers, limit, loop.captured, symbols))

    def condition(*state: relax.Expr) -> relax.Expr:
        first, _, _, most, _, _ = groups.split(state)
        less = [t.op.less(first[-1], most[0])] if most else []
        both = ([] if endless else [first[0]]) + less
        return t.emit(t.op.logical_and(*both)) if len(both) == 2 else t.emit(both[0])

    def step(*state: relax.Expr) -> list[relax.Expr]:
        first, carried, rows, most, outer, sizes = groups.split(state)
        number = first[-1] if counted else t.scalar(0, "int64")
        iteration = loop.body(number, carried, outer)
        flag = [] if endless else [_bool_scalar(t, iteration.condition)]
        count = [t.emit(t.op.add(number, t.scalar(1, "int64")))] if counted else []
        written = [
            _store_row(t, buffer, first[-1], row) for buffer, row in zip(rows, iteration.scan_outputs, strict=True)
        ]
        return [*flag, *count, *iteration.carried, *written, *most, *outer, *sizes]

    if endless and loop.max_iterations is None:
        raise Unsupported("the loop never ends")
    with t.new_scope():
        state = t.bb.emit_while(condition, step, groups.joined, "loop")
    results = [t.emit(relax.TupleGetItem(state, i)) for i in range(len(groups.joined))]
    last, carried, rows, *_ = groups.split(results)
    if growing:
        assert isinstance(loop.max_iterations, (int, tir.Expr))
        rounds = loop.max_iterations if endless else c.minimum(_as_symbol(t, last[-1]), c.as_expr(loop.max_iterations))
        carried = _slice_filled(t, carried, growing, rounds)
    return carried, rows if endless else [_drop_unused_rows(t, row, last[-1]) for row in rows]


class _PackedLists:
    """Several lists of values, concatenated into one list."""

    def __init__(self, groups: Sequence[Exprs]) -> None:
        self.joined = [value for group in groups for value in group]
        self._sizes = [len(group) for group in groups]

    def split(self, values: Exprs) -> list[list[relax.Expr]]:
        """Split a list of as many values into the original lists."""
        rest = iter(values)
        return [[next(rest) for _ in range(size)] for size in self._sizes]


# ---------------------------------------------------------------- the types of an iteration


@dataclass(frozen=True)
class _IterationTypes:
    carried: tuple[relax.StructInfo, ...]
    rows: tuple[relax.TensorStructInfo, ...]
    goes_on: bool
    uses_number: bool
    symbols: tuple[tir.Var, ...]  # captured from outside, in no parameter's shape
    found: frozenset[tir.Var]  # symbols defined inside an iteration, undefined outside of it


def _infer_iteration(t: Emitter, loop: Loop) -> _IterationTypes:
    """Infer the types of an iteration's results by emitting one on trial."""
    given = [*loop.carried, *loop.captured]
    params = [relax.Var(f"v{i}", value.struct_info) for i, value in enumerate(given)]
    number = relax.Var("number", t.scalar(0, "int64").struct_info)
    with t.dry_run() as builder:
        with builder.function("tried", [number, *params]):
            carried, outer = params[: len(loop.carried)], params[len(loop.carried) :]
            iteration = loop.body(number, list(carried), list(outer))
            builder.emit_func_output(
                relax.Tuple(
                    (
                        *iteration.carried,
                        *iteration.scan_outputs,
                        *([iteration.condition] if iteration.condition else []),
                    )
                )
            )
        function = builder.get()["tried"]
    if len(iteration.carried) != len(loop.carried):
        raise Unsupported(
            f"an iteration returns {len(iteration.carried)} values, but the loop carries {len(loop.carried)}"
        )
    infos = tuple(row.struct_info for row in iteration.scan_outputs)
    casts = [b for b, _ in all_bindings(function.body) if isinstance(b, relax.MatchCast)]
    before = [v for value in given for v in mentioned_symbols(value.struct_info)]
    defined = frozenset(v for b in casts for v in info_symbols(b.struct_info)).difference(before)
    if not all(
        isinstance(i, relax.TensorStructInfo) and i.dims is not None and not _mentions_any(i, defined) for i in infos
    ):
        raise Unsupported("the scan outputs of a loop must have a shape that is known before the loop")
    used = any(n is number for n in walk(function.body))
    after = tuple(value.struct_info or relax.ObjectStructInfo() for value in iteration.carried)
    return _IterationTypes(after, infos, _is_true(iteration.condition), used, tuple(free_symbols(function)), defined)  # type: ignore[arg-type]


def _mentions_any(node: Any, symbols: Container[tir.Var]) -> bool:
    """Return True if an expression or struct info mentions one of the symbols."""
    return any(symbol in symbols for symbol in mentioned_symbols(node))


def _check_shapes(before: Exprs, after: Sequence[relax.StructInfo]) -> None:
    for old, new in zip(before, after, strict=True):
        assert old.struct_info is not None
        if check_subtype(old.struct_info, new) is SubtypeCheck.CONTRADICTS:
            change = f"it is `{old.struct_info}`, and `{new}` after an iteration"
            raise Unsupported(f"a loop-carried value must keep its shape, or grow by a constant extent: {change}")


def _is_true(condition: relax.Expr | None) -> bool:
    """Return True if a condition is absent, or constant and true."""
    if not isinstance(condition, relax.Constant) or condition.data.array is None:
        return condition is None
    return bool(condition.data.array.all())


# ---------------------------------------------------------------- scan outputs


def _bool_scalar(t: Emitter, condition: relax.Expr | None) -> relax.Expr:
    return t.scalar(True, "bool") if condition is None else t.reshape(t.cast(condition, "bool"), [])


def _trip_count(t: Emitter, most: Dim | relax.Expr) -> relax.Expr:
    """Return the trip count as a tensor of rank 0."""
    if isinstance(most, relax.Expr):
        return t.reshape(t.cast(most, "int64"), [])
    if isinstance(most, int):
        return t.scalar(most, "int64")
    return t.reshape(t.emit(t.op.shape_to_tensor(t.shape_expr([most]))), [])


def _scan_buffer(
    t: Emitter, row: relax.TensorStructInfo, most: Dim | relax.Expr | None, symbols: Sequence[tir.Var]
) -> relax.Expr:
    """Allocate a buffer for a scan output of all iterations."""
    if most is None or isinstance(most, relax.Expr):
        raise Unsupported(
            "the trip count of a loop depends on data, so the memory of its scan outputs has no bound",
            "derive the trip count from shapes, or make it constant",
        )
    assert row.dims is not None and row.dtype is not None
    return t.full([most, *row.dims], 0, row.dtype)


def _store_row(t: Emitter, buffer: relax.Expr, number: relax.Expr, row: relax.Expr) -> relax.Expr:
    place = t.reshape(number, [1])
    return t.emit(t.op.index_put(buffer, (place,), t.reshape(row, [1, *t.shape(row)])))


def _drop_unused_rows(t: Emitter, rows: relax.Expr, count: relax.Expr) -> relax.Expr:
    """Keep as many rows as there were iterations."""
    return t.with_shape(t.op.vision.valid_rows(rows, count), [t.fresh("rounds"), *t.shape(rows)[1:]])


# ---------------------------------------------------------------- growing tensors


@dataclass(frozen=True)
class _Growth:
    """The growth of a loop-carried tensor along an axis: `first` elements at first, `step` more per iteration."""

    axis: int
    first: tir.Expr
    step: tir.Expr

    def length(self, rounds: Dim) -> tir.Expr:
        """Return the extent after this many iterations."""
        return c.add(self.first, c.mul(self.step, c.as_expr(rounds)))


Growths: TypeAlias = Mapping[int, _Growth]  # by the position among the carried values


def _find_growth(t: Emitter, loop: Loop, after: Sequence[relax.StructInfo]) -> Growths:
    """Find the loop-carried tensors that grow along one axis by the same number of elements in each iteration."""
    axes = {}
    for at, (value, new) in enumerate(zip(loop.carried, after, strict=True)):
        old, dims = _dims(value.struct_info), _dims(new)
        if old is None or dims is None or len(old) != len(dims):
            continue
        changed = [axis for axis, (a, b) in enumerate(zip(old, dims, strict=True)) if can_differ(a, b)]
        if len(changed) == 1:
            axes[at] = changed[0]
    if not axes:
        return {}
    lengths = {at: t.fresh("length") for at in axes}
    given = [_with_extent(v, axes[i], lengths[i]) if i in axes else v for i, v in enumerate(loop.carried)]
    tried = _infer_iteration(t, replace(loop, carried=given))
    growths = {}
    for at, axis in axes.items():
        old, dims = t.shape(loop.carried[at]), _dims(tried.carried[at])
        step = None if dims is None else Analyzer().simplify(c.sub(dims[axis], lengths[at]))
        if step is None or _mentions_any(step, tried.found.union(lengths.values())):
            continue  # `_check_shapes` reports the change of shape
        growths[at] = _Growth(axis, old[axis], step)
    return growths


def _dims(info: relax.StructInfo | None) -> Sequence[tir.Expr] | None:
    return info.dims if isinstance(info, relax.TensorStructInfo) else None


def _with_extent(value: relax.Expr, axis: int, length: tir.Var) -> relax.Var:
    """Return a variable of a tensor's type, but with another extent along an axis."""
    info = value.struct_info
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None and info.dtype is not None
    return relax.Var("value", tensor_info([length if i == axis else d for i, d in enumerate(info.dims)], info.dtype))


def _preallocate(t: Emitter, loop: Loop, growing: Growths) -> Loop:
    """Preallocate the growing tensors of a loop for all its iterations; an iteration reads the part that is filled."""
    most = loop.max_iterations
    if most is None or isinstance(most, relax.Expr):
        raise Unsupported(
            "a loop-carried tensor grows, and the trip count depends on data, so its memory has no bound",
            "derive the trip count from shapes, or make it constant",
        )

    def body(number: relax.Expr, carried: list[relax.Expr], outer: list[relax.Expr]) -> Iteration:
        before = c.minimum(_as_symbol(t, number), c.sub(c.as_expr(most), 1))
        iteration = loop.body(number, _slice_filled(t, carried, growing, before), outer)
        after = list(iteration.carried)
        for at, growth in growing.items():
            end = prim_value(growth.length(c.add(before, 1)))
            after[at] = _write_prefix(t, carried[at], iteration.carried[at], end, growth.axis)
        return replace(iteration, carried=after)

    carried = list(loop.carried)
    for at, growth in growing.items():
        shape: list[Dim] = [growth.length(most) if i == growth.axis else d for i, d in enumerate(t.shape(carried[at]))]
        room = t.full(shape, 0, t.dtype(carried[at]))
        carried[at] = _write_prefix(t, room, carried[at], prim_value(growth.first), growth.axis)
    return replace(loop, body=body, carried=carried)


def _write_prefix(t: Emitter, room: relax.Expr, part: relax.Expr, end: relax.Expr, axis: int) -> relax.Expr:
    """Replace the elements before `end` along an axis."""
    zero, one = (prim_value(c.const(n, "int64")) for n in (0, 1))
    return t.emit(t.op.slice_scatter(room, part, zero, end, one, axis))


def _slice_filled(t: Emitter, carried: Exprs, growing: Growths, rounds: Dim) -> list[relax.Expr]:
    """Slice the loop-carried tensors that grow to their length after `rounds` iterations."""
    filled = list(carried)
    for at, growth in growing.items():
        end = growth.length(rounds)
        filled[at] = t.emit(t.op.strided_slice(filled[at], [growth.axis], [0], [end], assume_inbound=True))
    return filled


def _as_symbol(t: Emitter, value: relax.Expr) -> tir.Var:
    """Return a new symbol for the integer in a one-element tensor."""
    symbol = t.fresh("rounds")
    extents = t.emit(t.op.tensor_to_shape(t.reshape(value, [1])))
    t.bb.match_cast(extents, relax.ShapeStructInfo((symbol,), 1))
    return symbol
