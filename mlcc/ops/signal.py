"""The discrete Fourier transform of rows of any length: Stockham's algorithm with a stage for each prime factor."""

from __future__ import annotations

import math
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import FLOAT64
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import (
    Tensor,
    axis,
    fail,
    int64,
    require_float,
    result,
    result_dims,
    scalar_argument,
    shape_text,
    simplify,
    tensor,
)
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar
from mlcc.te.statements import BufferElements


def infer_dft(call: relax.Call) -> Tensor:
    """Infer the length (or half of it plus 1 for `onesided`) along the axis, and pairs of real and imaginary parts."""
    data = tensor(call, 0)
    require_float(call, data)
    length = scalar_argument(call, 1) if len(call.args) > 1 else None
    if len(call.args) > 1 and (length is None or not length.dtype.is_int):
        fail(call, "E0444", "`length` must be a known integer")
    if call.attrs["inverse"] and call.attrs["onesided"]:
        fail(call, "E0442", "`onesided` is for the transform of a signal, not for its inverse")
    if data.ndim < 0 or data.dims is None:
        return result(None, data.dtype, data.ndim, data.vdevice)
    if data.ndim < 2 or tir.const_int(data.dims[-1]) not in (1, 2):
        text = f"the last extent must be 1 (real) or 2 (complex), the shape is {shape_text(data.dims)}"
        fail(call, "E0445", text)
    at = axis(call, call.attrs["axis"], data.ndim)
    if at == data.ndim - 1:
        fail(call, "E0446", "the last axis holds real and imaginary parts: it is not transformed")
    extent = data.dims[at] if length is None else construct.cast("int64", length)
    if call.attrs["onesided"]:
        extent = simplify(construct.add(construct.floordiv(extent, int64(2)), int64(1)))
    dims = [*data.dims[:-1], int64(2)]
    dims[at] = extent
    return result(dims, data.dtype, vdevice=data.vdevice)


class _RowTransform:
    """Emit statements that transform one row in the double buffers `re` and `im`; the result is in `half[0]`."""

    def __init__(self, count: Scalar, dtype: Any, inverse: bool) -> None:
        self.count, self.inverse = count, inverse
        self.re, self.im = (code.scratch(n, (2, count), dtype) for n in ("re", "im"))
        self.cos, self.sin = (code.scratch(n, (count,), dtype) for n in ("cosines", "sines"))
        self.half, self.left, self.factor, self.done = (
            code.scratch(n, (1,)) for n in ("half", "left", "factor", "done")
        )

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        cells = (self.re, self.im, self.cos, self.sin, self.half, self.left, self.factor, self.done)
        return tuple(c.buffer for c in cells)

    def roots(self) -> Any:
        """Emit the twiddle factors exp(-2 pi i k / count), or their conjugates, for all k."""
        turn = te.const(2 * math.pi if self.inverse else -2 * math.pi, FLOAT64)

        def one(k: Scalar) -> Any:
            angle = turn * (k.astype(FLOAT64) / self.count.astype(FLOAT64))
            return self.cos.set(te.cos(angle), k), self.sin.set(te.sin(angle), k)

        return code.loop(self.count, one, "k")

    def transform(self) -> Any:
        """Emit one stage per prime factor; `done` is the product of the factors so far, `left` that of the others."""
        left, factor = self.left[0], self.factor[0]
        rest = te.all(factor * factor <= left, left % factor > 0)
        prime = code.if_then(factor * factor > left, self.factor.set(left, 0))
        find = (self.factor.set(2, 0), code.while_loop(rest, self.factor.set(factor + 1, 0)), prime)
        step = (self.left.set(left // factor, 0), self.done.set(self.done[0] * factor, 0))
        stage = [find, self._stage(), self.half.set(1 - self.half[0], 0), step]
        return self.half.set(0, 0), self.left.set(self.count, 0), self.done.set(1, 0), code.while_loop(left > 1, stage)

    def _stage(self) -> Any:
        """A butterfly stage: element (q, u) of the other half sums `factor` elements m apart, of `done` numbers."""
        p, s, source = self.factor[0], self.done[0], self.half[0]
        m = self.left[0] // p

        def sums(q: Scalar, u: Scalar) -> Any:
            to = s * (p * q + u)

            def term(r: Scalar) -> Any:
                root, start = u * (q + m * r) % self.left[0] * s, s * (q + m * r)
                c, d = self.cos[root], self.sin[root]

                def add(k: Scalar) -> Any:
                    a, b = self.re[source, start + k], self.im[source, start + k]
                    return (
                        self.re.set(self.re[1 - source, to + k] + (a * c - b * d), 1 - source, to + k),
                        self.im.set(self.im[1 - source, to + k] + (a * d + b * c), 1 - source, to + k),
                    )

                return code.loop(s, add, "k")

            clear = code.loop(s, lambda k: [part.set(0, 1 - source, to + k) for part in (self.re, self.im)], "k")
            return clear, code.loop(p, term, "r")

        return code.loop(m, lambda q: code.loop(p, lambda u: sums(q, u), "u"), "q")


def _lower_dft(call: relax.Call, x: te.Tensor, *length: Any) -> te.Tensor:
    at, inverse = call.attrs["axis"] % x.ndim, bool(call.attrs["inverse"])
    given, dims = x.shape[at], result_dims(call)
    count = Scalar(construct.cast("int64", length[0])) if length else given
    row, parts = _RowTransform(count, x.dtype, inverse), tir.const_int(x.buffer.shape[-1]) or 1

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = BufferElements(ins[0]), BufferElements(outs[0])

        def one(*outer: Scalar) -> Any:
            def place(k: Scalar, part: int) -> tuple[Any, ...]:
                return (*outer[:at], k, *outer[at:], part)

            def part(k: Scalar, number: int) -> Any:
                if number >= parts:
                    return te.const(0, x.dtype)
                value = data[place(k, number)]
                return te.if_then_else(k < given, value, te.const(0, x.dtype)) if length else value

            def load(k: Scalar) -> Any:
                return [cells.set(part(k, number), 0, k) for number, cells in enumerate((row.re, row.im))]

            def store(k: Scalar) -> Any:
                values = [cells[row.half[0], k] for cells in (row.re, row.im)]
                values = [v / count.astype(x.dtype) for v in values] if inverse else values
                return [out.set(v, *place(k, number)) for number, v in enumerate(values)]

            return code.loop(count, load, "k"), row.transform(), code.loop(Scalar(dims[at]), store, "k")

        outer = [d for a, d in enumerate(x.shape[:-1]) if a != at]
        return row.roots(), code.grid(outer, one, "i")

    return te.extern(dims, [x], body, "T_dft", x.dtype, scratch=row.buffers)  # type: ignore[no-any-return]


def _np_dft(call: relax.Call, x: Any, *length: Any) -> Any:
    at = call.attrs["axis"] % x.ndim
    wide = x.astype(np.float64)
    signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    count = int(length[0]) if length else x.shape[at]
    if count == 0:
        return np.zeros((*x.shape[:at], int(call.attrs["onesided"]), *x.shape[at + 1 : -1], 2), x.dtype)
    spectrum = (np.fft.ifft if call.attrs["inverse"] else np.fft.fft)(signal, count, at)
    spectrum = np.take(spectrum, range(count // 2 + 1), at) if call.attrs["onesided"] else spectrum
    return np.stack([spectrum.real, spectrum.imag], -1).astype(x.dtype)


OPS: dict[str, Impl] = {
    "signal.dft": Impl(
        "x, length: scalar? = None, axis: int = -2, inverse: bool = False, onesided: bool = False",
        infer_dft,
        _np_dft,
        _lower_dft,
    ),
}
