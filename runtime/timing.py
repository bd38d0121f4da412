"""Timing functions: inside native code, or by the clock of a device."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from mlcc.errors import CallError, error
from mlcc.runtime.function import Function


class Timing(NamedTuple):
    """Seconds per call: one number for each repeat."""

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    @property
    def mean(self) -> float:
        return math.fsum(self.times) / len(self.times)

    @property
    def min(self) -> float:
        return min(self.times)

    @property
    def max(self) -> float:
        return max(self.times)

    def quantile(self, q: float) -> float:
        """The time that a fraction `q` of the repeats stayed below, interpolated."""
        ordered = sorted(self.times)
        at = q * (len(ordered) - 1)
        low = int(at)
        high = min(low + 1, len(ordered) - 1)
        return ordered[low] + (ordered[high] - ordered[low]) * (at - low)

    def __str__(self) -> str:
        return f"median {self.median * 1e6:.2f} us of {len(self.times)} repeats"


class Timer:
    """Calls a function `number` times in a row, `repeat` times over, after one call to warm up.

    With `min_seconds`, `number` grows until one repeat takes as long.
    """

    def __init__(self, function: Function, number: int, repeat: int, min_seconds: float) -> None:
        if number < 1 or repeat < 1:
            raise CallError(error("E0817", f"number and repeat are at least 1, got {number} and {repeat}"))
        self.function = function
        self.number = number
        self.repeat = repeat
        self.min_seconds = min_seconds

    def __call__(self, *args: Any) -> Timing:
        """Time calls with these arguments."""
        call = self.function.bind(*args)
        call()
        number = self.number
        spent = call.timed(number)
        while spent < self.min_seconds:
            number = max(number + 1, int(number * min(100.0, 1.2 * self.min_seconds / max(spent, 1e-9))))
            spent = call.timed(number)
        return Timing(tuple(call.timed(number) / number for _ in range(self.repeat)))
