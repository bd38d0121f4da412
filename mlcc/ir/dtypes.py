"""Element types: `DType.of("float32x4")`. Interned, so `is` and `==` agree."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(r"(float8_e4m3fn|float8_e5m2|bfloat16|float|int|uint|bool|handle|void)(\d*)(?:x(\d+))?$")
_BITS = {"int": (1, 4, 8, 16, 32, 64), "uint": (1, 4, 8, 16, 32, 64), "float": (16, 32, 64)}
_FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_FLOATS = frozenset({"float", "bfloat", *_FLOAT8})
_table: dict[str, DType] = {}


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """`kind` is one of int, uint, float, bfloat, float8_*, bool, handle, void; `bits` per lane; `lanes` >= 1."""

    kind: str
    bits: int
    lanes: int = 1

    @staticmethod
    def of(name: str | DType) -> DType:
        """Return the type of that name. Raises ValueError for another name."""
        if isinstance(name, DType):
            return name
        dtype = _table.get(name)
        if dtype is None:
            dtype = _table.setdefault(name, _parse(name))
        return dtype

    @property
    def is_int(self) -> bool:
        """True for a signed or unsigned integer (not bool)."""
        return self.kind == "int" or self.kind == "uint"

    @property
    def is_uint(self) -> bool:
        return self.kind == "uint"

    @property
    def is_float(self) -> bool:
        """True for float16/32/64, bfloat16 and 8-bit floats."""
        return self.kind in _FLOATS

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def is_handle(self) -> bool:
        return self.kind == "handle"

    @property
    def is_void(self) -> bool:
        return self.kind == "void"

    @property
    def bytes(self) -> int:
        """The bytes of one lane in memory."""
        return (self.bits + 7) // 8

    @property
    def element(self) -> DType:
        return self if self.lanes == 1 else self.with_lanes(1)

    def with_lanes(self, lanes: int) -> DType:
        return _intern(self.kind, self.bits, lanes)

    def __str__(self) -> str:
        if self.kind in ("bool", "handle", "void") or self.kind.startswith("float8"):
            base = self.kind
        else:
            base = f"{self.kind}{self.bits}"
        return base if self.lanes == 1 else f"{base}x{self.lanes}"

    def __reduce__(self) -> tuple[object, ...]:
        return DType.of, (str(self),)

    def __deepcopy__(self, memo: object) -> DType:
        return self


def _intern(kind: str, bits: int, lanes: int) -> DType:
    dtype = DType(kind, bits, lanes)
    return _table.setdefault(str(dtype), dtype)


def _parse(name: str) -> DType:
    match = _NAME.match(name)
    if match is None:
        raise ValueError(f"`{name}` is not a dtype")
    kind, digits, lanes_text = match.groups()
    lanes = int(lanes_text) if lanes_text else 1
    if lanes < 1 or lanes > 1024:
        raise ValueError(f"`{name}` is not a dtype: lanes are 1 to 1024")
    if kind == "bfloat16" or kind.startswith("float8"):
        if digits or (kind != "bfloat16" and kind not in _FLOAT8):
            raise ValueError(f"`{name}` is not a dtype")
        return _intern("bfloat", 16, lanes) if kind == "bfloat16" else _intern(kind, 8, lanes)
    if kind in ("bool", "handle", "void"):
        if digits:
            raise ValueError(f"`{name}` is not a dtype")
        return _intern(kind, {"bool": 8, "handle": 64, "void": 0}[kind], lanes)
    bits = int(digits) if digits else 32
    if bits not in _BITS[kind]:
        raise ValueError(f"`{name}` is not a dtype: {kind} has {', '.join(map(str, _BITS[kind]))} bits")
    return _intern(kind, bits, lanes)


NAMES = (
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "bfloat16", "float32", "float64", "bool", "handle"),
)  # suggested in messages

BOOL = DType.of("bool")
INT32 = DType.of("int32")
INT64 = DType.of("int64")
UINT8 = DType.of("uint8")
FLOAT32 = DType.of("float32")
FLOAT64 = DType.of("float64")
HANDLE = DType.of("handle")
VOID = DType.of("void")
