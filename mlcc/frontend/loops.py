"""Loops whose trip count is known at run time only, as recursive functions that gather the iterations' results.

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
from mlcc.ops.relations import Fit, differ, fit
from mlcc.ops.values import tensor_info
from mlcc.passes.graph.symbolic import free_symbols, info_symbols, mentioned_symbols
from mlcc.relax.construct import prim_value, shape_expr
from mlcc.relax.queries import all_bindings

Exprs: TypeAlias = Sequence[relax.Expr]


@dataclass(frozen=True)
class Round:
    """The results of one iteration (a round) of a loop."""

    carried: Exprs  # values carried into the next round
    rows: Exprs = ()  # values gathered over all rounds
    going: relax.Expr | None = None  # whether there is a next one, a bool of one element; None for always


# round(number of the round, carried, outer): emits a round where it is called
Body: TypeAlias = Callable[[relax.Expr, list[relax.Expr], list[relax.Expr]], Round]


@dataclass(frozen=True)
class Loop:
    """A loop: `most` is how many rounds there are at most (an extent, or a tensor of one int64), `going` whether the
    first one runs. What the rounds use of the outside is in `outer`."""

    body: Body
    carried: Exprs
    outer: Exprs = ()
    most: Dim | relax.Expr | None = None
    going: relax.Expr | None = None


def run_loop(t: Emitter, loop: Loop) -> tuple[list[relax.Expr], list[relax.Expr]]:
    """Emit a loop. Return the final carried values, and the rows of all iterations along a new first axis."""
    tried = _tried(t, loop)
    growing = _growing(t, loop, tried.carried)
    if growing:
        loop = _with_room(t, loop, growing)
        tried = _tried(t, loop)
    _same_shapes(loop.carried, tried.carried)
    buffers = [_buffer(t, row, loop.most, tried.symbols) for row in tried.rows]
    counted = loop.most is not None or tried.uses_number
    endless = loop.going is None and tried.goes_on
    start = [] if endless else [_flag(t, loop.going)]
    start += [t.scalar(0, "int64")] if counted else []
    limit = [] if loop.most is None else [_count(t, loop.most)]
    symbols = [shape_expr(tried.symbols)] if tried.symbols else []
    groups = _Groups((start, loop.carried, buffers, limit, loop.outer, symbols))

    def condition(*state: relax.Expr) -> relax.Expr:
        first, _, _, most, _, _ = groups.split(state)
        less = [t.op.less(first[-1], most[0])] if most else []
        both = ([] if endless else [first[0]]) + less
        return t.emit(t.op.logical_and(*both)) if len(both) == 2 else t.emit(both[0])

    def step(*state: relax.Expr) -> list[relax.Expr]:
        first, carried, rows, most, outer, sizes = groups.split(state)
        number = first[-1] if counted else t.scalar(0, "int64")
        iteration = loop.body(number, carried, outer)
        going = [] if endless else [_flag(t, iteration.going)]
        count = [t.emit(t.op.add(number, t.scalar(1, "int64")))] if counted else []
        written = [_written(t, buffer, first[-1], row) for buffer, row in zip(rows, iteration.rows, strict=True)]
        return [*going, *count, *iteration.carried, *written, *most, *outer, *sizes]

    if endless and loop.most is None:
        raise Unsupported("a loop that never ends")
    with t.apart():
        state = t.bb.emit_while(condition, step, groups.joined, "loop")
    results = [t.emit(relax.TupleGetItem(state, i)) for i in range(len(groups.joined))]
    last, carried, rows, *_ = groups.split(results)
    if growing:
        assert isinstance(loop.most, (int, tir.Expr))
        rounds = loop.most if endless else c.minimum(_number(t, last[-1]), c.as_expr(loop.most))
        carried = _filled(t, carried, growing, rounds)
    return carried, rows if endless else [_cut(t, row, last[-1]) for row in rows]


class _Groups:
    """Lists of values, one after the other in one list."""

    def __init__(self, groups: Sequence[Exprs]) -> None:
        self.joined = [value for group in groups for value in group]
        self._sizes = [len(group) for group in groups]

    def split(self, values: Exprs) -> list[list[relax.Expr]]:
        """As many values, in their lists again."""
        rest = iter(values)
        return [[next(rest) for _ in range(size)] for size in self._sizes]


# ---------------------------------------------------------------- what a round is like


@dataclass(frozen=True)
class _Tried:
    carried: tuple[relax.StructInfo, ...]
    rows: tuple[relax.TensorStructInfo, ...]
    goes_on: bool
    uses_number: bool
    symbols: tuple[tir.Var, ...]  # captured from outside, in no parameter's shape
    found: frozenset[tir.Var]  # symbols defined inside an iteration, undefined outside of it


def _tried(t: Emitter, loop: Loop) -> _Tried:
    """Infer the types of an iteration's results by emitting one on trial."""
    given = [*loop.carried, *loop.outer]
    params = [relax.Var(f"v{i}", value.struct_info) for i, value in enumerate(given)]
    number = relax.Var("number", t.scalar(0, "int64").struct_info)
    with t.on_trial() as builder:
        with builder.function("tried", [number, *params]):
            carried, outer = params[: len(loop.carried)], params[len(loop.carried) :]
            iteration = loop.body(number, list(carried), list(outer))
            builder.emit_func_output(
                relax.Tuple((*iteration.carried, *iteration.rows, *([iteration.going] if iteration.going else [])))
            )
        function = builder.get()["tried"]
    if len(iteration.carried) != len(loop.carried):
        raise Unsupported(f"a round gives {len(iteration.carried)} values, the loop carries {len(loop.carried)}")
    infos = tuple(row.struct_info for row in iteration.rows)
    casts = [b for b, _ in all_bindings(function.body) if isinstance(b, relax.MatchCast)]
    before = [v for value in given for v in mentioned_symbols(value.struct_info)]
    defined = frozenset(v for b in casts for v in info_symbols(b.struct_info)).difference(before)
    if not all(isinstance(i, relax.TensorStructInfo) and i.dims is not None and not _has(i, defined) for i in infos):
        raise Unsupported("what the rounds of a loop give has to have a shape that is known before")
    used = any(n is number for n in walk(function.body))
    after = tuple(value.struct_info or relax.ObjectStructInfo() for value in iteration.carried)
    return _Tried(after, infos, _holds(iteration.going), used, tuple(free_symbols(function)), defined)  # type: ignore[arg-type]


def _has(node: Any, symbols: Container[tir.Var]) -> bool:
    """Return True if an expression or struct info mentions one of the symbols."""
    return any(symbol in symbols for symbol in mentioned_symbols(node))


def _same_shapes(before: Exprs, after: Sequence[relax.StructInfo]) -> None:
    for old, new in zip(before, after, strict=True):
        assert old.struct_info is not None
        if fit(old.struct_info, new) is Fit.CONTRADICTS:
            change = f"it is `{old.struct_info}`, after a round `{new}`"
            raise Unsupported(f"what a loop carries has to keep its shape, or to grow evenly: {change}")


def _holds(going: relax.Expr | None) -> bool:
    """Return True if a condition is absent, or constant and true."""
    if not isinstance(going, relax.Constant) or going.data.array is None:
        return going is None
    return bool(going.data.array.all())


# ---------------------------------------------------------------- rows


def _flag(t: Emitter, going: relax.Expr | None) -> relax.Expr:
    return t.scalar(True, "bool") if going is None else t.reshape(t.cast(going, "bool"), [])


def _count(t: Emitter, most: Dim | relax.Expr) -> relax.Expr:
    """The number of rounds as a tensor of rank 0."""
    if isinstance(most, relax.Expr):
        return t.reshape(t.cast(most, "int64"), [])
    if isinstance(most, int):
        return t.scalar(most, "int64")
    return t.reshape(t.emit(t.op.shape_to_tensor(t.shape_expr([most]))), [])


def _buffer(
    t: Emitter, row: relax.TensorStructInfo, most: Dim | relax.Expr | None, symbols: Sequence[tir.Var]
) -> relax.Expr:
    """Room for the rows of all rounds."""
    if most is None or isinstance(most, relax.Expr):
        raise Unsupported(
            "the number of a loop's rounds is data, so there is no bound for the memory of what they give",
            "let it follow from shapes, or be constant",
        )
    assert row.dims is not None and row.dtype is not None
    return t.full([most, *row.dims], 0, row.dtype)


def _written(t: Emitter, buffer: relax.Expr, number: relax.Expr, row: relax.Expr) -> relax.Expr:
    place = t.reshape(number, [1])
    return t.emit(t.op.index_put(buffer, (place,), t.reshape(row, [1, *t.shape(row)])))


def _cut(t: Emitter, rows: relax.Expr, count: relax.Expr) -> relax.Expr:
    """As many rows as there were rounds."""
    return t.with_shape(t.op.vision.valid_rows(rows, count), [t.fresh("rounds"), *t.shape(rows)[1:]])


# ---------------------------------------------------------------- what grows


@dataclass(frozen=True)
class _Growth:
    """The growth of a loop-carried tensor along an axis: `first` elements at first, `step` more after each round."""

    axis: int
    first: tir.Expr
    step: tir.Expr

    def length(self, rounds: Dim) -> tir.Expr:
        """The extent after some rounds."""
        return c.add(self.first, c.mul(self.step, c.as_expr(rounds)))


Growths: TypeAlias = Mapping[int, _Growth]  # by the position among the carried values


def _growing(t: Emitter, loop: Loop, after: Sequence[relax.StructInfo]) -> Growths:
    """Find the loop-carried tensors that grow along one axis by the same number of elements in each iteration."""
    axes = {}
    for at, (value, new) in enumerate(zip(loop.carried, after, strict=True)):
        old, dims = _dims(value.struct_info), _dims(new)
        if old is None or dims is None or len(old) != len(dims):
            continue
        changed = [axis for axis, (a, b) in enumerate(zip(old, dims, strict=True)) if differ(a, b)]
        if len(changed) == 1:
            axes[at] = changed[0]
    if not axes:
        return {}
    lengths = {at: t.fresh("length") for at in axes}
    given = [_of_length(v, axes[i], lengths[i]) if i in axes else v for i, v in enumerate(loop.carried)]
    tried = _tried(t, replace(loop, carried=given))
    growths = {}
    for at, axis in axes.items():
        old, dims = t.shape(loop.carried[at]), _dims(tried.carried[at])
        step = None if dims is None else Analyzer().simplify(c.sub(dims[axis], lengths[at]))
        if step is None or _has(step, tried.found.union(lengths.values())):
            continue  # refused as something that changes its shape
        growths[at] = _Growth(axis, old[axis], step)
    return growths


def _dims(info: relax.StructInfo | None) -> Sequence[tir.Expr] | None:
    return info.dims if isinstance(info, relax.TensorStructInfo) else None


def _of_length(value: relax.Expr, axis: int, length: tir.Var) -> relax.Var:
    """A variable like a tensor, but of this length."""
    info = value.struct_info
    assert isinstance(info, relax.TensorStructInfo) and info.dims is not None and info.dtype is not None
    return relax.Var("value", tensor_info([length if i == axis else d for i, d in enumerate(info.dims)], info.dtype))


def _with_room(t: Emitter, loop: Loop, growing: Growths) -> Loop:
    """Preallocate the growing tensors of a loop for all its iterations; an iteration reads the part that is filled."""
    most = loop.most
    if most is None or isinstance(most, relax.Expr):
        raise Unsupported(
            "what a loop carries grows, and the number of its rounds is data, so there is no bound for its memory",
            "let it follow from shapes, or be constant",
        )

    def body(number: relax.Expr, carried: list[relax.Expr], outer: list[relax.Expr]) -> Round:
        before = c.minimum(_number(t, number), c.sub(c.as_expr(most), 1))
        iteration = loop.body(number, _filled(t, carried, growing, before), outer)
        after = list(iteration.carried)
        for at, growth in growing.items():
            end = prim_value(growth.length(c.add(before, 1)))
            after[at] = _placed(t, carried[at], iteration.carried[at], end, growth.axis)
        return replace(iteration, carried=after)

    carried = list(loop.carried)
    for at, growth in growing.items():
        shape: list[Dim] = [growth.length(most) if i == growth.axis else d for i, d in enumerate(t.shape(carried[at]))]
        room = t.full(shape, 0, t.dtype(carried[at]))
        carried[at] = _placed(t, room, carried[at], prim_value(growth.first), growth.axis)
    return replace(loop, body=body, carried=carried)


def _placed(t: Emitter, room: relax.Expr, part: relax.Expr, end: relax.Expr, axis: int) -> relax.Expr:
    """The first elements along an axis replaced."""
    zero, one = (prim_value(c.const(n, "int64")) for n in (0, 1))
    return t.emit(t.op.slice_scatter(room, part, zero, end, one, axis))


def _filled(t: Emitter, carried: Exprs, growing: Growths, rounds: Dim) -> list[relax.Expr]:
    """Slice the loop-carried tensors that grow to their length after `rounds` iterations."""
    filled = list(carried)
    for at, growth in growing.items():
        end = growth.length(rounds)
        filled[at] = t.emit(t.op.strided_slice(filled[at], [growth.axis], [0], [end], assume_inbound=True))
    return filled


def _number(t: Emitter, value: relax.Expr) -> tir.Var:
    """A tensor of one integer as a symbol."""
    symbol = t.fresh("rounds")
    extents = t.emit(t.op.tensor_to_shape(t.reshape(value, [1])))
    t.bb.match_cast(extents, relax.ShapeStructInfo((symbol,), 1))
    return symbol
