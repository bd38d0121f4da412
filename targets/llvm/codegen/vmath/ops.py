"""Floats, integers and conditions of any lane count as Python values: `x * y + 1.0` appends instructions.

The elementary functions are written once with these, for `float` and `double`, scalars and vectors, CPUs with and
without fused multiply-add. Nothing here lets LLVM reassociate or contract: equal input gives equal bits in every lane
and in the scalar form.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, floating, integer, vector


@dataclass(frozen=True, slots=True)
class Format:
    """A binary format by LLVM's name: bits of the fraction, of the exponent, and of all."""

    type: str
    fraction: int
    exponent: int
    bits: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def largest(self) -> float:
        return (2.0 - 2.0**-self.fraction) * 2.0**self.bias

    @property
    def sign(self) -> int:
        """The sign bit alone, as a signed integer."""
        return -(1 << (self.bits - 1))

    def bits_of(self, value: float) -> int:
        """The bits of a value, as an unsigned number."""
        codes = ("<I", "<f") if self.bits == 32 else ("<Q", "<d")
        return int(struct.unpack(codes[0], struct.pack(codes[1], value))[0])

    def rounded(self, value: float) -> float:
        """The nearest value of the format."""
        return value if self.bits == 64 else float(struct.unpack("<f", struct.pack("<f", value))[0])

    def pair(self, value: tuple[float, float], spare: int = 0) -> tuple[float, float]:
        """A constant, given as a double and the rest, as two of this format; the last `spare` bits of the first are 0,
        so that its product with a short integer is exact."""
        size = self.fraction - spare
        scale = 2.0 ** (size - _exponent(value[0]))
        high = round(value[0] * scale) / scale
        return high, self.rounded((value[0] - high) + value[1])


def _exponent(value: float) -> int:
    return math.frexp(value)[1] - 1


FLOAT = Format("float", 23, 8, 32)
DOUBLE = Format("double", 52, 11, 64)


@dataclass(frozen=True, slots=True)
class Code:
    """The instruction builder of math functions, for vectors of `lanes` values of one format.

    `fused`: the machine has fused multiply-add. `libm`: it has libm. `scaling`: the widths in bits of the vectors that
    it multiplies by powers of two in one instruction (AVX-512's vscalef). `native`: the lanes of a register.
    """

    fn: FunctionText
    lanes: int
    format: Format
    fused: bool
    libm: bool = True
    scaling: tuple[int, ...] = ()
    native: int = 1

    def number(self, value: float) -> Num:
        return Num(self, self.fn.splat(floating(self.format.type, self.format.rounded(value)), self.lanes))

    def integer(self, value: int) -> Int:
        """An integer as wide as the format."""
        return Int(self, self.fn.splat(integer(f"i{self.format.bits}", value), self.lanes))

    def lift(self, value: Number) -> Num:
        return value if isinstance(value, Num) else self.number(value)

    def intrinsic(self, name: str, *args: Num) -> Num:
        """An LLVM intrinsic of one float type."""
        type = args[0].v.type
        short = f"f{self.format.bits}"
        suffix = short if self.lanes == 1 else f"v{self.lanes}{short}"
        callee = self.fn.module.declare(f"llvm.{name}.{suffix}", type, [type] * len(args))
        return Num(self, self.fn.call(type, callee, [a.v for a in args]))

    def fma(self, a: Number, b: Number, c: Number) -> Num:
        """a * b + c, rounded once where the CPU does that by itself."""
        a, b, c = self.lift(a), self.lift(b), self.lift(c)
        return self.intrinsic("fma", a, b, c) if self.fused else a * b + c

    def product(self, a: Num, b: Num) -> tuple[Num, Num]:
        """a * b exactly, as the rounded product and its error; without fused multiply-add by Dekker's halves."""
        high = a * b
        if self.fused:
            return high, self.intrinsic("fma", a, b, -high)
        (a1, a2), (b1, b2) = _halves(a), _halves(b)
        return high, a2 * b2 - (((high - a1 * b1) - a2 * b1) - a1 * b2)

    def polynomial(self, x: Num, coefficients: Sequence[float]) -> Num:
        """By Horner's rule, lowest coefficient first."""
        accumulator = self.number(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            accumulator = self.fma(accumulator, x, c)
        return accumulator

    def choose(self, condition: Mask, true: Number, false: Number) -> Num:
        return Num(self, self.fn.select(condition.v, self.lift(true).v, self.lift(false).v))

    def choose_int(self, condition: Mask, true: Int, false: Int) -> Int:
        return Int(self, self.fn.select(condition.v, true.v, false.v))

    def power_of_two(self, exponent: Int) -> Num:
        """2**exponent of a normal number."""
        return ((exponent + self.format.bias) << self.format.fraction).as_number()

    def round(self, x: Num, scale: Number) -> tuple[Num, Int]:
        """The integer nearest x * scale, as a float and as an integer; |x * scale| below 2**(fraction - 2)."""
        magic = 1.5 * 2.0**self.format.fraction
        moved = self.fma(x, scale, magic)
        return moved - magic, moved.as_bits() - self.format.bits_of(magic)

    def other(self, format: Format) -> Code:
        """The same place with values of another format."""
        native = self.native * self.format.bits // format.bits
        return Code(self.fn, self.lanes, format, self.fused, self.libm, self.scaling, native)


@dataclass(frozen=True, slots=True)
class Num:
    """A float in each lane."""

    code: Code
    v: Value

    def _op(self, op: str, lhs: Number, rhs: Number) -> Num:
        return Num(self.code, self.code.fn.binary(op, self.code.lift(lhs).v, self.code.lift(rhs).v))

    def _compare(self, predicate: str, other: Number) -> Mask:
        return Mask(self.code, self.code.fn.fcmp(predicate, self.v, self.code.lift(other).v))

    def __add__(self, other: Number) -> Num:
        return self._op("fadd", self, other)

    def __radd__(self, other: float) -> Num:
        return self._op("fadd", other, self)

    def __sub__(self, other: Number) -> Num:
        return self._op("fsub", self, other)

    def __rsub__(self, other: float) -> Num:
        return self._op("fsub", other, self)

    def __mul__(self, other: Number) -> Num:
        return self._op("fmul", self, other)

    def __rmul__(self, other: float) -> Num:
        return self._op("fmul", other, self)

    def __truediv__(self, other: Number) -> Num:
        return self._op("fdiv", self, other)

    def __rtruediv__(self, other: float) -> Num:
        return self._op("fdiv", other, self)

    def __neg__(self) -> Num:
        return Num(self.code, self.code.fn.op(self.v.type, f"fneg {self.v}"))

    def __abs__(self) -> Num:
        return self.code.intrinsic("fabs", self)

    def __lt__(self, other: Number) -> Mask:
        return self._compare("olt", other)

    def __le__(self, other: Number) -> Mask:
        return self._compare("ole", other)

    def __gt__(self, other: Number) -> Mask:
        return self._compare("ogt", other)

    def __ge__(self, other: Number) -> Mask:
        return self._compare("oge", other)

    def equals(self, other: Number) -> Mask:
        return self._compare("oeq", other)

    def unordered(self, other: Number) -> Mask:
        """Either is NaN."""
        return self._compare("uno", other)

    def clamp(self, low: float, high: float) -> Num:
        """Between bounds; NaN stays."""
        c = self.code
        above = c.choose(self < low, low, self)
        return c.choose(above > high, high, above)

    def sign_of(self, other: Num) -> Num:
        """This magnitude with the sign of another."""
        return self.code.intrinsic("copysign", self, other)

    def as_bits(self) -> Int:
        code = self.code
        return Int(code, code.fn.convert("bitcast", self.v, vector(f"i{code.format.bits}", code.lanes)))

    def to(self, code: Code) -> Num:
        """The nearest value of another format."""
        op = "fpext" if code.format.bits > self.code.format.bits else "fptrunc"
        return Num(code, code.fn.convert(op, self.v, vector(code.format.type, code.lanes)))

    def scaled(self, n: Num, exponent: Int) -> Num:
        """self * 2**exponent, exponents up to twice the format's; rounded once, to a denormal too. `n` is the exponent
        as a float."""
        code, format = self.code, self.code.format
        if code.lanes * format.bits in code.scaling:
            return Num(code, _vscalef(code, self.v, n.v, code.lanes))
        if code.scaling and code.lanes * format.bits in (2 * max(code.scaling), 4 * max(code.scaling)):
            return Num(code, _by_halves(code, self.v, n.v))
        if code.scaling:  # LLVM's own: in scalar code, which it may turn into vectors
            type, short = self.v.type, vector("i32", code.lanes)
            lanes = "" if code.lanes == 1 else f"v{code.lanes}"
            symbol = f"llvm.ldexp.{lanes}f{format.bits}.{lanes}i32"
            power = exponent.v if format.bits == 32 else code.fn.convert("trunc", exponent.v, short)
            callee = code.fn.module.declare(symbol, type, [type, short])
            return Num(code, code.fn.call(type, callee, [self.v, power]))
        biased = exponent + 2 * format.bias
        half = biased.lshr(1)
        first, second = ((part << format.fraction).as_number() for part in (half, biased - half))
        return self * first * second


@dataclass(frozen=True, slots=True)
class Int:
    """An integer in each lane, as wide as the floats."""

    code: Code
    v: Value

    def _op(self, op: str, other: Integer) -> Int:
        rhs = other if isinstance(other, Int) else self.code.integer(other)
        return Int(self.code, self.code.fn.binary(op, self.v, rhs.v))

    def __add__(self, other: Integer) -> Int:
        return self._op("add", other)

    def __sub__(self, other: Integer) -> Int:
        return self._op("sub", other)

    def __and__(self, other: Integer) -> Int:
        return self._op("and", other)

    def __or__(self, other: Integer) -> Int:
        return self._op("or", other)

    def __xor__(self, other: Integer) -> Int:
        return self._op("xor", other)

    def __lshift__(self, other: int) -> Int:
        return self._op("shl", other)

    def lshr(self, other: int) -> Int:
        """Zeros move in from the left; CPUs lack the other shift for 64 bits."""
        return self._op("lshr", other)

    def equals(self, other: Integer) -> Mask:
        return self._compare("eq", other)

    def __lt__(self, other: Integer) -> Mask:
        return self._compare("slt", other)

    def below(self, other: Integer) -> Mask:
        """Less as unsigned numbers."""
        return self._compare("ult", other)

    def _compare(self, predicate: str, other: Integer) -> Mask:
        rhs = other if isinstance(other, Int) else self.code.integer(other)
        return Mask(self.code, self.code.fn.icmp(predicate, self.v, rhs.v))

    def joined(self, name: str) -> Int:
        """The least (`umin`) or greatest (`umax`) of the registers that a value takes, lane by lane."""
        fn, value, lanes, native = self.code.fn, self.v, self.code.lanes, self.code.native
        while lanes > native:
            half = max(lanes // 2, native)  # what both parts have in common is looked at twice
            type = vector(f"i{self.code.format.bits}", half)
            parts = []
            for start in (0, lanes - half):
                mask = ", ".join(f"i32 {start + lane}" for lane in range(half))
                parts.append(fn.op(type, f"shufflevector {value}, {value.type} poison, <{half} x i32> <{mask}>"))
            suffix = f"i{self.code.format.bits}" if half == 1 else f"v{half}i{self.code.format.bits}"
            value = fn.call(type, fn.module.declare(f"llvm.{name}.{suffix}", type, [type, type]), parts)
            lanes = half
        return Int(replace(self.code, lanes=lanes), value)

    def as_number(self) -> Num:
        """The float with these bits."""
        code = self.code
        return Num(code, code.fn.convert("bitcast", self.v, vector(code.format.type, code.lanes)))

    def count(self, offset: Number) -> Num:
        """The value, not negative and short, plus 2**fraction - offset; CPUs lack the conversion for 64 bits."""
        format = self.code.format
        return (self | format.bits_of(2.0**format.fraction)).as_number() - offset

    def to(self, code: Code) -> Int:
        """The low bits."""
        return Int(code, code.fn.convert("trunc", self.v, vector(f"i{code.format.bits}", code.lanes)))


@dataclass(frozen=True, slots=True)
class Mask:
    """A condition in each lane."""

    code: Code
    v: Value

    def __and__(self, other: Mask) -> Mask:
        return Mask(self.code, self.code.fn.binary("and", self.v, other.v))

    def __or__(self, other: Mask) -> Mask:
        return Mask(self.code, self.code.fn.binary("or", self.v, other.v))

    def __xor__(self, other: Mask) -> Mask:
        return Mask(self.code, self.code.fn.binary("xor", self.v, other.v))

    def __invert__(self) -> Mask:
        return Mask(
            self.code, self.code.fn.binary("xor", self.v, self.code.fn.splat(Value("i1", "true"), self.code.lanes))
        )


Number: TypeAlias = Num | float
Integer: TypeAlias = Int | int


def _vscalef(code: Code, x: Value, n: Value, lanes: int) -> Value:
    """AVX-512's x * 2**floor(n) on a whole register."""
    size = lanes * code.format.bits
    rounding = [integer("i32", 4)] if size == 512 else []  # MXCSR's
    given = [x, n, x, integer(f"i{max(lanes, 8)}", -1), *rounding]
    symbol = f"llvm.x86.avx512.mask.scalef.{'ps' if code.format.bits == 32 else 'pd'}.{size}"
    return code.fn.call(x.type, code.fn.module.declare(symbol, x.type, [g.type for g in given]), given)


def _by_halves(code: Code, x: Value, n: Value) -> Value:
    """The same on two registers or four."""
    if code.lanes * code.format.bits <= max(code.scaling):
        return _vscalef(code, x, n, code.lanes)
    fn, half = code.fn, code.lanes // 2
    parts = []
    for start in (0, half):
        mask = ", ".join(f"i32 {start + lane}" for lane in range(half))
        low = vector(code.format.type, half)
        cut = [fn.op(low, f"shufflevector {v}, {v.type} poison, <{half} x i32> <{mask}>") for v in (x, n)]
        parts.append(_by_halves(replace(code, lanes=half), cut[0], cut[1]))
    mask = ", ".join(f"i32 {lane}" for lane in range(code.lanes))
    return fn.op(x.type, f"shufflevector {parts[0]}, {parts[1]}, <{code.lanes} x i32> <{mask}>")


def _halves(x: Num) -> tuple[Num, Num]:
    """x as a sum of two numbers of half its bits."""
    moved = x * (2.0 ** ((x.code.format.fraction + 2) // 2) + 1.0)
    high = moved - (moved - x)
    return high, x - high


def sum_of(a: Num, b: Num) -> tuple[Num, Num]:
    """a + b exactly, as the rounded sum and its error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def ordered_sum(a: Num, b: Num) -> tuple[Num, Num]:
    """The same where a is 0 or no smaller than b (Dekker)."""
    total = a + b
    return total, b - (total - a)
