"""Converters of complex arithmetic, and of the operators that split complex numbers and build them."""

from __future__ import annotations

import functools
from typing import Any

from mlcc.frontend.aten.complex import PARTS, Complex, as_complex, converts_complex
from mlcc.frontend.aten.promotion import float_dtype, promote_operands
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.relax import op


@converts("aten.complex")
def _complex(t: Translator, real: relax.Expr, imag: relax.Expr) -> Complex:
    return Complex(real, imag)


@converts("aten.polar.default")
def _polar(t: Translator, abs: relax.Expr, angle: relax.Expr) -> Complex:
    return Complex(t.emit(op.multiply(abs, op.cos(angle))), t.emit(op.multiply(abs, op.sin(angle))))


@converts("aten.view_as_complex", "aten.view_as_complex_copy")
def _view_as_complex(t: Translator, self: relax.Expr) -> Complex:
    return Complex(*(t.emit(op.take(self, t.scalar(part, "int64"), -1)) for part in (0, 1)))


@converts_complex("view_as_real", "view_as_real_copy")
def _view_as_real(t: Translator, self: Complex) -> relax.Expr:
    return op.stack([self.re, self.im], -1)


@converts_complex("real")
def _real(t: Translator, self: Complex) -> relax.Expr:
    return self.re


@converts_complex("imag")
def _imag(t: Translator, self: Complex) -> relax.Expr:
    return self.im


@converts_complex("conj", "_conj", "conj_physical")
def _conj(t: Translator, self: Complex) -> Complex:
    return Complex(self.re, t.emit(op.negative(self.im)))


@converts_complex("resolve_conj")
def _same(t: Translator, self: Complex) -> Complex:
    return self


@converts_complex("to", "_to_copy", "type_as")
def _to(t: Translator, self: Complex, **arguments: Any) -> Complex:
    if t.out_dtype() not in PARTS:
        raise Unsupported(
            "a cast to real numbers would drop the imaginary parts", "take the real parts with torch.real"
        )
    return self.map(lambda part: t.cast(part, PARTS[t.out_dtype()]))


@converts_complex("abs", "absolute")
def _abs(t: Translator, self: Complex) -> relax.Expr:
    """Emit the magnitude, scaled by the larger part, so that its square cannot overflow."""
    parts = [t.emit(op.abs(part)) for part in (self.re, self.im)]
    high, low = t.emit(op.maximum(*parts)), t.emit(op.minimum(*parts))
    zero, one = (t.scalar(value, t.dtype(high)) for value in (0, 1))
    ratio = t.emit(op.divide(low, op.where(op.equal(high, zero), one, high)))
    length = t.emit(op.multiply(high, op.sqrt(op.add(one, op.multiply(ratio, ratio)))))
    length = t.emit(op.where(op.logical_or(*map(op.isnan, parts)), op.add(*parts), length))
    return op.where(op.logical_or(*map(op.isinf, parts)), t.scalar(float("inf"), t.dtype(high)), length)


@converts_complex("angle")
def _angle(t: Translator, self: Complex) -> relax.Expr:
    return op.atan2(self.im, self.re)


@converts("aten.angle")
def _angle_of_real(t: Translator, self: relax.Expr) -> relax.Expr:
    """Emit pi for negative numbers, else 0; NaN stays NaN."""
    (value,) = promote_operands(t, self, floating=True)
    dtype = float_dtype(t.dtype(value))
    of_negative = op.where(op.less(value, t.scalar(0, dtype)), t.scalar(3.141592653589793, dtype), t.scalar(0, dtype))
    return op.where(op.isnan(value), value, of_negative)


def _pair(t: Translator, self: Any, other: Any) -> tuple[Complex, Complex]:
    """Convert both operands to complex numbers with parts of the dtype that the exporter states."""
    one, two = (as_complex(t, value, PARTS[t.out_dtype()]) for value in (self, other))
    return one, two


@converts_complex("mul")
def _mul(t: Translator, self: Any, other: Any) -> Complex:
    one, two = _pair(t, self, other)
    if not isinstance(other, (Complex, complex)):
        return one.map(lambda part: t.emit(op.multiply(part, two.re)))
    if not isinstance(self, (Complex, complex)):
        return two.map(lambda part: t.emit(op.multiply(part, one.re)))
    return _product(t, op.multiply, one, two)


@converts_complex("matmul", "mm", "bmm")
def _matmul(t: Translator, self: Any, other: Any = None, mat2: Any = None) -> Complex:
    return _product(t, op.matmul, *_pair(t, self, mat2 if other is None else other))


def _product(t: Translator, times: Any, a: Complex, b: Complex) -> Complex:
    re = op.subtract(t.emit(times(a.re, b.re)), t.emit(times(a.im, b.im)))
    im = op.add(t.emit(times(a.re, b.im)), t.emit(times(a.im, b.re)))
    return Complex(t.emit(re), t.emit(im))


@converts_complex("div", "true_divide")
def _div(t: Translator, self: Any, other: Any) -> Complex:
    if isinstance(self, Complex) and not isinstance(other, (Complex, complex)):
        by = as_complex(t, other, PARTS[t.out_dtype()]).re
        return self.map(lambda part: t.emit(op.divide(part, by)))
    a, b = _pair(t, self, other)
    top = _product(t, op.multiply, a, Complex(b.re, t.emit(op.negative(b.im))))
    square = t.emit(op.add(op.multiply(b.re, b.re), op.multiply(b.im, b.im)))
    return top.map(lambda part: t.emit(op.divide(part, square)))


@converts_complex("exp")
def _exp(t: Translator, self: Complex) -> Complex:
    size = t.emit(op.exp(self.re))
    return Complex(*(t.emit(op.multiply(size, turn(self.im))) for turn in (op.cos, op.sin)))


@converts_complex("rsub")
def _rsub(t: Translator, self: Any, other: Any, alpha: Any = 1) -> Complex:
    if alpha != 1:
        raise Unsupported("`alpha` is not supported for complex numbers")
    a, b = _pair(t, other, self)
    return Complex(t.emit(op.subtract(a.re, b.re)), t.emit(op.subtract(a.im, b.im)))


@converts_complex("ones_like", "zeros_like", "full_like", "full")
def _filled(t: Translator, fill_value: Any = None, **arguments: Any) -> Complex:
    assert t.node is not None
    value = fill_value if fill_value is not None else 1 if "ones" in t.node.target else 0
    if t.out_dtype() not in PARTS:
        raise Unsupported("complex numbers with a real dtype are not supported")
    number = complex(value)
    full = functools.partial(t.full, t.out_shape(), dtype=PARTS[t.out_dtype()])
    return Complex(full(number.real), full(number.imag))
