"""Matching of contractions (sums of products of two tensors) and the role of each axis. Convolutions are included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from mlcc.arith.conditions import linear_parts
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import tir
from mlcc.ir.visit import uncast
from mlcc.passes.auto_schedule.stage import Stage


@dataclass(frozen=True)
class Operand:
    """A factor of a contraction: its buffer, and the axis that indexes each dimension (None: a constant index).

    Axes are positions among the loops. `windows` are the dimensions indexed by sums of axes, as in a convolution, with
    the stride of each axis.
    """

    buffer: tir.Buffer
    places: tuple[int | None, ...]
    windows: Mapping[int, Mapping[int, int]] = field(default_factory=dict)

    def has(self, position: int) -> bool:
        return position in self.places or any(position in window for window in self.windows.values())


@dataclass(frozen=True)
class Contraction:
    """`C[o, m, n] += A[o, m, k] * B[o, k, n]`; each axis is a position among the loops.

    Results are contiguous along `n`. `outer` are all spatial axes other than `m` and `n`, whichever operands they
    index. `m` is None if A has no free axis: a vector-matrix product.
    """

    stage: Stage
    lhs: Operand
    rhs: Operand
    outer: tuple[int, ...]
    m: int | None
    n: int
    k: tuple[int, ...]

    def extent(self, position: int | None) -> int | None:
        return 1 if position is None else self.stage.extents[position]

    def count(self, positions: tuple[int, ...]) -> int | None:
        """Return the product of the extents of some loops, or None if one is unknown."""
        extents = [self.stage.extents[p] for p in positions]
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

    def contiguous_axis(self, operand: Operand) -> int | None:
        """Return the axis along which an operand is contiguous, or None.

        Among several axes of a window a spatial one is preferred.
        """
        for dimension in reversed(range(len(operand.places))):
            window = operand.windows.get(dimension, {})
            unit_stride_axes = [axis for axis, step in window.items() if step == 1]
            if unit_stride_axes:
                return min(unit_stride_axes, key=lambda axis: axis in self.k)
            if operand.places[dimension] is not None:
                return operand.places[dimension]
            if window or tir.const_int(operand.buffer.shape[dimension]) != 1:
                return None
        return None


def match_contraction(stage: Stage) -> Contraction | str:
    """Match a stage as a contraction; return the reason as text if it is not one."""
    block = stage.block
    if block.init is None or not stage.reduced or len(block.body) != 1:
        return f"block `{block.name}` is not a plain sum"
    store, init = block.body[0], block.init
    zero = init[0].value if len(init) == 1 and isinstance(init[0], tir.BufferStore) else None
    if not isinstance(store, tir.BufferStore) or not isinstance(zero, (tir.FloatImm, tir.IntImm)) or zero.value != 0:
        return f"block `{block.name}` does not start from 0"
    factors = _factors(store)
    if factors is None:
        return f"block `{block.name}` does not sum products of two tensors"
    operands = [_operand(stage, f) for f in factors]
    result = _operand(stage, tir.BufferLoad(store.buffer.dtype, store.buffer, store.indices))
    if any(o is None for o in (*operands, result)) or operands[0].buffer is operands[1].buffer:  # type: ignore[union-attr]
        return f"block `{block.name}` indexes its operands by more than axes"
    if result.windows:  # type: ignore[union-attr]
        return f"block `{block.name}` stores at sums of axes"
    return _assign_axes(stage, operands[0], operands[1], result)  # type: ignore[arg-type]


def _factors(store: tir.BufferStore) -> tuple[tir.BufferLoad, tir.BufferLoad] | None:
    if not isinstance(store.value, tir.Add):
        return None
    for accumulator, product in ((store.value.lhs, store.value.rhs), (store.value.rhs, store.value.lhs)):
        accumulates = isinstance(accumulator, tir.BufferLoad) and accumulator.buffer is store.buffer
        if accumulates and all(same_expr(a, b) for a, b in zip(accumulator.indices, store.indices, strict=True)):  # type: ignore[attr-defined]
            product = uncast(product)
            if isinstance(product, tir.Mul):
                lhs, rhs = uncast(product.lhs), uncast(product.rhs)
                if isinstance(lhs, tir.BufferLoad) and isinstance(rhs, tir.BufferLoad):
                    return lhs, rhs
    return None


def _operand(stage: Stage, load: tir.BufferLoad) -> Operand | None:
    """Match an access indexed by axes, each at most once, and constants; return None for any other access."""
    axis_values = {axis.var: value for axis, value in zip(stage.block.iter_vars, stage.realize.values, strict=True)}
    loop_positions = {loop.var: n for n, loop in enumerate(stage.loops)}
    axes: list[int | None] = []
    windows: dict[int, dict[int, int]] = {}
    for index in load.indices:
        if isinstance(index, tir.Var) and index in axis_values:
            axes.append(loop_positions[axis_values[index]])  # type: ignore[index]
            continue
        axes.append(None)
        parts = linear_parts(index)
        if parts is None or not parts[0].keys() <= axis_values.keys() or any(k <= 0 for k in parts[0].values()):
            return None
        if parts[0]:
            windows[len(axes) - 1] = {loop_positions[axis_values[v]]: k for v, k in parts[0].items()}  # type: ignore[index]
    used = [p for p in axes if p is not None] + [p for window in windows.values() for p in window]
    return Operand(load.buffer, tuple(axes), windows) if len(set(used)) == len(used) else None


def _assign_axes(stage: Stage, first: Operand, second: Operand, result: Operand) -> Contraction | str:
    name = stage.block.name
    k = tuple(stage.reduced)
    if not all(first.has(p) and second.has(p) for p in k):
        return f"block `{name}` reduces over an axis that only one operand has"
    if not all(result.has(p) for p in stage.spatial) or any(p in result.places for p in k):
        return f"block `{name}` does not store by all its spatial axes"
    if not all(first.has(p) or second.has(p) or stage.extents[p] == 1 for p in stage.spatial):
        return f"block `{name}` has an axis that no operand has"
    n = _vector_axis(stage, first, second, result)
    if n is None:
        return f"block `{name}` stores contiguously no axis that only one operand has"
    lhs, rhs = (first, second) if second.has(n) else (second, first)
    lhs_axes = [p for p in stage.spatial if lhs.has(p) and not rhs.has(p)]
    m = max(lhs_axes, key=lambda p: _extent_or_large(stage, p)) if lhs_axes else None
    outer = tuple(p for p in stage.spatial if p not in (m, n))
    return Contraction(stage, lhs, rhs, outer, m, n, k)


def _vector_axis(stage: Stage, first: Operand, second: Operand, result: Operand) -> int | None:
    """Return the axis to vectorize: stored contiguously, and indexing only one operand. Dimensions of 1 are skipped."""
    axis = None
    for candidate, size in zip(result.places[::-1], result.buffer.shape[::-1], strict=True):
        if candidate is not None and first.has(candidate) != second.has(candidate):
            if axis is None or _extent_or_large(stage, axis) == 1:
                axis = candidate
            if stage.extents[candidate] != 1:
                break
        elif tir.const_int(size) != 1:
            break
    return axis


def _extent_or_large(stage: Stage, position: int) -> int:
    """Return the extent of a loop, or a large number if it is unknown."""
    known = stage.extents[position]
    return 1 << 20 if known is None else known
