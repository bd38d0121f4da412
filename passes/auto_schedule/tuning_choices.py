"""The choices that rules make: the options of each, best guess first, and requests that override the guesses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

UNRATED_COST = 1.1  # the expected relative time of an option that a rule has no estimate for


@dataclass(frozen=True)
class TuningChoice:
    """A choice that a rule made: `taken` is one of its `options`, of which the first is the best guess.

    `costs` are the expected times of the whole kernel with each option, relative to the first. `about` describes the
    choice in a few words. The options of a choice depend on earlier choices of the same `group`.
    """

    name: str
    options: tuple[int, ...]
    costs: tuple[float, ...]
    taken: int
    about: str
    group: str = ""

    @property
    def cost(self) -> float:
        """The cost of the option taken."""
        return self.costs[self.options.index(self.taken)]


@dataclass(frozen=True)
class RequestedChoices:
    """A request to a rule: `choices`, by name, that replace its best guesses.

    A rule that is `named` also takes kernels that it would rather leave to the next rule.
    """

    choices: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    named: bool = False


def nearest_first(guess: int, candidates: Iterable[int]) -> list[int]:
    """Return a guess, then the candidates, nearest first."""
    return [guess, *sorted(set(candidates) - {guess}, key=lambda n: (abs(n - guess), n))]


def descending_powers_of_two(largest: int) -> list[int]:
    """Return a power of two and all smaller ones, largest first."""
    return [largest, *(descending_powers_of_two(largest // 2) if largest > 1 else [])]


def divisors(size: int, largest: int | None = None) -> list[int]:
    """Return the divisors of a size, 1 first, up to `largest`."""
    return [n for n in range(1, max(min(size, largest or size), 1) + 1) if size % n == 0]
