"""Bounds on what lowering makes of annotated loops, and what it may count on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Loops marked for unrolling are unrolled up to `unroll_limit` copies of their innermost statements; vectorized
    loops become vectors of up to `vector_lanes` lanes.

    `mask_bits` are the sizes of elements that the target loads and stores under a mask of lanes; with `cheap_masks` at
    no more than the cost of doing it without. `edge_limit` bounds the statements (as unrolled) of code that is copied
    to be free of conditions; 0 copies none.
    """

    unroll_limit: int = 512
    vector_lanes: int = 64
    mask_bits: frozenset[int] = frozenset({8, 16, 32, 64})
    cheap_masks: bool = True
    edge_limit: int = 512
