"""Literals as text: strings, numbers that read back to the same bits, and the values of attributes."""

from __future__ import annotations

import math

from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import DType

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def quote(text: str) -> str:
    """A string literal in double quotes, on one line, whatever is in it."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _escape(c)) for c in text) + '"'


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def integer(value: int) -> str:
    """An integer literal; hexadecimal where Python refuses to write so many decimal digits."""
    return str(value) if value.bit_length() < 10000 else hex(value)


def float_text(value: float, dtype: DType) -> str:
    """The shortest literal that rounds to `value` in `dtype`; `"inf"`, `"-inf"` and `"nan"` in quotes."""
    if not math.isfinite(value):
        return '"nan"' if value != value else '"inf"' if value > 0 else '"-inf"'
    if dtype.bits < 64:
        for digits in range(1, 10):
            text = f"{value:.{digits}g}"
            if round_float(float(text), dtype) == value and not _beyond(text, value, dtype):
                return _with_point(text)
    return repr(value)


def float_imm_text(value: float, written: float | None, dtype: DType) -> str:
    """The literal of a `FloatImm`: the double that TVM's constant holds, which is what was written, else the value."""
    return float_text(value, dtype) if not math.isfinite(value) else repr(value if written is None else written)


def _beyond(text: str, value: float, dtype: DType) -> bool:
    """Return True for a value above the greatest finite one that rounds to it: TVM does not accept its literal."""
    return abs(float(text)) > abs(value) and math.isinf(round_float(2 * value, dtype))


def _with_point(text: str) -> str:
    """As `repr` writes it: `1e-05` and `1.5e+20`, but `16777216.0` rather than `1.6777216e+07`."""
    plain = repr(float(text))
    return plain if len(plain) <= len(text) + 2 else text


def plain_float(value: float) -> str:
    """The literal of a Python float that is not an expression."""
    if math.isfinite(value):
        return repr(value)
    return f"float({float_text(value, DType.of('float64'))})"
