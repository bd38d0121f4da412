"""Print constants as arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mlcc.ir.tensor_data import TensorData
from mlcc.targets.c.dtypes import memory_type

_LINE = 116  # characters
_MANY = 4096  # elements from which on they are written quickly rather than in the shortest form


def constant_text(name: str, data: TensorData) -> str:
    """Return the definition of a constant: floats in hexadecimal, narrow floats as their bits."""
    type = memory_type(data.dtype)
    bits = np.ascontiguousarray(data.array).reshape(-1)
    shape = ", ".join(map(str, data.shape))
    head = f"/* {data.dtype}({shape}) */\nstatic const {type} {name}[{max(bits.size, 1)}] = {{\n"
    return head + "\n".join(_wrapped(_elements(data, bits) or ["0"])) + "\n};"


def _elements(data: TensorData, flat: np.ndarray) -> list[str]:
    dtype = data.dtype
    if dtype.is_float and dtype.bits >= 32:
        if dtype.bits == 32 and flat.size > _MANY and np.isfinite(flat).all():
            return [value.hex().replace("0000000p", "p") + "f" for value in flat.tolist()]
        return [_hexadecimal(value, "f" if dtype.bits == 32 else "") for value in flat.tolist()]
    if dtype.is_float:
        return [hex(bits) for bits in flat.view(f"uint{dtype.bits}").tolist()]
    if dtype.bits < 64:
        suffix = "u" if dtype.is_uint and dtype.bits == 32 else ""
        least = -(1 << 31)
        return ["INT32_MIN" if v == least else f"{int(v)}{suffix}" for v in flat.tolist()]
    if dtype.is_uint:
        return [f"UINT64_C({v})" for v in flat.tolist()]
    return [
        ("INT64_MIN" if v == -(1 << 63) else f"INT64_C({v})") if abs(v) >= 1 << 31 else str(v) for v in flat.tolist()
    ]


def _hexadecimal(value: float, suffix: str) -> str:
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "-INFINITY"
    if value == int(value) and abs(value) < 1e6 and (value or str(value)[0] != "-"):
        return f"{value}{suffix}"
    mantissa, _, exponent = value.hex().partition("p")
    return f"{mantissa.rstrip('0').rstrip('.')}p{int(exponent)}{suffix}"


def _wrapped(elements: list[str]) -> Iterator[str]:
    if len(elements) > _MANY:
        count = max(_LINE // (max(map(len, elements)) + 2), 1)
        for start in range(0, len(elements), count):
            yield f"    {', '.join(elements[start : start + count])}{',' * (start + count < len(elements))}"
        return
    line: list[str] = []
    width = 0
    for element in elements:
        if width + len(element) + 2 > _LINE:
            yield f"    {', '.join(line)},"
            line, width = [], 0
        line.append(element)
        width += len(element) + 2
    yield f"    {', '.join(line)}"
