"""The choices that rules offer: what each may be, best guess first, and what somebody wants instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

OTHER = 1.1  # how long a rule expects the whole to take with an option that it has no figure for, relative to the first


@dataclass(frozen=True)
class Offer:
    """A choice that a rule made: `taken` is one of its `options`, of which the first is the best guess.

    `costs` are the expected times of the whole with each option, relative to the first. `about` describes the choice in
    a few words. The options of a choice depend on earlier choices of the same `group`.
    """

    name: str
    options: tuple[int, ...]
    costs: tuple[float, ...]
    taken: int
    about: str
    group: str = ""

    @property
    def cost(self) -> float:
        """The cost of what was taken."""
        return self.costs[self.options.index(self.taken)]


@dataclass(frozen=True)
class Wanted:
    """A request to a rule: `choices`, by name, that replace its best guesses.

    A rule that is `named` also takes kernels that it would rather leave to the next.
    """

    choices: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    named: bool = False


def around(guess: int, others: Iterable[int]) -> list[int]:
    """A guess, then the others, nearest first."""
    return [guess, *sorted(set(others) - {guess}, key=lambda n: (abs(n - guess), n))]


def halves(most: int) -> list[int]:
    """A power of two and all smaller ones, largest first."""
    return [most, *(halves(most // 2) if most > 1 else [])]


def divisors(size: int, most: int | None = None) -> list[int]:
    """Return the divisors of a size, 1 first, up to `most`."""
    return [n for n in range(1, max(min(size, most or size), 1) + 1) if size % n == 0]
