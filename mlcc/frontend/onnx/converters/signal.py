"""Fourier transforms of constant length as matrix products, window functions, mel filters."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.frontend.onnx.elements import dtype_of
from mlcc.frontend.onnx.helpers import constant_extent
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax

if TYPE_CHECKING:
    import numpy as np

MAX_TRANSFORM_LENGTH = 8192  # samples of a transform, whose matrix has 4 * LONGEST**2 elements
FLOAT = 1  # ONNX's number of float32
_WINDOWS = {  # the coefficients of cos(2 * pi * k * position), for k from 0 on
    "HannWindow": (0.5, -0.5), "HammingWindow": (25 / 46, -21 / 46), "BlackmanWindow": (0.42, -0.5, 0.08),
}  # fmt: skip

_MAX_WINDOW = 1 << 24  # elements of a window


@converts("DFT", since=17)
def _dft_along_attribute(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, length: relax.Expr | None = None
) -> relax.Expr:
    return _dft(t, node, x, length, node.attribute("axis", 1))


@converts("DFT", since=20)
def _dft_along_input(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, length: relax.Expr | None = None, axis: relax.Expr | None = None
) -> relax.Expr:
    return _dft(t, node, x, length, t.scalar_of(axis, -2))


def _dft(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, length: relax.Expr | None, axis: int) -> relax.Expr:
    axis, rank = t.axis(x, int(axis)), t.ndim(x)
    if axis == rank - 1:
        raise Unsupported("the last axis holds the real and imaginary parts and cannot be transformed")
    inverse, half = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    extent = constant_extent(t.shape(x)[axis], "the length of a transform")
    default = 2 * (extent - 1) if inverse and half else extent
    count = int(t.scalar_of(length, default))
    order = [i for i in range(rank - 1) if i != axis] + [axis, rank - 1]
    turned = x if order == list(range(rank)) else t.emit(t.op.permute_dims(x, order))
    spectrum = dft(t, turned, count, inverse, half)
    back = [order.index(i) for i in range(rank)]
    return spectrum if back == list(range(rank)) else t.op.permute_dims(spectrum, back)


def dft(t: OnnxTranslator, x: relax.Expr, count: int, inverse: bool, half: bool) -> relax.Expr:
    """Emit the Fourier transform of (..., samples, parts), with one part for real and two for complex numbers."""
    *outer, places, parts = t.shape(x)
    extent, width = constant_extent(places, "the length of a transform"), constant_extent(parts, "the number of parts")
    if width not in (1, 2):
        raise Unsupported(f"numbers must have 1 or 2 parts, not {width}")
    if not 0 < count <= MAX_TRANSFORM_LENGTH:
        raise Unsupported(f"transforms of {count} samples are not supported, only of 1 to {MAX_TRANSFORM_LENGTH}")
    used = min(extent, count // 2 + 1 if inverse and half else count)
    matrix = _dft_matrix(used, count, width, inverse, half)
    kept, made_parts = matrix.shape[2:]
    if used < extent:
        x = t.emit(t.op.strided_slice(x, [len(outer)], [0], [used], assume_inbound=True))
    rows = t.reshape(x, [*outer, used * width])
    table = t.constant(matrix.reshape(used * width, kept * made_parts).astype(t.dtype(x)))
    return t.reshape(t.emit(t.op.matmul(rows, table)), [*outer, kept, made_parts])


def _dft_matrix(used: int, count: int, width: int, inverse: bool, half: bool) -> np.ndarray:
    """Return the DFT matrix over real and imaginary parts, of shape (used, width, kept, parts)."""
    import numpy as np

    kept = count // 2 + 1 if half and not inverse else count
    angles = 2 * math.pi * (np.outer(np.arange(used), np.arange(kept)) % count) / count
    cos, sin = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    whole = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)[:, :width]
    if inverse:
        whole = whole / count
    if inverse and half:  # the other half of a real signal's spectrum is the mirror image
        twice = np.array([1.0 if 2 * k in (0, count) else 2.0 for k in range(used)])
        whole = whole[..., :1] * twice[:, None, None, None]
    return whole


@converts("STFT", since=17)
def _stft(
    t: OnnxTranslator,
    node: OnnxNode,
    x: relax.Expr,
    step: relax.Expr,
    window: relax.Expr | None = None,
    length: relax.Expr | None = None,
) -> relax.Expr:
    import numpy as np

    extent, hop = constant_extent(t.shape(x)[1], "the length of the signal"), int(t.scalar_of(step))
    if length is not None:
        count = int(t.scalar_of(length))
    else:
        count = extent if window is None else constant_extent(t.shape(window)[0], "the length of the window")
    if hop <= 0 or not 0 < count <= extent:
        raise Unsupported(f"frames of {count} samples with step {hop} do not fit a signal of {extent}")
    frames = 1 + (extent - count) // hop
    places = np.arange(frames)[:, None] * hop + np.arange(count)[None, :]
    if t.ndim(x) == 2:
        x = t.emit(t.op.expand_dims(x, [2]))
    cut = t.emit(t.op.take(x, t.constant(places), 1))
    if window is not None:
        cut = t.emit(t.op.multiply(cut, t.reshape(window, [count, 1])))
    return dft(t, cut, count, False, bool(node.attribute("onesided", 1)))


@converts(*_WINDOWS, since=17)
def _window(t: OnnxTranslator, node: OnnxNode, size: relax.Expr) -> relax.Expr:
    import numpy as np

    series, dtype = _WINDOWS[node.operator], dtype_of(node.attribute("output_datatype", FLOAT))
    less = 0 if node.attribute("periodic", 1) else 1
    if t.known_integers(size) is None:
        return _run_time_window(t, series, less, size, dtype)
    count = int(t.scalar_of(size))
    if not 0 <= count <= _MAX_WINDOW:
        raise Unsupported(f"a window of {count} elements is not supported")
    at = np.arange(count) / max(count - less, 1)
    window = sum(factor * np.cos(2 * np.pi * k * at) for k, factor in enumerate(series))
    return t.constant(np.asarray(window).astype(dtype))


def _run_time_window(t: OnnxTranslator, series: Sequence[float], less: int, size: relax.Expr, dtype: str) -> relax.Expr:
    """Emit a window whose length is known at run time only."""
    wide = functools.partial(t.scalar, dtype="float64")
    (count,) = t.extents(t.reshape(size, [1]))
    steps = t.op.maximum(t.cast(t.integer_tensor([construct.sub(count, less)], "int64"), "float64"), wide(1))
    at = t.emit(t.op.divide(t.cast(t.emit(t.op.arange(0, count, 1, "int64")), "float64"), steps))
    window: relax.Expr = t.full([count], series[0], "float64")
    for k, factor in enumerate(series[1:], 1):
        wave = t.op.cos(t.op.multiply(at, wide(2 * math.pi * k)))
        window = t.emit(t.op.add(window, t.op.multiply(wave, wide(factor))))
    return t.cast(window, dtype)


@converts("MelWeightMatrix", since=17)
def _mel(
    t: OnnxTranslator,
    node: OnnxNode,
    bins: relax.Expr,
    length: relax.Expr,
    rate: relax.Expr,
    lowest: relax.Expr,
    highest: relax.Expr,
) -> relax.Expr:
    import numpy as np

    count, size, sampled = (int(t.scalar_of(v)) for v in (bins, length, rate))
    low, high = (2595 * math.log10(1 + t.scalar_of(v) / 700) for v in (lowest, highest))
    edges = np.arange(count + 2) * ((high - low) / (count + 2)) + low
    hertz = 700 * np.expm1(edges / 2595 * math.log(10))
    places = ((size + 1) * hertz // sampled).astype("int64")
    at, matrix = np.arange(size // 2 + 1), np.zeros((size // 2 + 1, count))
    for i in range(count):
        left, centre, right = places[i : i + 3]
        if left == centre:
            matrix[centre, i] = 1
        else:
            rising = (at >= left) & (at <= centre)
            matrix[rising, i] = (at[rising] - left) / (centre - left)
        falling = (at >= centre) & (at < right)
        if right > centre:
            matrix[falling, i] = (right - at[falling]) / (right - centre)
    return t.constant(matrix.astype(dtype_of(node.attribute("output_datatype", FLOAT))))
