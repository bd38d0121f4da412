"""Bounds on what lowering makes of annotated loops."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Loops marked for unrolling are unrolled up to `unroll_limit` copies of their innermost statements; vectorized
    loops become vectors of up to `vector_lanes` lanes."""

    unroll_limit: int = 512
    vector_lanes: int = 64
