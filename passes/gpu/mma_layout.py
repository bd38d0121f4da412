"""Define how the operands of `mma.sync` are distributed over the lanes of a warp, for shapes with rows in groups of 8.

Source: PTX ISA, "Matrix Fragments for mma".

A lane's elements are packed into words of 32 bits, `pack` to a word. Of A, words go down rows by eight first, then
along k; of B, along k; of the accumulator a lane holds two columns of every eighth row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr

# names of types in `ptx_mma`: TVM's, and PTX's name
TYPES: Mapping[str, str] = {
    "fp16": "f16", "float16": "f16", "bf16": "bf16", "bfloat16": "bf16", "tf32": "tf32", "fp32": "f32",
    "float32": "f32", "fp64": "f64", "float64": "f64", "int8": "s8", "uint8": "u8", "int32": "s32", "e4m3": "e4m3",
    "float8_e4m3fn": "e4m3", "e5m2": "e5m2", "float8_e5m2": "e5m2",
}  # fmt: skip
DTYPES: Mapping[str, str] = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32", "f64": "float64", "s8": "int8",
    "u8": "uint8", "s32": "int32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
}  # fmt: skip
# shape: operand types with those of the accumulator, and the lowest architecture (whose PTX ISA has it by default)
_SHAPES: Mapping[str, Mapping[str, tuple[tuple[str, ...], int]]] = {
    "m16n8k4": {"tf32": (("f32",), 80)},
    "m16n8k8": {"f16": (("f16", "f32"), 80), "bf16": (("f32",), 80), "tf32": (("f32",), 80)},
    "m16n8k16": {"f16": (("f16", "f32"), 80), "bf16": (("f32",), 80), "s8": (("s32",), 80), "u8": (("s32",), 80)},
    "m16n8k32": {
        "s8": (("s32",), 80), "u8": (("s32",), 80), "e4m3": (("f32",), 100), "e5m2": (("f32",), 100),
    },
    "m8n8k16": {"s8": (("s32",), 80), "u8": (("s32",), 80)},
    "m8n8k4": {"f64": (("f64",), 80)},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mma:
    """One `mma.sync`: A (m x k) times B (k x n), added to the accumulator (m x n). Types are PTX's names."""

    m: int
    n: int
    k: int
    a: str
    b: str
    accumulator: str
    arch: int

    @staticmethod
    def of(shape: str, a: str, b: str, accumulator: str) -> Mma | None:
        """Return the instruction of this shape and these types (PTX's or TVM's names); None if there is none."""
        a, b, accumulator = (TYPES.get(t, t) for t in (a, b, accumulator))
        known = _SHAPES.get(shape, {}).get(a)
        fits = a == b or {a, b} in ({"s8", "u8"}, {"e4m3", "e5m2"})
        if known is None or not fits or accumulator not in known[0]:
            return None
        m, n, k = (int(part) for part in shape[1:].replace("n", " ").replace("k", " ").split())
        return Mma(m, n, k, a, b, accumulator, known[1])

    @property
    def name(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def pack(self) -> int:
        """Return the number of elements of A and B in a 32-bit word; 1 for 64-bit elements."""
        return max(1, 32 // DType.of(DTYPES[self.a]).bits)

    @property
    def counts(self) -> tuple[int, int, int]:
        """Return the numbers of elements of A, B and the accumulator that a lane holds."""
        return self.m * self.k // 32, self.k * self.n // 32, self.m * self.n // 32

    def place_a(self, row: Expr, k: Expr) -> tuple[Expr, Expr]:
        """Return the lane that holds an element of A, and its index there."""
        pack, rows = self.pack, self.m // 8
        lane = c.add(c.mul(c.floormod(row, 8), 4), c.floordiv(c.floormod(k, 4 * pack), pack))
        word = c.add(c.floordiv(row, 8), c.mul(c.floordiv(k, 4 * pack), rows))
        return lane, c.add(c.mul(word, pack), c.floormod(k, pack))

    def place_b(self, k: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Return the lane that holds an element of B, and its index there."""
        pack = self.pack
        lane = c.add(c.mul(column, 4), c.floordiv(c.floormod(k, 4 * pack), pack))
        return lane, c.add(c.mul(c.floordiv(k, 4 * pack), pack), c.floormod(k, pack))

    def place_c(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Return the lane that holds an element of the accumulator, and its index there."""
        lane = c.add(c.mul(c.floormod(row, 8), 4), c.floordiv(column, 2))
        return lane, c.add(c.mul(c.floordiv(row, 8), 2), c.floormod(column, 2))
