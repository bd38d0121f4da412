"""Sliding windows of convolutions and pools: per-dimension arguments, and gathers of the windows' elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.relax import op

if TYPE_CHECKING:
    from mlcc.frontend.aten.translate import Translator

Ints = int | Sequence[int]


def per_dimension(values: Ints, count: int) -> list[int]:
    """Return a number for each spatial dimension; a single number is repeated."""
    given = [values] if isinstance(values, int) else list(values)
    numbers = given * count if len(given) == 1 else given
    if len(numbers) != count or not all(isinstance(value, int) for value in numbers):
        raise Unsupported(f"{given} does not fit {count} spatial dimensions")
    return numbers


def window_positions(t: Translator, count: Dim, kernel: int, stride: int, pad: int, dilation: int) -> relax.Expr:
    """Return the input positions of sliding windows along a dimension, of shape (windows, kernel)."""
    begins = op.subtract(
        op.multiply(op.arange(0, count, 1, "int64"), t.scalar(stride, "int64")), t.scalar(pad, "int64")
    )
    within = op.multiply(op.arange(0, kernel, 1, "int64"), t.scalar(dilation, "int64"))
    return t.emit(op.add(op.expand_dims(begins, [1]), within))


def unfold_windows(
    t: Translator, value: relax.Expr, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> relax.Expr:
    """Gather all windows, with axes batch, channels, the window positions, then the kernel positions."""
    positions = []
    for extent, k, s, d in zip(t.shape(value)[2:], kernel, strides, dilation, strict=True):
        size = tir.const_int(extent)
        if size is None:
            raise Unsupported("windows of data of symbolic size")
        positions.append(window_positions(t, (size - d * (k - 1) - 1) // s + 1, k, s, 0, d))
    return gather_windows(t, value, positions)


def gather_windows(t: Translator, value: relax.Expr, positions: Sequence[relax.Expr]) -> relax.Expr:
    """Gather the elements of the windows, with axes batch, channels, the windows' dimensions, then the kernel's."""
    n = len(positions)
    for at, places in enumerate(positions):
        value = t.emit(op.take(value, places, 2 + 2 * at))
    return t.emit(op.permute_dims(value, [0, 1, *range(2, 2 + 2 * n, 2), *range(3, 3 + 2 * n, 2)]))
