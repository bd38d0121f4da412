"""Random maps of small loops, and what they are by running the loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hypothesis import strategies as st

from mlcc.arith.iter_map import IterSplit, IterSum
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.tir import Expr, Range
from tests.arith.exprs import value

LOOPS = tuple(tir.Var(name, INT32) for name in "ijk")
Iters = dict[tir.Var, Range]

extents = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 12])
starts = st.sampled_from([0, 0, 0, 2, -3])


@st.composite
def iterations(draw: st.DrawFn) -> Iters:
    """One to three loops."""
    loops = LOOPS[: draw(st.integers(1, 3))]
    return {var: Range(c.const(draw(starts)), c.const(draw(extents))) for var in loops}


@st.composite
def digits(draw: st.DrawFn, iters: Iters) -> Expr:
    """A sum of scaled quotients and remainders of the loops."""

    def one() -> Expr:
        made: Expr = draw(st.sampled_from(list(iters)))
        for make in (c.add, c.floordiv, c.floormod):
            if draw(st.integers(0, 2)) == 0:
                made = make(made, draw(st.sampled_from([1, 2, 3, 4, 6])))
        return made

    made = one()
    for _ in range(draw(st.integers(0, 2))):
        made = c.add(c.mul(one(), draw(st.sampled_from([-1, 1, 2, 3, 4, 8, 12]))), made)
    for make in (c.floordiv, c.floormod):
        if draw(st.integers(0, 4)) == 0:
            made = make(made, draw(st.sampled_from([2, 3, 4, 6])))
    return made


@st.composite
def mixes(draw: st.DrawFn) -> tuple[list[Expr], Iters, list[Expr]]:
    """What splits and fusions make of the bindings of a block: bindings, loops and conditions."""
    iters = draw(iterations())
    bindings: list[Expr] = list(iters)
    conditions: list[Expr] = []
    if not draw(st.booleans()):
        return [draw(digits(iters)) for _ in range(draw(st.integers(1, 3)))], iters, conditions
    order = list(iters)
    sizes = {var: iters[var].extent.value for var in order}  # type: ignore[attr-defined]
    from mlcc.ir.visit import substitute

    for step in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(order) - 1))
        if draw(st.booleans()) or len(order) < 2:
            factor = draw(st.sampled_from([1, 2, 3, 4]))
            var = order[at]
            outer, inner = tir.Var(f"o{step}", INT32), tir.Var(f"n{step}", INT32)
            replaced = {var: c.add(c.mul(outer, factor), inner)}
            extra = [] if sizes[var] % factor == 0 else [c.less(var, sizes[var])]
            order[at : at + 1] = [outer, inner]
            sizes |= {outer: -(-sizes[var] // factor), inner: factor}
        else:
            at = min(at, len(order) - 2)
            first, second = order[at : at + 2]
            fused = tir.Var(f"f{step}", INT32)
            replaced = {first: c.floordiv(fused, sizes[second]), second: c.floormod(fused, sizes[second])}
            extra = []
            order[at : at + 2] = [fused]
            sizes[fused] = sizes[first] * sizes[second]
        bindings = [substitute(b, replaced) for b in bindings]
        conditions = [substitute(p, replaced) for p in (*conditions, *extra)]
    return bindings, {var: Range(c.const(0), c.const(sizes[var])) for var in order}, conditions


def conjunction(conditions: list[Expr]) -> Expr:
    made: Expr = tir.TRUE
    for condition in conditions:
        made = c.logical_and(made, condition)
    return made


def points(iters: Iters, predicate: Expr = tir.TRUE) -> Iterator[dict[tir.Var, int]]:
    """Every iteration in which the predicate holds."""
    spans = [range(r.min.value, r.min.value + r.extent.value) for r in iters.values()]  # type: ignore[attr-defined]
    for values in itertools.product(*spans):
        at = dict(zip(iters, values, strict=True))
        if predicate is tir.TRUE or holds(predicate, at):
            yield at


def holds(predicate: Expr, at: dict[tir.Var, int]) -> bool:
    if isinstance(predicate, tir.And):
        return holds(predicate.lhs, at) and holds(predicate.rhs, at)
    return bool(value(predicate, at))


def evaluated(part: Expr | IterSum | IterSplit, at: dict[tir.Var, int]) -> int:
    """The value of a sum or a digit, by what they mean."""
    if isinstance(part, IterSum):
        return sum(evaluated(arg, at) for arg in part.args) + value(part.base, at)
    if isinstance(part, IterSplit):
        source = evaluated(part.source.source, at)
        lower, extent, scale = (value(e, at) for e in (part.lower_factor, part.extent, part.scale))
        return source // lower % extent * scale
    return value(part, at)
