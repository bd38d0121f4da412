"""The random engine of schedules: small, seeded, copied with the schedule."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

_MODULUS = 2147483647
_FACTOR = 48271


class Engine:
    """A minimal standard linear congruential engine (Park and Miller); TVM's schedules use the same."""

    __slots__ = ("state",)

    def __init__(self, seed: int | None = None) -> None:
        """A negative seed, or none, is drawn from the system."""
        self.state = 1
        self.seed(seed)

    def seed(self, seed: int | None) -> None:
        if seed is None or seed < 0:
            seed = secrets.randbelow(_MODULUS - 1) + 1
        self.state = seed % _MODULUS or 1

    def copy(self) -> Engine:
        made = Engine(1)
        made.state = self.state
        return made

    def next(self) -> int:
        """The next number of 1 .. 2**31 - 2."""
        self.state = self.state * _FACTOR % _MODULUS
        return self.state

    def below(self, bound: int) -> int:
        """An integer of 0 .. bound - 1, without bias. `bound` is at most 2**31 - 2."""
        span = _MODULUS - 1
        limit = span - span % bound
        while True:
            drawn = self.next() - 1
            if drawn < limit:
                return drawn % bound

    def uniform(self) -> float:
        """A float of [0, 1)."""
        return (self.next() - 1) / (_MODULUS - 1)

    def pick(self, weights: Sequence[float]) -> int:
        """An index, as likely as its weight."""
        at = self.uniform() * sum(weights)
        for index, weight in enumerate(weights):
            at -= weight
            if at < 0:
                return index
        return len(weights) - 1

    def shuffle(self, items: list[int]) -> None:
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]

    def fork(self) -> int:
        """A seed for another engine (TVM `fork_seed`)."""
        return (self.next() * 32767) % 1999999973
