"""The C functions that printed code may call: arithmetic that C leaves undefined, conversions, bits.

A helper is named by what it does and the dtypes: `add_i32`, `floordiv_i64`, `f16_from_f32`. `Helpers` collects those
that a file uses, and prints them in an order in which each stands before its uses.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mlcc.ir.dtypes import DType
from mlcc.targets.c.dtypes import float_literal, integer_literal, integer_range, memory_type, register_type, suffix

_NAMES = "int8 uint8 int16 uint16 int32 uint32 int64 uint64 float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2"
_DTYPES = {suffix(DType.of(name)): DType.of(name) for name in _NAMES.split()}


class Helpers:
    """The helper functions that a file uses."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def use(self, name: str) -> str:
        """Record the use of a helper function and return its name."""
        if name not in self._texts:
            text = _text(name)
            for other in _CALLED.findall(text.partition("\n")[2] or text):
                if other != name and is_helper(other):
                    self.use(other)
            self._texts[name] = text
        return name

    def add(self, name: str, text: str) -> str:
        """Record a function with its text, after the helpers that it calls."""
        for other in _CALLED.findall(text):
            if other != name and is_helper(other):
                self.use(other)
        self._texts.setdefault(name, text.strip())
        return name

    def needed(self, code: str) -> list[str]:
        """Return the texts of the functions that code uses, also through one another: C compilers warn of others."""
        words = set(_WORD.findall(code))
        needed: dict[str, str] = {}
        for name, text in reversed(self._texts.items()):
            if name in words:
                needed[name] = text
                words.update(_WORD.findall(text))
        return [*reversed(needed.values())]


_WORD = re.compile(r"[A-Za-z_]\w*")
_CALLED = re.compile(r"\b([a-z]\w*)\(")


def is_helper(name: str) -> bool:
    """Return True for the name of a helper function."""
    return name in _FIXED or _split(name) is not None


def _split(name: str) -> tuple[str, DType] | None:
    """Return the template and the dtype of a helper's name; None for other names."""
    base, _, end = name.rpartition("_")
    dtype = _DTYPES.get(end)
    return (base, dtype) if dtype is not None and base in _TEMPLATES else None


def _text(name: str) -> str:
    """Return the definition of a helper function."""
    if name in _FIXED:
        return _FIXED[name].strip()
    split = _split(name)
    assert split is not None, name
    base, dtype = split
    return _TEMPLATES[base](dtype).strip()


# ---------------------------------------------------------------- integers


def _wide_unsigned(dtype: DType) -> str:
    """Return the unsigned type that an integer is computed in without overflow being undefined."""
    return "uint64_t" if dtype.bits == 64 else "uint32_t"


def _binary(name: str, dtype: DType, *lines: str) -> str:
    type = register_type(dtype)
    body = "\n".join(f"    {line}" for line in lines)
    return f"static inline {type} {name}_{suffix(dtype)}({type} a, {type} b) {{\n{body}\n}}"


def _wrapping(name: str, symbol: str) -> Callable[[DType], str]:
    def text(dtype: DType) -> str:
        wide = _wide_unsigned(dtype)
        return _binary(name, dtype, f"return ({register_type(dtype)})(({wide})a {symbol} ({wide})b);")

    return text


def _negated(dtype: DType) -> str:
    return f"({register_type(dtype)})(0 - ({_wide_unsigned(dtype)})a)"


def _quotient(name: str, rounds_down: bool) -> Callable[[DType], str]:
    def text(dtype: DType) -> str:
        type = register_type(dtype)
        if dtype.is_uint:
            return _binary(name, dtype, f"return ({type})(b == 0 ? 0 : a / b);")
        lines = ["if (b == 0) return 0;", f"if (b == -1) return {_negated(dtype)};"]
        if rounds_down:
            lines.append("if (a % b != 0 && (a % b < 0) != (b < 0)) return " + f"({type})(a / b - 1);")
        return _binary(name, dtype, *lines, f"return ({type})(a / b);")

    return text


def _remainder(name: str, rounds_down: bool) -> Callable[[DType], str]:
    def text(dtype: DType) -> str:
        type = register_type(dtype)
        if dtype.is_uint:
            return _binary(name, dtype, f"return ({type})(b == 0 ? 0 : a % b);")
        lines = ["if (b == 0 || b == -1) return 0;"]
        if rounds_down:
            lines.append(f"if (a % b != 0 && (a % b < 0) != (b < 0)) return ({type})(a % b + b);")
        return _binary(name, dtype, *lines, f"return ({type})(a % b);")

    return text


def _shift_left(dtype: DType) -> str:
    wide, type = _wide_unsigned(dtype), register_type(dtype)
    outside = f"b >= {dtype.bits}" if dtype.is_uint else f"b < 0 || b >= {dtype.bits}"
    return _binary("shift_left", dtype, f"return ({type})({outside} ? 0 : ({wide})a << b);")


def _shift_right(dtype: DType) -> str:
    type = register_type(dtype)
    if dtype.is_uint:
        return _binary("shift_right", dtype, f"return ({type})(b >= {dtype.bits} ? 0 : a >> b);")
    most = dtype.bits - 1
    return _binary("shift_right", dtype, f"return ({type})(a >> (b < 0 || b > {most} ? {most} : b));")


def _choice(name: str, symbol: str) -> Callable[[DType], str]:
    """min and max: NaN if either is NaN, and the first of equal ones."""

    def text(dtype: DType) -> str:
        condition = f"a {symbol}= b || a != a" if dtype.is_float else f"a {symbol} b"
        return _binary(name, dtype, f"return {condition} ? a : b;")

    return text


# ---------------------------------------------------------------- floats


def _floor_mod(dtype: DType) -> str:
    f = "" if dtype.bits == 64 else "f"
    return _binary(
        "floormod", dtype, f"const {register_type(dtype)} r = fmod{f}(a, b);",
        f"if (r == 0) return copysign{f}(0, b);", "return (r < 0) != (b < 0) ? r + b : r;",
    )  # fmt: skip


def _floor(dtype: DType) -> str:
    return _binary("floordiv", dtype, f"return floor{'' if dtype.bits == 64 else 'f'}(a / b);")


def _by_kind(of_ints: Callable[[DType], str], of_floats: Callable[[DType], str]) -> Callable[[DType], str]:
    return lambda dtype: of_floats(dtype) if dtype.is_float else of_ints(dtype)


def _from_float(source: DType) -> Callable[[DType], str]:
    """Conversion of a float to an integer: toward zero, saturating, NaN to 0."""

    def text(dtype: DType) -> str:
        least, greatest = integer_range(dtype)
        type, x = register_type(dtype), register_type(source)
        low, high = (float_literal(float(v), source) for v in (least, greatest + 1))
        ends = [integer_literal(v, dtype) for v in (least, greatest)]
        return (
            f"static inline {type} from_{suffix(source)}_{suffix(dtype)}({x} x) {{\n"
            f"    if (x != x) return 0;\n"
            f"    return x <= {low} ? {ends[0]} : x >= {high} ? {ends[1]} : ({type})x;\n}}"
        )

    return text


def _bits(dtype: DType) -> str:
    unsigned, type = f"uint{dtype.bits}_t", memory_type(dtype)
    return (
        f"static inline {unsigned} bits_of_{suffix(dtype)}({type} x) {{\n"
        f"    {unsigned} bits;\n    memcpy(&bits, &x, sizeof bits);\n    return bits;\n}}"
    )


def _load(dtype: DType) -> str:
    type = memory_type(dtype)
    return (
        f"/* An element of memory that is also accessed as another type. */\n"
        f"static inline {type} load_{suffix(dtype)}(const {type} *from) {{\n"
        f"    {type} x;\n    memcpy(&x, from, sizeof x);\n    return x;\n}}"
    )


def _store(dtype: DType) -> str:
    type = memory_type(dtype)
    return f"static inline void store_{suffix(dtype)}({type} *to, {type} x) {{\n    memcpy(to, &x, sizeof x);\n}}"


def _of_bits(dtype: DType) -> str:
    unsigned, type = f"uint{dtype.bits}_t", memory_type(dtype)
    return (
        f"static inline {type} of_bits_{suffix(dtype)}({unsigned} bits) {{\n"
        f"    {type} x;\n    memcpy(&x, &bits, sizeof x);\n    return x;\n}}"
    )


# mantissa bits, the least exponent of normal numbers, the greatest one, whether there are infinities
_FORMATS = {"f16": (10, -14, 15, True), "f8e5m2": (2, -14, 15, True), "f8e4m3": (3, -6, 8, False)}


def _pack(dtype: DType) -> str:
    """float to the nearest number of a narrower format, ties to even."""
    name, type = suffix(dtype), memory_type(dtype)
    head = f"/* The bits of the {dtype} that is nearest to x. */\nstatic inline {type} pack_{name}(float x) {{\n"
    head += "    const uint32_t bits = bits_of_f32(x), size = bits & 0x7fffffffu;\n"
    if name == "bf16":
        return head + (
            "    if (size > 0x7f800000u) return (uint16_t)(bits >> 31 << 15 | 0x7fc0u);\n"
            "    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);\n}"
        )
    mantissa, least, most, has_infinity = _FORMATS[name]
    shift, bias = 23 - mantissa, 1 - least
    top = (1 << dtype.bits - 1) - 1
    infinity = top >> mantissa << mantissa if has_infinity else top
    nan = infinity | 1 << mantissa - 1 if has_infinity else top
    largest = (most + bias << mantissa) + (1 << mantissa) - (1 if has_infinity else 2)
    head += f"    const uint32_t sign = bits >> 31 << {dtype.bits - 1};\n"
    head += f"    if (size > 0x7f800000u) return ({type})(sign | {nan:#x}u);\n"
    scale, half = float_literal(2.0 ** (mantissa - least), DType.of("float32")), "0.5f"
    return head + (
        f"    if (size < {127 + least << 23:#x}u) {{ /* below the normal numbers */\n"
        f"        const float scaled = of_bits_f32(size) * {scale};\n"
        f"        uint32_t whole = (uint32_t)scaled;\n"
        f"        const float rest = scaled - (float)whole;\n"
        f"        whole += rest > {half} || (rest == {half} && (whole & 1u) != 0u) ? 1u : 0u;\n"
        f"        return ({type})(sign | whole);\n    }}\n"
        f"    const uint32_t rounded = (size + {(1 << shift - 1) - 1:#x}u + (size >> {shift} & 1u)) >> {shift};\n"
        f"    const uint32_t packed = rounded - {127 - bias << mantissa:#x}u;\n"
        f"    return ({type})(sign | (packed > {largest:#x}u ? {infinity:#x}u : packed));\n}}"
    )


def _unpack(dtype: DType) -> str:
    name, type = suffix(dtype), memory_type(dtype)
    head = f"static inline float unpack_{name}({type} x) {{\n"
    if name == "bf16":
        return head + "    return of_bits_f32((uint32_t)x << 16);\n}"
    mantissa, least, _, has_infinity = _FORMATS[name]
    top = (1 << dtype.bits - 1) - 1
    scale = float_literal(2.0 ** (127 - (1 - least)), DType.of("float32"))
    special = top >> mantissa << mantissa if has_infinity else top
    value = f"size << {23 - mantissa} | 0x7f800000u" if has_infinity else "0x7fc00000u"
    return head + (
        f"    const uint32_t sign = (uint32_t)x >> {dtype.bits - 1} << 31, size = (uint32_t)x & {top:#x}u;\n"
        f"    if (size >= {special:#x}u) return of_bits_f32(sign | ({value}));\n"
        f"    return of_bits_f32(sign | bits_of_f32(of_bits_f32(size << {23 - mantissa}) * {scale}));\n}}"
    )


def _round(dtype: DType) -> str:
    name = suffix(dtype)
    return f"static inline float round_{name}(float x) {{\n    return unpack_{name}(pack_{name}(x));\n}}"


# ---------------------------------------------------------------- tables

_TEMPLATES: dict[str, Callable[[DType], str]] = {
    "add": _wrapping("add", "+"), "sub": _wrapping("sub", "-"), "mul": _wrapping("mul", "*"),
    "div": _quotient("div", False), "mod": _remainder("mod", False),
    "floordiv": _by_kind(_quotient("floordiv", True), _floor),
    "floormod": _by_kind(_remainder("floormod", True), _floor_mod),
    "shift_left": _shift_left, "shift_right": _shift_right, "min": _choice("min", "<"), "max": _choice("max", ">"),
    "from_f32": _from_float(DType.of("float32")), "from_f64": _from_float(DType.of("float64")),
    "bits_of": _bits, "of_bits": _of_bits, "load": _load, "store": _store, "pack": _pack, "unpack": _unpack,
    "round": _round,
}  # fmt: skip

_FIXED: dict[str, str] = {
    "odd_from_f64": """
/* x as a float with a sticky last bit: rounding that to a narrower format rounds x once. */
static inline float odd_from_f64(double x) {
    const float near = (float)x;
    const uint32_t bits = bits_of_f32(near);
    if ((double)near == x || x != x) return near;
    return of_bits_f32((fabs((double)near) > fabs(x) ? bits - 1u : bits) | 1u);
}""",
    "popcount": """
static inline int32_t popcount(uint64_t x) {
    int32_t count = 0;
    for (; x != 0; x &= x - 1) ++count;
    return count;
}""",
    "count_leading_zeros": """
static inline int32_t count_leading_zeros(uint64_t x, int32_t bits) {
    for (; x != 0; x >>= 1) --bits;
    return bits;
}""",
    "q_multiply_shift": """
/* x * y * 2**(s - q), halves up; x is shifted left by a positive s first. */
static inline int32_t q_multiply_shift(int64_t x, int64_t y, int64_t q, int64_t s) {
    const int64_t left = s > 0 ? s : 0, right = q + (s > 0 ? 0 : -s);
    const uint64_t product = ((uint64_t)x << left) * (uint64_t)y;
    const uint64_t half = right > 0 ? UINT64_C(1) << (right - 1) : 0;
    return (int32_t)((int64_t)(product + half) >> right);
}""",
    "exponent": """
/* An exponent as ldexp takes it: beyond these bounds the result is the same. */
static inline int exponent(int64_t n) {
    return n < -100000 ? -100000 : n > 100000 ? 100000 : (int)n;
}""",
    "place_from_end": """
static inline int64_t place_from_end(int64_t index, int64_t extent) {
    return index < 0 ? index + extent : index;
}""",
    "trip_count": """
/* How often a loop over `extent` runs in steps of `step`. */
static inline int64_t trip_count(int64_t extent, int64_t step) {
    if (step < 0) return extent < 0 ? (extent + 1) / step + 1 : 0;
    return extent > 0 && step > 0 ? (extent - 1) / step + 1 : 0;
}""",
}
