"""The parts of a reduction block: start values, updates, and the combiner of the updates.

The form that is understood is TVM's: the init stores a start value to each output and the body stores once to each,
at the same indices. With several outputs the new values are bound to variables first:

    v0: T.int32 = T.Select(C1[i] >= x, C0[i], k)
    v1: T.float32 = T.Select(C1[i] >= x, C1[i], x)
    C0[i] = v0
    C1[i] = v1
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Node, semantic_field_names
from mlcc.ir.tir import Expr
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.refusal import Refusal

Vars = tuple[tir.Var, ...]
Exprs = tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reducer:
    """A combiner of `arity` values with `arity` others, and its identity."""

    name: str
    arity: int
    combine: Callable[[Vars, Vars], Exprs]
    identity: Callable[[Sequence[DType]], Exprs]
    # of pairs of index and value: when the right one is taken, if its index is larger than any that was combined
    takes: Callable[[Exprs, Exprs], Expr] | None = None

    def over(self, dtypes: Sequence[DType]) -> tir.CommReducer:
        """Return the combiner for values of these types."""
        lhs = tuple(tir.Var(f"x{i}", d) for i, d in enumerate(dtypes))
        rhs = tuple(tir.Var(f"y{i}", d) for i, d in enumerate(dtypes))
        return tir.CommReducer(lhs, rhs, self.combine(lhs, rhs), self.identity(dtypes))


def _single(name: str, make: Callable[..., Expr], identity: Callable[[DType], Expr]) -> Reducer:
    return Reducer(name, 1, lambda x, y: (make(x[0], y[0]),), lambda d: (identity(d[0]),))


def _arg_reducers(name: str, prefers: Callable[..., Expr], worst: Callable[[DType], Expr]) -> list[Reducer]:
    """Return reducers of pairs of index and value. The first keeps the left of equal values, given a `prefers` that
    holds for equals; the second the one with the smaller index; the third likewise, and any index is preferred to none
    (-1); the fourth likewise, and NaN is preferred to numbers.
    """
    strictly = {c.greater_equal: c.greater, c.less_equal: c.less}[prefers]

    def first(x: Vars, y: Vars) -> Exprs:
        wins = prefers(x[1], y[1])
        return _select(wins, x[0], y[0]), _select(wins, x[1], y[1])

    def ordered(x: Vars, y: Vars) -> Exprs:
        tie = c.logical_and(c.equal(x[1], y[1]), c.less(x[0], y[0]))
        wins = c.logical_or(strictly(x[1], y[1]), tie)
        return _select(wins, x[0], y[0]), _select(strictly(x[1], y[1]), x[1], y[1])

    def with_empty(x: Vars, y: Vars) -> Exprs:
        none = c.const(0, x[0].dtype)
        tie = c.logical_and(c.equal(x[1], y[1]), c.less(x[0], y[0]))
        left = c.logical_or(c.logical_or(c.less(y[0], none), strictly(x[1], y[1])), tie)
        wins = c.logical_and(c.greater_equal(x[0], none), left)
        return _select(wins, x[0], y[0]), _select(strictly(x[1], y[1]), x[1], y[1])

    def nan_first(x: Vars, y: Vars) -> Exprs:
        none = c.const(0, x[0].dtype)
        better = c.logical_or(strictly(x[1], y[1]), c.logical_and(c.not_equal(x[1], x[1]), c.equal(y[1], y[1])))
        both_nan = c.logical_and(c.not_equal(x[1], x[1]), c.not_equal(y[1], y[1]))
        tie = c.logical_and(c.logical_or(c.equal(x[1], y[1]), both_nan), c.less(x[0], y[0]))
        left = c.logical_or(c.logical_or(c.less(y[0], none), better), tie)
        wins = c.logical_and(c.greater_equal(x[0], none), left)
        return _select(wins, x[0], y[0]), _select(better, x[1], y[1])

    def worse(x: Exprs, y: Exprs) -> Expr:
        return c.logical_not(prefers(x[1], y[1]))

    def empty_or_worse(x: Exprs, y: Exprs) -> Expr:
        return c.logical_or(worse(x, y), c.less(x[0], c.const(0, x[0].dtype)))  # so vectors of y have no mask

    def empty_or_worse_number(x: Exprs, y: Exprs) -> Expr:
        return c.logical_or(c.logical_and(worse(x, y), c.equal(x[1], x[1])), c.less(x[0], c.const(0, x[0].dtype)))

    def identity(d: Sequence[DType]) -> Exprs:
        return c.const(-1, d[0]), worst(d[1])

    def infinite(d: Sequence[DType]) -> Exprs:
        return c.const(-1, d[0]), _infinity_or(worst, -1 if name == "argmax" else 1)(d[1])

    return [
        Reducer(name, 2, first, identity),
        Reducer(name, 2, ordered, identity, worse),
        Reducer(name, 2, with_empty, identity, empty_or_worse),
        Reducer(name, 2, with_empty, infinite, empty_or_worse),
        Reducer(name, 2, nan_first, infinite, empty_or_worse_number),
    ]


def _select(condition: Expr, yes: Expr, no: Expr) -> Expr:
    return tir.Select(yes.dtype, condition, yes, no)


def _infinity_or(of_integers: Callable[[DType], Expr], sign: int) -> Callable[[DType], Expr]:
    """Return the identity of a minimum or maximum over infinite elements: an infinity for floats."""
    return lambda d: c.const(sign * math.inf, d) if d.is_float else of_integers(d)


REDUCERS: tuple[Reducer, ...] = (
    _single("sum", c.add, lambda d: c.const(0, d)),
    _single("product", c.mul, lambda d: c.const(1, d)),
    _single("min", c.minimum, c.max_value),
    _single("max", c.maximum, c.min_value),
    _single("min", c.minimum, _infinity_or(c.max_value, 1)),
    _single("max", c.maximum, _infinity_or(c.min_value, -1)),
    Reducer(
        "two sums",
        2,
        lambda x, y: (c.add(x[0], y[0]), c.add(x[1], y[1])),
        lambda d: (c.const(0, d[0]), c.const(0, d[1])),
    ),
    *_arg_reducers("argmax", c.greater_equal, c.min_value),
    *_arg_reducers("argmin", c.less_equal, c.max_value),
)


@dataclass(frozen=True, slots=True)
class ArgUpdate:
    """An update by argmax or argmin: pairs of index and value, the kept ones in `buffers`.

    `taken` is when the pair `rhs` is taken in place of `lhs`, if its index is larger than any before.
    """

    buffers: tuple[tir.Buffer, ...]
    reducer: tir.CommReducer
    lhs: Exprs
    rhs: Exprs
    taken: Expr


@dataclass(frozen=True, slots=True)
class ReductionParts:
    """For each output, in the order in which the body computes them: `updates[i]` stores `combine(lhs, rhs)[i]`.

    `lhs[i]` is the load of the output, `rhs[i]` what the iteration contributes.
    """

    init_values: Exprs
    updates: tuple[tir.BufferStore, ...]
    reducer: tir.CommReducer
    lhs: Exprs
    rhs: Exprs

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        return tuple(u.buffer for u in self.updates)

    @property
    def indices(self) -> Exprs:
        """Return the indices at which all outputs are stored."""
        return self.updates[0].indices

    def combine(self, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> Exprs:
        """The combiner applied to other values."""
        return apply_reducer(self.reducer, lhs, rhs)


def apply_reducer(reducer: tir.CommReducer, lhs: Sequence[Expr], rhs: Sequence[Expr]) -> Exprs:
    """Return `combine(lhs, rhs)`, one expression per value."""
    values = dict(zip((*reducer.lhs, *reducer.rhs), (*lhs, *rhs), strict=True))
    return tuple(substitute(r, values) for r in reducer.result)


def reduction_parts(block: tir.Block, reducers: Sequence[Reducer] = REDUCERS) -> ReductionParts:
    """Analyze a reduction block. Refuse (E0668) another form, (E0669) an unknown combiner."""
    init_values, updates = init_values_and_updates(block)
    reducer, lhs, rhs = find_reducer(block, init_values, updates, reducers)
    return ReductionParts(init_values, updates, reducer, lhs, rhs)


def arg_update(block: tir.Block) -> ArgUpdate | None:
    """Return the update of an argmax or argmin in the body of a block, whether or not the block has an init."""
    try:
        updates = _bound_updates(block, 2)
    except Refusal:
        return None
    loads = tuple(tir.BufferLoad(u.buffer.dtype, u.buffer, u.indices) for u in updates)
    values = tuple(u.value for u in updates)
    for known in REDUCERS:
        if known.takes is None:
            continue
        reducer = known.over([v.dtype for v in values])
        rhs = _match(reducer, values, loads)
        if rhs is not None:
            return ArgUpdate(tuple(u.buffer for u in updates), reducer, loads, rhs, known.takes(loads, rhs))
    return None


def reduction_statements(
    parts: ReductionParts, buffers: Sequence[tir.Buffer], indices: Exprs, rhs: Exprs
) -> tuple[tuple[tir.Stmt, ...], tuple[tir.Stmt, ...]]:
    """Body and init of a block that combines what is in `buffers` at `indices` with `rhs`."""
    values = parts.combine([c.load(b, *indices) for b in buffers], rhs)
    init = tuple(tir.BufferStore(b, v, indices) for b, v in zip(buffers, parts.reducer.identity, strict=True))
    if len(buffers) == 1:
        return (tir.BufferStore(buffers[0], values[0], indices),), init
    binds = [tir.Bind(tir.Var(f"v_{b.name}", v.dtype), v) for b, v in zip(buffers, values, strict=True)]
    stores = [tir.BufferStore(b, bind.var, indices) for b, bind in zip(buffers, binds, strict=True)]
    return (*binds, *stores), init


# ---------------------------------------------------------------- start values and updates


def init_values_and_updates(block: tir.Block) -> tuple[Exprs, tuple[tir.BufferStore, ...]]:
    """The start value of each output and the store to it, in the order of the updates. Refuses (E0668)."""
    inits: dict[tir.Buffer, tir.BufferStore] = {}
    for stmt in block.init or ():
        if not isinstance(stmt, tir.BufferStore):
            _refuse(block, "its init does more than store start values")
        if stmt.buffer in inits:
            _refuse(block, f"its init stores to `{stmt.buffer.name}` twice")
        inits[stmt.buffer] = stmt
    if not inits:
        _refuse(block, "it has no init that stores start values")
    match block.body:
        case (tir.BufferStore() as only,):
            updates: tuple[tir.BufferStore, ...] = (only,)
        case _:
            updates = _bound_updates(block, len(inits))
    if {u.buffer for u in updates} != set(inits):
        written, started = (", ".join(f"`{b.name}`" for b in bs) for bs in ((u.buffer for u in updates), inits))
        _refuse(block, f"its body stores to {written}, and its init to {started}")
    _check_shapes_and_indices(block, updates, list(inits.values()))
    return tuple(inits[u.buffer].value for u in updates), updates


def _bound_updates(block: tir.Block, count: int) -> tuple[tir.BufferStore, ...]:
    """Return `v = value` for each output, followed by `output[...] = v`, as stores of the values."""
    binds, stores = block.body[:count], block.body[count:]
    values: dict[tir.Var, Expr] = {}
    for stmt in binds:
        if not isinstance(stmt, tir.Bind):
            _refuse(block, f"its body does not begin by binding the new value of each of the {count} outputs")
        values[stmt.var] = stmt.value
    updates: dict[tir.Var, tir.BufferStore] = {}
    for stmt in stores:
        if not isinstance(stmt, tir.BufferStore):
            _refuse(block, "its body does more than bind new values and store them")
        if not isinstance(stmt.value, tir.Var) or stmt.value not in values:
            _refuse(block, f"what it stores to `{stmt.buffer.name}` is not one of the variables bound before")
        if stmt.value in updates:
            _refuse(block, f"it stores `{stmt.value.name}` twice")
        if any(u.buffer is stmt.buffer for u in updates.values()):
            _refuse(block, f"it stores to `{stmt.buffer.name}` twice")
        updates[stmt.value] = tir.BufferStore(stmt.buffer, values[stmt.value], stmt.indices)
    if len(updates) != count:
        _refuse(block, f"it stores {len(updates)} values for {count} outputs")
    return tuple(updates[v] for v in values)


def _check_shapes_and_indices(
    block: tir.Block, updates: tuple[tir.BufferStore, ...], inits: list[tir.BufferStore]
) -> None:
    """Refuse outputs of different shapes, and stores at different indices."""
    first, analyzer = updates[0], Analyzer()

    def same(a: Exprs, b: Exprs) -> bool:
        return len(a) == len(b) and all(analyzer.prove_equal(x, y) for x, y in zip(a, b, strict=True))

    for update in updates:
        if not same(update.buffer.shape, first.buffer.shape):
            _refuse(block, f"its outputs `{first.buffer.name}` and `{update.buffer.name}` have different shapes")
    for store in (*inits, *updates):
        if not same(store.indices, first.indices):
            _refuse(block, f"it stores to `{first.buffer.name}` and `{store.buffer.name}` at different indices")


def _refuse(block: tir.Block, words: str) -> NoReturn:
    raise Refusal("E0668", f"the reduction in block `{block.name}` cannot be split: {words}", block)


# ---------------------------------------------------------------- the combiner


def find_reducer(
    block: tir.Block, init_values: Exprs, updates: tuple[tir.BufferStore, ...], reducers: Sequence[Reducer] = REDUCERS
) -> tuple[tir.CommReducer, Exprs, Exprs]:
    """The combiner of the updates, the loads of the outputs, and what is combined with them. Refuses (E0669)."""
    loads = tuple(tir.BufferLoad(u.buffer.dtype, u.buffer, u.indices) for u in updates)
    non_neutral = None
    for known in reducers:
        if known.arity != len(updates):
            continue
        reducer = known.over([v.dtype for v in init_values])
        rhs = _match(reducer, tuple(u.value for u in updates), loads)
        if rhs is None:
            continue
        if all(same_expr(a, b) for a, b in zip(reducer.identity, init_values, strict=True)):
            return reducer, loads, rhs
        non_neutral = non_neutral or (known.name, reducer.identity)
    raise Refusal("E0669", *_unknown_combiner(block, init_values, updates, loads, non_neutral))


def _unknown_combiner(
    block: tir.Block, init_values: Exprs, updates: Any, loads: Exprs, non_neutral: Any
) -> tuple[str, Any, str]:
    start = ", ".join(map(str, init_values))
    if non_neutral is not None:
        name, identity = non_neutral
        wanted = ", ".join(map(str, identity))
        return (
            f"block `{block.name}` reduces by {name} from the start value {start}, which is not neutral: {wanted} is",
            block,
            f"start from {wanted} and combine with {start} afterwards",
        )
    stores = "; ".join(f"{load} = {u.value}" for load, u in zip(loads, updates, strict=True))
    return (
        f"block `{block.name}` combines by a function that is not known to be a reduction: {stores}, from {start}",
        block,
        "known reductions: sum, product, min, max, two sums, argmax and argmin, with the output on the left",
    )


def _match(reducer: tir.CommReducer, values: Exprs, loads: Exprs) -> Exprs | None:
    """Return the right operands of the combiner, if the values are the combiner applied to the loads; else None."""
    holes: dict[tir.Var, Expr | None] = dict.fromkeys((*reducer.lhs, *reducer.rhs))
    holes.update(zip(reducer.lhs, loads, strict=True))
    if not all(_fits(p, v, holes) for p, v in zip(reducer.result, values, strict=True)):
        return None
    rhs = tuple(holes[v] for v in reducer.rhs)
    return None if any(r is None for r in rhs) else rhs  # type: ignore[return-value]


def _fits(pattern: Any, value: Any, holes: dict[tir.Var, Expr | None]) -> bool:
    if isinstance(pattern, tir.Var) and pattern in holes:
        known = holes[pattern]
        if known is None:
            holes[pattern] = value
            return True
        return same_expr(known, value)
    if not isinstance(pattern, Node):
        if isinstance(pattern, tuple) and isinstance(value, tuple) and len(pattern) == len(value):
            return all(_fits(p, v, holes) for p, v in zip(pattern, value, strict=True))
        return bool(pattern == value)
    if type(pattern) is not type(value):
        return False
    return all(_fits(getattr(pattern, n), getattr(value, n), holes) for n in semantic_field_names(type(pattern)))
