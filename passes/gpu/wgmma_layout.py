"""Define the operands of `wgmma.mma_async`: shapes and types, accumulators in registers, shared memory descriptors.

An accumulator is distributed over the registers of 128 threads; matrices in shared memory have 64-bit descriptors
(PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions").

Element (i, j) of an accumulator of 64 rows is in warp `i // 16`, which holds its 16 rows as the accumulator of
`mma.sync` is held (`mma_layout`), one piece of 8 columns after the other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import find
from mlcc.ir.tir import Expr
from mlcc.passes.gpu.mma_layout import DTYPES, TYPES, Mma

M = 64  # rows of A and the accumulator
THREADS = 128  # of a warpgroup: four warps, the first of which has a number that is a multiple of 4

# operand type: how many go into one instruction along the sum, and types of the accumulator
_TYPES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "f16": (16, ("f16", "f32")), "bf16": (16, ("f32",)), "tf32": (8, ("f32",)), "s8": (32, ("s32",)),
    "u8": (32, ("s32",)), "e4m3": (32, ("f16", "f32")), "e5m2": (32, ("f16", "f32")),
}  # fmt: skip
_INTEGER_KINDS = ("s8", "u8")
_SHAPE = re.compile(r"m64n(\d+)k(\d+)$")
MODES = {0: 0, 128: 1, 64: 2, 32: 3}  # width of a swizzle in bytes: bits 62 and 63 of a descriptor


@dataclass(frozen=True, slots=True)
class Wgmma:
    """One `wgmma.mma_async`: A (64 x k) times B (k x n), added to the accumulator. Types are PTX's names."""

    n: int
    k: int
    a: str
    b: str
    accumulator: str

    @staticmethod
    def of(shape: str, a: str, b: str, accumulator: str) -> Wgmma | None:
        """Return the instruction of that shape (`m64n128k16`) and these types (PTX's or TVM's names); None if there is
        none.
        """
        a, b, accumulator = (TYPES.get(t, t) for t in (a, b, accumulator))
        sizes = _SHAPE.match(shape)
        known = _TYPES.get(a)
        if sizes is None or known is None or accumulator not in known[1]:
            return None
        n, k = int(sizes[1]), int(sizes[2])
        if not (a == b or {a, b} in ({"s8", "u8"}, {"e4m3", "e5m2"})) or k != known[0]:
            return None
        if n % 8 or not 8 <= n <= 256 or (a in _INTEGER_KINDS and n > 24 and n % 16):
            return None
        return Wgmma(n, k, a, b, accumulator)

    @property
    def name(self) -> str:
        return f"m{M}n{self.n}k{self.k}"

    @property
    def may_transpose(self) -> bool:
        """True if operands in shared memory may be transposed: contiguous along m or n instead of k."""
        return self.a in ("f16", "bf16")

    @property
    def sums(self) -> int:
        """Return the number of accumulator elements that a thread holds."""
        return self.n // 2

    @property
    def a_count(self) -> int:
        """Return the number of elements of A that a thread holds if A is in registers."""
        return M * self.k // THREADS

    def place_a(self, row: Expr, k: Expr) -> tuple[Expr, Expr]:
        """Return the thread of the warpgroup that holds an element of A in registers, and the element's index there."""
        tile = Mma(16, 8, self.k, self.a, self.b, self.accumulator, 90)
        lane, number = tile.place_a(c.floormod(row, 16), k)
        return c.add(c.mul(c.floordiv(row, 16), 32), lane), number

    def place_c(self, row: Expr, column: Expr) -> tuple[Expr, Expr]:
        """Return the thread of the warpgroup that holds an accumulator element, and the element's index there."""
        tile = Mma(16, 8, self.k, self.a, self.b, self.accumulator, 90)
        lane, number = tile.place_c(c.floormod(row, 16), c.floormod(column, 8))
        return c.add(c.mul(c.floordiv(row, 16), 32), lane), c.add(c.mul(c.floordiv(column, 8), 4), number)


def dtype_of(kind: str) -> DType:
    """Return the dtype in a program of PTX's type `kind`."""
    return DType.of(DTYPES[kind])


PRODUCTS = frozenset({tir.Op("tir.ptx_wgmma_ss"), tir.Op("tir.ptx_wgmma_rs")})


def is_product(node: object) -> bool:
    """Return True if a node is a call of a warpgroup product."""
    return isinstance(node, tir.Call) and node.op in PRODUCTS


def products(body: tuple[tir.Stmt, ...]) -> list[tir.Call]:
    """Return all calls of warpgroup products in code."""
    return [n for s in body for n in find(s, tir.Call) if is_product(n)]


def accumulators(body: tuple[tir.Stmt, ...]) -> dict[tir.Var, tir.Buffer]:
    """Return the buffers that warpgroup products accumulate into, by data variable."""
    named = {a for n in products(body) for a in n.args[8:9] if isinstance(a, tir.Var)}
    buffers = (n.buffer for s in body for n in find(s, tir.AllocBuffer))
    return {b.data: b for b in buffers if b.data in named}
