"""Converters of operators that concatenate and repeat tensors, or move elements between axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.shapes import (
    broadcast,
    extent_difference,
    extent_expr,
    extent_sum,
    permute,
    simplify_extent,
    slice_axis,
    total_size,
)
from mlcc.frontend.aten.promotion import promote_operands
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.relax import op

# ---------------------------------------------------------------- joins and repetitions


@converts("aten.cat", "aten.concat", "aten.concatenate")
def _cat(t: Translator, tensors: list[relax.Expr], dim: int = 0) -> relax.Expr:
    operands = promote_operands(t, *tensors) if len({t.dtype(x) for x in tensors}) > 1 else tensors
    kept = [x for x in operands if t.static_shape(x) != (0,)] or operands[
        :1
    ]  # an empty vector may be concatenated with any shape
    return kept[0] if len(kept) == 1 else op.concat(kept, t.axis(kept[0], dim))


@converts("aten.stack")
def _stack(t: Translator, tensors: list[relax.Expr], dim: int = 0) -> relax.Expr:
    operands = promote_operands(t, *tensors)
    axis = dim % (t.ndim(operands[0]) + 1)
    return op.expand_dims(operands[0], [axis]) if len(operands) == 1 else op.stack(operands, axis)


@converts("aten.hstack")
def _hstack(t: Translator, tensors: list[relax.Expr]) -> relax.Expr:
    return _cat(t, [_at_least(t, x, 1) for x in tensors], 1 if t.ndim(tensors[0]) > 1 else 0)


@converts("aten.vstack", "aten.row_stack")
def _vstack(t: Translator, tensors: list[relax.Expr]) -> relax.Expr:
    return _cat(t, [_at_least(t, x, 2) for x in tensors], 0)


@converts("aten.dstack")
def _dstack(t: Translator, tensors: list[relax.Expr]) -> relax.Expr:
    return _cat(t, [_at_least(t, x, 3) for x in tensors], 2)


@converts("aten.column_stack")
def _column_stack(t: Translator, tensors: list[relax.Expr]) -> relax.Expr:
    return _cat(t, [x if t.ndim(x) > 1 else t.reshape(x, [total_size(t.shape(x)), 1]) for x in tensors], 1)


def _at_least(t: Translator, value: relax.Expr, rank: int) -> relax.Expr:
    """Add axes of extent 1 in front, as `atleast_1d` does; `atleast_3d` adds one at the end."""
    shape: list[Dim] = [*t.shape(value)]
    if rank == 3 and 0 < len(shape) < 3:
        return t.reshape(value, [*[1] * (2 - len(shape)), *shape, 1])
    return t.reshape(value, [*[1] * (rank - len(shape)), *shape])


@converts("aten.repeat", "aten.tile")
def _repeat(
    t: Translator, self: relax.Expr, repeats: list[Dim] | None = None, dims: list[Dim] | None = None
) -> relax.Expr:
    counts = list(repeats if repeats is not None else dims or [])
    shape: list[Dim] = [*t.shape(self)]
    rank = max(len(counts), len(shape))
    counts, shape = [*[1] * (rank - len(counts)), *counts], [*[1] * (rank - len(shape)), *shape]
    known = [count for count in counts if isinstance(count, int)]
    if len(known) == len(counts):
        value = t.reshape(self, shape)
        return value if all(count == 1 for count in known) else op.tile(value, known)
    value = t.reshape(self, [extent for size in shape for extent in (1, size)])
    spread = broadcast(t, value, [extent for pair in zip(counts, shape, strict=True) for extent in pair])
    return t.reshape(spread, t.out_shape())


@converts("aten.repeat_interleave.self_int")
def _repeat_interleave(
    t: Translator, self: relax.Expr, repeats: Dim, dim: int | None = None, output_size: Any = None
) -> relax.Expr:
    if not isinstance(repeats, int):
        raise Unsupported("a symbolic number of repetitions is not supported")
    if dim is None:
        return op.repeat(t.reshape(self, [total_size(t.shape(self))]), repeats, 0)
    return op.repeat(self, repeats, t.axis(self, dim))


@converts("aten.roll")
def _roll(t: Translator, self: relax.Expr, shifts: list[Dim], dims: Sequence[int] = ()) -> relax.Expr:
    shape = t.shape(self)
    if not dims:
        flat = roll(t, t.reshape(self, [total_size(shape)]), 0, shifts[0])
        return t.reshape(flat, shape)
    for shift, dim in zip(shifts, dims, strict=True):
        self = roll(t, self, t.axis(self, dim), shift)
    return self


def roll(t: Translator, value: relax.Expr, axis: int, shift: Dim) -> relax.Expr:
    """Rotate the value along an axis: elements that leave at the end come back at the front."""
    extent = t.shape(value)[axis]
    known = tir.const_int(extent)
    if known == 0 or shift == 0:
        return value
    cut = extent_difference(extent, simplify_extent(construct.floormod(extent_expr(shift), extent_expr(extent))))
    front, back = slice_axis(t, value, axis, 0, cut), slice_axis(t, value, axis, cut, extent)
    return value if front is value or back is value else t.emit(op.concat([back, front], axis))


@converts("aten.diff")
def _diff(
    t: Translator, self: relax.Expr, n: int = 1, dim: int = -1, prepend: relax.Expr | None = None,
    append: relax.Expr | None = None,
) -> relax.Expr:  # fmt: skip
    axis = t.axis(self, dim)
    joined = promote_operands(t, *(x for x in (prepend, self, append) if x is not None))
    value = joined[0] if len(joined) == 1 else t.emit(op.concat(joined, axis))
    for _ in range(n):
        extent = t.shape(value)[axis]
        if tir.const_int(extent) == 0:
            break
        later, earlier = (
            slice_axis(t, value, axis, 1, extent),
            slice_axis(t, value, axis, 0, extent_difference(extent, 1)),
        )
        value = t.emit((op.not_equal if t.dtype(value) == "bool" else op.subtract)(later, earlier))
    return value


@converts("aten.pixel_shuffle")
def _pixel_shuffle(t: Translator, self: relax.Expr, upscale_factor: int) -> relax.Expr:
    return op.nn.pixel_shuffle(self, upscale_factor)


@converts("aten.pixel_unshuffle")
def _pixel_unshuffle(t: Translator, self: relax.Expr, downscale_factor: int) -> relax.Expr:
    r, shape = downscale_factor, t.shape(self)
    rest, (channels, _, _) = shape[:-3], shape[-3:]
    height, width = t.out_shape()[-2:]
    n = len(rest)
    split = t.reshape(self, [*rest, channels, height, r, width, r])
    moved = permute(t, split, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return t.reshape(moved, t.out_shape())


@converts("aten.channel_shuffle", "aten.native_channel_shuffle")
def _channel_shuffle(t: Translator, self: relax.Expr, groups: int) -> relax.Expr:
    batch, channels, *rest = t.shape(self)
    each = simplify_extent(construct.floordiv(channels, extent_expr(groups)))
    split = t.reshape(self, [batch, groups, each, *rest])
    return t.reshape(permute(t, split, [0, 2, 1, *range(3, t.ndim(split))]), t.out_shape())


@converts("aten.block_diag")
def _block_diag(t: Translator, tensors: list[relax.Expr]) -> relax.Expr:
    blocks = [t.reshape(x, [*[1] * (2 - t.ndim(x)), *t.shape(x)]) for x in promote_operands(t, *tensors)]
    height, width = t.out_shape()
    bands: list[relax.Expr] = []
    row: Dim = 0
    column: Dim = 0
    for block in blocks:
        rows, columns = t.shape(block)
        row, column = extent_sum(row, rows), extent_sum(column, columns)
        bands.append(_at_column(t, block, extent_difference(column, columns), extent_difference(width, column)))
    return bands[0] if len(bands) == 1 else op.concat(bands, 0)


def _at_column(t: Translator, block: relax.Expr, before: Dim, after: Dim) -> relax.Expr:
    rows, dtype = t.shape(block)[0], t.dtype(block)
    sides = [t.full([rows, columns], 0, dtype) for columns in (before, after)]
    return t.emit(op.concat([sides[0], block, sides[1]], 1))
