"""Bounds on what lowering makes of annotated loops, and what it may count on."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.dot_products import Pair
from mlcc.ir import tir
from mlcc.ir.node import walk


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Loops marked for unrolling are unrolled up to `unroll_limit` copies of their innermost statements; vectorized
    loops become vectors of up to `vector_lanes` lanes, and of no more than four vectors of `vector_bytes` (0: unknown).

    `mask_bits` are the sizes of elements that the target loads and stores under a mask of lanes; with `cheap_masks` at
    no more than the cost of doing it without. `edge_limit` bounds the statements (as unrolled) of code that is copied
    to be free of conditions; 0 copies none. `reassociate`: vectorized reductions of floats need not ask for it.
    `dots` are the dtypes of operands of which the CPU adds up products of neighbours (`mlcc.dot_products`).
    """

    unroll_limit: int = 512
    vector_lanes: int = 64
    vector_bytes: int = 0
    mask_bits: frozenset[int] = frozenset({8, 16, 32, 64})
    cheap_masks: bool = True
    edge_limit: int = 512
    reassociate: bool = False
    dots: frozenset[Pair] = frozenset()

    def lanes_for(self, body: tuple[tir.Stmt, ...]) -> int:
        """The most lanes for a loop with that body: four vectors of its largest elements."""
        if not self.vector_bytes:
            return self.vector_lanes
        accesses = (n for stmt in body for n in walk(stmt) if isinstance(n, (tir.BufferLoad, tir.BufferStore)))
        largest = max((a.buffer.dtype.element.bytes for a in accesses), default=1)
        return max(2, min(self.vector_lanes, 4 * self.vector_bytes // largest))
