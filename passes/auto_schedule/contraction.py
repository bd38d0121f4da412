"""Matching of contractions (sums of products of two tensors): the role of each axis. Convolutions are included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from mlcc.arith.conditions import linear_parts
from mlcc.arith.keys import same_expr
from mlcc.ir import tir
from mlcc.ir.visit import uncast
from mlcc.passes.auto_schedule.stage import Stage


@dataclass(frozen=True)
class Operand:
    """A factor: its buffer, and for each dimension the axis that indexes it, or None for a constant index.

    Axes are places among the loops. `windows` are the dimensions indexed by sums of axes, as in a convolution, with the
    stride of each axis there.
    """

    buffer: tir.Buffer
    places: tuple[int | None, ...]
    windows: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def has(self, place: int) -> bool:
        return place in self.places or any(place in window for window in self.windows.values())


@dataclass(frozen=True)
class Contraction:
    """`C[o, m, n] += A[o, m, k] * B[o, k, n]`; each axis is a place among the loops.

    Results are consecutive along `n`. `outer` are all other spatial axes but `m`, whichever operands have them. `m` is
    None if A has no free axis: a vector-matrix product.
    """

    stage: Stage
    lhs: Operand
    rhs: Operand
    outer: tuple[int, ...]
    m: int | None
    n: int
    k: tuple[int, ...]

    def extent(self, place: int | None) -> int | None:
        return 1 if place is None else self.stage.extents[place]

    def count(self, places: tuple[int, ...]) -> int | None:
        """Return the product of the extents of some loops, or None if one is unknown."""
        extents = [self.stage.extents[p] for p in places]
        return None if None in extents else prod(n for n in extents if n is not None)

    @property
    def times(self) -> int | None:
        """The number of iterations of the outer axes together, or None if unknown."""
        return self.count(self.outer)

    @property
    def depth(self) -> int | None:
        """The number of products in each sum, or None if unknown."""
        return self.count(self.k)

    @property
    def reuse(self) -> int | None:
        """The number of times that each element of the right operand is used, or None if unknown."""
        return self.count(tuple(p for p in self.stage.spatial if not self.rhs.has(p)))

    def consecutive(self, operand: Operand) -> int | None:
        """Return the axis along which an operand is contiguous, or None.

        Of several axes of a window it is a spatial one, if there is one.
        """
        for at in reversed(range(len(operand.places))):
            window = operand.windows.get(at, {})
            by_one = [place for place, step in window.items() if step == 1]
            if by_one:
                return min(by_one, key=lambda place: place in self.k)
            if operand.places[at] is not None:
                return operand.places[at]
            if window or tir.const_int(operand.buffer.shape[at]) != 1:
                return None
        return None


def contraction(stage: Stage) -> Contraction | str:
    """Match a stage as a contraction; return the reason, as text, if it is none."""
    block = stage.block
    if block.init is None or not stage.reduced or len(block.body) != 1:
        return f"block `{block.name}` is no plain sum"
    store, init = block.body[0], block.init
    zero = init[0].value if len(init) == 1 and isinstance(init[0], tir.BufferStore) else None
    if not isinstance(store, tir.BufferStore) or not isinstance(zero, (tir.FloatImm, tir.IntImm)) or zero.value != 0:
        return f"block `{block.name}` does not start from 0"
    factors = _factors(store)
    if factors is None:
        return f"block `{block.name}` does not sum up products of two tensors"
    operands = [_operand(stage, f) for f in factors]
    result = _operand(stage, tir.BufferLoad(store.buffer.dtype, store.buffer, store.indices))
    if any(o is None for o in (*operands, result)) or operands[0].buffer is operands[1].buffer:  # type: ignore[union-attr]
        return f"block `{block.name}` indexes its operands by more than axes"
    if result.windows:  # type: ignore[union-attr]
        return f"block `{block.name}` stores at sums of axes"
    return _parts(stage, operands[0], operands[1], result)  # type: ignore[arg-type]


def _factors(store: tir.BufferStore) -> tuple[tir.BufferLoad, tir.BufferLoad] | None:
    if not isinstance(store.value, tir.Add):
        return None
    for before, product in ((store.value.lhs, store.value.rhs), (store.value.rhs, store.value.lhs)):
        own = isinstance(before, tir.BufferLoad) and before.buffer is store.buffer
        if own and all(same_expr(a, b) for a, b in zip(before.indices, store.indices, strict=True)):  # type: ignore[attr-defined]
            product = uncast(product)
            if isinstance(product, tir.Mul):
                lhs, rhs = uncast(product.lhs), uncast(product.rhs)
                if isinstance(lhs, tir.BufferLoad) and isinstance(rhs, tir.BufferLoad):
                    return lhs, rhs
    return None


def _operand(stage: Stage, load: tir.BufferLoad) -> Operand | None:
    """Match an access indexed by axes, each at most once, and constants; None for another one."""
    of_axis = {axis.var: value for axis, value in zip(stage.block.iter_vars, stage.realize.values, strict=True)}
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    places: list[int | None] = []
    windows: dict[int, dict[int, int]] = {}
    for index in load.indices:
        if isinstance(index, tir.Var) and index in of_axis:
            places.append(of_loop[of_axis[index]])  # type: ignore[index]
            continue
        places.append(None)
        parts = linear_parts(index)
        if parts is None or not parts[0].keys() <= of_axis.keys() or any(k <= 0 for k in parts[0].values()):
            return None
        if parts[0]:
            windows[len(places) - 1] = {of_loop[of_axis[v]]: k for v, k in parts[0].items()}  # type: ignore[index]
    used = [p for p in places if p is not None] + [p for window in windows.values() for p in window]
    return Operand(load.buffer, tuple(places), windows) if len(set(used)) == len(used) else None


def _parts(stage: Stage, one: Operand, other: Operand, result: Operand) -> Contraction | str:
    name = stage.block.name
    k = tuple(stage.reduced)
    if not all(one.has(p) and other.has(p) for p in k):
        return f"block `{name}` reduces over an axis that only one operand has"
    if not all(result.has(p) for p in stage.spatial) or any(p in result.places for p in k):
        return f"block `{name}` does not store by all its spatial axes"
    if not all(one.has(p) or other.has(p) or stage.extents[p] == 1 for p in stage.spatial):
        return f"block `{name}` has an axis that no operand has"
    n = _along(stage, one, other, result)
    if n is None:
        return f"block `{name}` stores no axis that only one operand has consecutively"
    lhs, rhs = (one, other) if other.has(n) else (other, one)
    own = [p for p in stage.spatial if lhs.has(p) and not rhs.has(p)]
    m = max(own, key=lambda p: _size(stage, p)) if own else None
    outer = tuple(p for p in stage.spatial if p not in (m, n))
    return Contraction(stage, lhs, rhs, outer, m, n, k)


def _along(stage: Stage, one: Operand, other: Operand, result: Operand) -> int | None:
    """The axis to put in vectors: stored consecutively, in one operand alone; dimensions of 1 do not count."""
    best = None
    for place, size in zip(result.places[::-1], result.buffer.shape[::-1], strict=True):
        if place is not None and one.has(place) != other.has(place):
            if best is None or _size(stage, best) == 1:
                best = place
            if stage.extents[place] != 1:
                break
        elif tir.const_int(size) != 1:
            break
    return best


def _size(stage: Stage, place: int) -> int:
    """Return the extent of a loop, a large number if it is unknown."""
    known = stage.extents[place]
    return 1 << 20 if known is None else known
