"""The random engine of schedules: small, seeded, copied with the schedule.

Numbers are drawn as TVM's schedules draw them (its engine, and the distributions of libstdc++), so that one seed gives
one choice in both.
"""

from __future__ import annotations

import itertools
import os
from bisect import bisect_left
from collections.abc import Sequence

_MODULUS = 2147483647
_FACTOR = 48271


class Engine:
    """A minimal standard linear congruential engine (Park and Miller, Communications of the ACM 31:10, 1988)."""

    __slots__ = ("state",)

    def __init__(self, seed: int | None = None) -> None:
        """A negative seed, or none, is drawn from the system."""
        self.state = 1
        self.seed(seed)

    def seed(self, seed: int | None) -> None:
        if seed is None or seed < 0:
            seed = int.from_bytes(os.urandom(8), "little") % (_MODULUS - 1) + 1
        self.state = seed % _MODULUS or 1

    def copy(self) -> Engine:
        engine = Engine(1)
        engine.state = self.state
        return engine

    def next(self) -> int:
        """The next number of 1 .. 2**31 - 2."""
        self.state = self.state * _FACTOR % _MODULUS
        return self.state

    def below(self, bound: int) -> int:
        """An integer of 0 .. bound - 1; draws nothing for a bound of 1. `bound` is at most 2**31 - 2."""
        if bound == 1:
            return 0
        scale = (_MODULUS - 1) // bound
        while True:
            drawn = self.next()
            if drawn < scale * bound:
                return drawn // scale

    def uniform(self) -> float:
        """A float of [0, 1): 53 bits need two draws."""
        low, high = self.next(), self.next()
        fraction = (low + high * float(_MODULUS)) / (float(_MODULUS) * float(_MODULUS))
        return min(fraction, 1.0 - 2.0**-53)

    def pick(self, weights: Sequence[float]) -> int:
        """An index, as likely as its weight; draws nothing for a single one."""
        if len(weights) < 2:
            return 0
        total = sum(weights)
        ends = list(itertools.accumulate(w / total for w in weights))
        ends[-1] = 1.0
        return bisect_left(ends, self.uniform())

    def fork(self) -> int:
        """A seed for another engine (TVM `fork_seed`)."""
        return (self.next() * 32767) % 1999999973
