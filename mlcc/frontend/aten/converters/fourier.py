"""Discrete Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.complex import Complex, as_complex, converts_complex
from mlcc.frontend.aten.converters.images import pad_borders
from mlcc.frontend.aten.promotion import float_dtype
from mlcc.frontend.aten.table import Converter, converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ops.shapes import prove_equal
from mlcc.relax import op

_Signal = Complex | relax.Expr
_NONE, _ROOT, _COUNT = range(3)  # the divisor of a sum: 1, the root of the number of terms, that number
_NORMS = {None: (_NONE, _COUNT), "backward": (_NONE, _COUNT), "ortho": (_ROOT, _ROOT), "forward": (_COUNT, _NONE)}


def dft(t: Translator, x: _Signal, axis: int, inverse: bool, divided: int, onesided: bool = False) -> Complex:
    """Emit the DFT along an axis with the normalization `divided`; `onesided` keeps the first half of the spectrum."""
    parts = [x.re, x.im] if isinstance(x, Complex) else [t.cast(x, float_dtype(t.dtype(x)))]
    rank, count = t.ndim(parts[0]), t.shape(parts[0])[axis]
    pairs = op.stack(parts, -1) if len(parts) > 1 else op.expand_dims(parts[0], [rank])
    spectrum = t.emit(op.signal.dft(t.emit(pairs), axis=axis, inverse=inverse, onesided=onesided))
    re, im = (t.emit(op.take(spectrum, t.scalar(part, "int64"), -1)) for part in (0, 1))
    return Complex(re, im).map(lambda part: _renormalize(t, part, count, (_COUNT if inverse else _NONE), divided))


def _renormalize(t: Translator, value: relax.Expr, count: tir.Expr, has: int, wanted: int) -> relax.Expr:
    """Rescale a transform from the normalization `has` to `wanted`: divided by 1, sqrt(count) or count."""
    if has == wanted:
        return value
    number = tir.const_int(count)
    if number is None:
        raise Unsupported("this norm is not supported for a transform of symbolic length")
    by = [1.0, math.sqrt(number), float(number)]
    return t.emit(op.multiply(value, t.scalar(by[has] / by[wanted] if number else 1.0, t.dtype(value))))


def _resize_signal(t: Translator, x: _Signal, axis: int, count: Dim | None) -> _Signal:
    """Crop the signal to `count` samples along an axis, or pad it with zeros."""
    if isinstance(x, Complex):
        return x.map(lambda part: _resize_signal(t, part, axis, count))  # type: ignore[arg-type, return-value]
    extent = t.shape(x)[axis]
    if count is None or prove_equal(extent, count if isinstance(count, tir.Expr) else c.const(count, "int64")):
        return x
    if not isinstance(count, int) or (known := tir.const_int(extent)) is None:
        raise Unsupported("a transform whose length differs from the symbolic length of the signal is not supported")
    pad = [*[0, 0] * (t.ndim(x) - 1 - axis), 0, count - known]
    return t.emit(pad_borders(t, x, pad, "constant", 0))


def _inverse_of_half(t: Translator, x: _Signal, axis: int, count: Dim, divided: int) -> relax.Expr:
    """Emit the real signal of `count` samples whose spectrum has this first half."""
    length = count if isinstance(count, tir.Expr) else c.const(count, "int64")
    half = c.floordiv(length, c.const(2, "int64"))
    given = _resize_signal(t, x, axis, _as_extent(c.add(half, c.const(1, "int64"))))
    z = given if isinstance(given, Complex) else as_complex(t, given, t.dtype(given))
    end = c.floordiv(c.add(length, c.const(1, "int64")), c.const(2, "int64"))

    def mirrored(part: relax.Expr, sign: int) -> relax.Expr:
        rest = t.emit(
            op.flip(t.emit(op.strided_slice(part, [axis], [1], [_as_extent(end)], assume_inbound=True)), axis)
        )
        return t.emit(op.concat([part, rest if sign > 0 else op.negative(rest)], axis))

    whole = Complex(mirrored(z.re, 1), mirrored(z.im, -1))
    return dft(t, whole, axis, True, divided).re


def _as_extent(value: tir.Expr) -> Dim:
    known = tir.const_int(value)
    return value if known is None else known


def _rank(t: Translator, x: _Signal) -> int:
    return t.ndim(x.re if isinstance(x, Complex) else x)


# ---------------------------------------------------------------- torch.fft


def _axes(
    t: Translator, x: _Signal, s: Sequence[Dim] | None, dim: Sequence[int] | None
) -> list[tuple[int, Dim | None]]:
    """Return the transformed axes and the length of each."""
    rank = _rank(t, x)
    if dim is None:
        dim = range(rank) if s is None else range(rank - len(s), rank)
    counts: Sequence[Dim | None] = [None] * len(dim) if s is None else [None if n == -1 else n for n in s]
    return [(axis % rank, count) for axis, count in zip(dim, counts, strict=True)]


def _transform_axes(
    t: Translator, x: _Signal, axes: Sequence[tuple[int, Dim | None]], inverse: bool, norm: str | None
) -> _Signal:
    for axis, count in axes:
        x = dft(t, _resize_signal(t, x, axis, count), axis, inverse, _NORMS[norm][inverse])
    return x


def _axes_and_lengths(t: Translator, x: _Signal, s: Any, n: Any, dim: Any, default: Sequence[int] | None) -> Any:
    """Return axes and lengths for all forms: one axis (`n`), two, or several (`s`)."""
    dim = default if dim is None else [dim] if isinstance(dim, int) else dim
    return _axes(t, x, [n] if n is not None else s, dim)


def _real_to_half(t: Translator, self: relax.Expr, axes: Any, norm: str | None) -> _Signal:
    *others, (last, count) = axes
    fitted = _resize_signal(t, self, last, count)
    half = dft(t, fitted, last, False, _NORMS[norm][False], onesided=True)
    return _transform_axes(t, half, others, False, norm)


def _half_to_real(t: Translator, self: _Signal, axes: Any, norm: str | None) -> relax.Expr:
    *others, (last, count) = axes
    half = _transform_axes(t, self, others, True, norm)
    if count is None:
        extent = t.shape(half.re if isinstance(half, Complex) else half)[last]
        count = _as_extent(c.mul(c.sub(extent, c.const(1, "int64")), c.const(2, "int64")))
    return _inverse_of_half(t, half, last, count, _NORMS[norm][True])


def _form(make: Any, default: Sequence[int] | None) -> Converter:
    def convert(
        t: Translator, self: _Signal, s: Any = None, n: Any = None, dim: Any = None, norm: str | None = None
    ) -> _Signal:
        return make(t, self, _axes_and_lengths(t, self, s, n, dim, default), norm)

    return convert


def _complex_transform(inverse: bool) -> Any:
    return lambda t, x, axes, norm: _transform_axes(t, x, axes, inverse, norm)


for _suffix, _default in (("fft", [-1]), ("fft2", [-2, -1]), ("fftn", None)):
    for _prefix, _make in (
        ("", _complex_transform(False)), ("i", _complex_transform(True)), ("r", _real_to_half), ("ir", _half_to_real),
    ):  # fmt: skip
        _convert = _form(_make, _default)
        converts(f"aten.fft_{_prefix}{_suffix}")(_convert)
        converts_complex(f"fft_{_prefix}{_suffix}")(_convert)


# ---------------------------------------------------------------- the operators of decompositions


@converts("aten._fft_r2c")
def _r2c(t: Translator, self: relax.Expr, dim: Sequence[int], normalization: int, onesided: bool) -> Complex:
    *others, last = dim
    spectrum = dft(t, self, last % t.ndim(self), False, normalization, onesided=onesided)
    return _c2c(t, spectrum, others, normalization, True) if others else spectrum


@converts_complex("_fft_c2c")
def _c2c(t: Translator, self: Complex, dim: Sequence[int], normalization: int, forward: bool) -> Complex:
    for axis in dim:
        self = dft(t, self, axis % _rank(t, self), not forward, normalization)
    return self


@converts_complex("_fft_c2r")
def _c2r(t: Translator, self: Complex, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> relax.Expr:
    *others, last = dim
    half = _c2c(t, self, others, normalization, False)
    return _inverse_of_half(t, half, last % _rank(t, self), last_dim_size, normalization)


# ---------------------------------------------------------------- short-time transforms


@converts("aten.stft")
def _stft(
    t: Translator, self: relax.Expr, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
    window: relax.Expr | None = None, normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None, center: bool = False,
    pad_mode: str = "reflect",
) -> _Signal:  # fmt: skip
    if align_to_window:
        raise Unsupported("align_to_window=True")
    hop = hop_length or n_fft // 4
    x = self if t.ndim(self) == 2 else t.emit(op.expand_dims(self, [0]))
    if center:
        x = t.emit(pad_borders(t, x, [n_fft // 2, n_fft // 2], pad_mode, 0))
    count = c.add(c.floordiv(c.sub(t.shape(x)[1], c.const(n_fft, "int64")), c.const(hop, "int64")), c.const(1, "int64"))
    begins = t.emit(op.multiply(op.arange(0, _as_extent(count), 1, "int64"), t.scalar(hop, "int64")))
    places = t.emit(op.add(op.expand_dims(begins, [1]), op.arange(0, n_fft, 1, "int64")))
    frames = t.emit(op.take(x, places, 1))
    width = n_fft if win_length is None else win_length
    before = (n_fft - width) // 2
    if window is None and width != n_fft:
        window = t.full([width], 1, t.dtype(x))
    if window is not None:
        whole = t.emit(pad_borders(t, window, [before, n_fft - width - before], "constant", 0))
        frames = t.emit(op.multiply(frames, whole))
    divided = _ROOT if normalized else _NONE
    spectrum = dft(t, frames, 2, False, divided, onesided=True if onesided is None else onesided)
    turned = spectrum.map(lambda part: t.emit(op.permute_dims(part, [0, 2, 1])))
    if t.ndim(self) == 1:
        turned = turned.map(lambda part: t.emit(op.squeeze(part, [0])))
    return turned if return_complex else op.stack([turned.re, turned.im], -1)
