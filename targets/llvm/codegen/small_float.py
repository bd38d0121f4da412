"""float16, bfloat16 and the 8-bit floats: computed with as `float`, rounded after each operation, packed in memory.

One set of bit formulas serves all formats, scalars and vectors. Nothing calls the compiler's support library (whose
conversion routines differ between systems); a CPU with conversion instructions for float16 uses those.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.ir.dtypes import DType
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, floating, integer, vector

if TYPE_CHECKING:
    from mlcc.targets.llvm.codegen.emitter import Emitter


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format: explicit mantissa bits, exponents of normal numbers, total bits; `finite`: no infinities."""

    mantissa: int
    least: int
    most: int
    bits: int
    finite: bool = False

    @property
    def shift(self) -> int:
        return 23 - self.mantissa

    @property
    def largest(self) -> float:
        """The greatest finite value."""
        top = 2.0 - 2.0 ** (1 - self.mantissa if self.finite else -self.mantissa)
        return top * 2.0**self.most


_FORMATS = {
    "float16": Format(10, -14, 15, 16),
    "bfloat16": Format(7, -126, 127, 16),
    "float8_e5m2": Format(2, -14, 15, 8),
    "float8_e4m3fn": Format(3, -6, 8, 8, finite=True),
}
_QUIET_NAN = 0x7FC00000
_INFINITY = 0x7F800000


def _format(dtype: DType) -> Format | None:
    return _FORMATS.get(str(dtype.element))


def rounded(e: Emitter, value: Value, dtype: DType) -> Value:
    """A `float` rounded to a narrow type; any other value as it is."""
    form = _format(dtype)
    if form is None:
        return value
    return _call(e, "round", dtype, value, vector("float", dtype.lanes), _native_round, _round)


def to_memory(e: Emitter, value: Value, dtype: DType) -> Value:
    """The bits of a value that is already rounded."""
    form = _format(dtype)
    assert form is not None
    return _call(e, "pack", dtype, value, vector(f"i{form.bits}", dtype.lanes), _native_pack, _pack)


def from_memory(e: Emitter, value: Value, dtype: DType) -> Value:
    """The value of bits."""
    return _call(e, "unpack", dtype, value, vector("float", dtype.lanes), _native_unpack, _unpack)


def from_double(e: Emitter, value: Value, dtype: DType) -> Value:
    """A double rounded once: first to a float with a sticky last bit, which then rounds as the double would."""
    return rounded(e, _helper(e, f"mlcc.odd.x{dtype.lanes}", value, vector("float", dtype.lanes), _odd), dtype)


_Body = Callable[["_Bits", Value], Value]


def _call(e: Emitter, what: str, dtype: DType, value: Value, type: str, native: _Body, bits: _Body) -> Value:
    use_native = str(dtype.element) in e.ctx.converted_floats
    return _helper(e, f"mlcc.{what}.{dtype}", value, type, native if use_native else bits, _format(dtype))


def _helper(e: Emitter, symbol: str, value: Value, type: str, body: _Body, form: Format | None = None) -> Value:
    module = e.ctx.module
    symbol, attrs = module.own(symbol), "alwaysinline nounwind" + module.helper_attrs
    if not module.has_helper(symbol):
        fn = FunctionText(module, type, symbol, [(value.type, "x")], "internal", (), attrs)
        lanes = 1 if type[0] != "<" else int(type[1 : type.index(" ")])
        fn.ret(body(_Bits(fn, lanes, form or _FORMATS["float16"]), fn.params[0]))
        module.helper(symbol, fn.text())
    return e.fn.call(type, f"@{symbol}", [value])


class _Bits:
    """A function body over i32 lanes, with constants splatted as needed."""

    def __init__(self, fn: FunctionText, lanes: int, form: Format) -> None:
        self.fn = fn
        self.lanes = lanes
        self.form = form

    def i32(self, value: int) -> Value:
        return self.fn.splat(integer("i32", value), self.lanes)

    def f32(self, value: float) -> Value:
        return self.fn.splat(floating("float", value), self.lanes)

    def op(self, name: str, lhs: Value, rhs: int) -> Value:
        return self.fn.binary(name, lhs, self.i32(rhs))

    def bits(self, value: Value) -> Value:
        return self.fn.convert("bitcast", value, vector("i32", self.lanes))

    def float(self, value: Value) -> Value:
        return self.fn.convert("bitcast", value, vector("float", self.lanes))

    def split(self, value: Value) -> tuple[Value, Value]:
        """Sign bit and magnitude of a float's bits."""
        bits = self.bits(value)
        return self.op("and", bits, -(2**31)), self.op("and", bits, 2**31 - 1)

    def narrow(self, value: Value, bits: int) -> Value:
        return self.fn.convert("trunc", value, vector(f"i{bits}", self.lanes))


def _bits_of(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _round(b: _Bits, x: Value) -> Value:
    fn, form = b.fn, b.form
    sign, size = b.split(x)
    shift = form.shift
    last = b.op("and", b.op("lshr", size, shift), 1)
    up = fn.binary("add", b.op("add", size, (1 << (shift - 1)) - 1), last)
    near = b.op("and", up, -(1 << shift))
    if form.most != 127:
        over = _QUIET_NAN if form.finite else _INFINITY
        near = fn.select(fn.icmp("ugt", near, b.i32(_bits_of(form.largest))), b.i32(over), near)
        # below the normal numbers the spacing is fixed: adding a number with that spacing rounds to it
        magic = b.f32(2.0 ** (form.least - form.mantissa + 23))
        tiny = b.bits(fn.binary("fsub", fn.binary("fadd", b.float(size), magic), magic))
        near = fn.select(fn.icmp("ult", size, b.i32(_bits_of(2.0**form.least))), tiny, near)
    rounded_bits = fn.select(fn.icmp("ugt", size, b.i32(_INFINITY)), b.i32(_QUIET_NAN), near)
    return b.float(fn.binary("or", rounded_bits, sign))


def _pack(b: _Bits, x: Value) -> Value:
    fn, form = b.fn, b.form
    if form.most == 127:  # the upper half of a float
        return b.narrow(b.op("lshr", b.bits(x), 32 - form.bits), form.bits)
    sign, size = b.split(x)
    bias = 1 - form.least
    packed = b.op("sub", b.op("lshr", size, form.shift), (127 - bias) << form.mantissa)
    if form.most != 127:
        scaled = fn.binary("fmul", b.float(size), b.f32(2.0 ** (form.mantissa - form.least)))
        small = fn.icmp("ult", size, b.i32(_bits_of(2.0**form.least)))
        safe = fn.select(small, scaled, b.f32(0.0))
        packed = fn.select(small, fn.convert("fptoui", safe, vector("i32", b.lanes)), packed)
    top = (1 << (form.bits - 1)) - 1
    infinity = top if form.finite else top >> form.mantissa << form.mantissa
    nan = top if form.finite else infinity | 1 << (form.mantissa - 1)
    packed = fn.select(fn.icmp("eq", size, b.i32(_INFINITY)), b.i32(infinity), packed)
    packed = fn.select(fn.icmp("ugt", size, b.i32(_INFINITY)), b.i32(nan), packed)
    return b.narrow(fn.binary("or", packed, b.op("lshr", sign, 32 - form.bits)), form.bits)


def _unpack(b: _Bits, x: Value) -> Value:
    fn, form = b.fn, b.form
    wide = fn.convert("zext", x, vector("i32", b.lanes))
    if form.most == 127:
        return b.float(b.op("shl", wide, 32 - form.bits))
    top = (1 << (form.bits - 1)) - 1
    sign = b.op("shl", b.op("lshr", wide, form.bits - 1), 31)
    size = b.op("and", wide, top)
    shifted = b.op("shl", size, form.shift)
    unpacked = shifted
    if form.most != 127:
        bias = 1 - form.least
        unpacked = b.bits(fn.binary("fmul", b.float(shifted), b.f32(2.0 ** (127 - bias))))
        if form.finite:
            unpacked = fn.select(fn.icmp("eq", size, b.i32(top)), b.i32(_QUIET_NAN), unpacked)
        else:
            special = fn.icmp("uge", size, b.i32(top >> form.mantissa << form.mantissa))
            unpacked = fn.select(special, b.op("or", shifted, _INFINITY), unpacked)
    return b.float(fn.binary("or", unpacked, sign))


def _odd(b: _Bits, x: Value) -> Value:
    fn = b.fn
    double, float = vector("double", b.lanes), vector("float", b.lanes)
    near = fn.convert("fptrunc", x, float)
    back = fn.convert("fpext", near, double)
    bits = b.bits(near)
    # step toward zero if rounding went away from it, then set the last bit; infinity steps to the greatest float
    size = fn.call(double, _fabs(b, double), [x])
    back_size = fn.call(double, _fabs(b, double), [back])
    away = fn.fcmp("ogt", back_size, size)
    toward = fn.select(away, b.op("sub", bits, 1), bits)
    inexact = fn.fcmp("one", back, x)
    return b.float(fn.select(inexact, b.op("or", toward, 1), bits))


def _fabs(b: _Bits, type: str) -> str:
    suffix = "f64" if b.lanes == 1 else f"v{b.lanes}f64"
    return b.fn.module.declare(f"llvm.fabs.{suffix}", type, [type])


def _narrow(b: _Bits) -> str:
    """LLVM's type of the format."""
    return vector("half" if b.form.most == 15 else "bfloat", b.lanes)


def _native_round(b: _Bits, x: Value) -> Value:
    return b.fn.convert("fpext", b.fn.convert("fptrunc", x, _narrow(b)), vector("float", b.lanes))


def _native_pack(b: _Bits, x: Value) -> Value:
    return b.fn.convert("bitcast", b.fn.convert("fptrunc", x, _narrow(b)), vector("i16", b.lanes))


def _native_unpack(b: _Bits, x: Value) -> Value:
    return b.fn.convert("fpext", b.fn.convert("bitcast", x, _narrow(b)), vector("float", b.lanes))
