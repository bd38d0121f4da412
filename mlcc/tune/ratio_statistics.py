"""Statistics of paired samples: the median of ratios, and distribution-free confidence bounds of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 2.58  # standard deviations of a normal distribution: 99.5 % on this side


def median_ratio(ratios: Sequence[float]) -> float:
    """The median; infinity for no samples."""
    return statistics.median(ratios) if ratios else math.inf


def ratio_upper_bound(ratios: Sequence[float]) -> float:
    """The upper end of a confidence interval of the median: an order statistic, by the binomial distribution of the
    number of samples below the median. Infinity if there are too few samples."""
    count = len(ratios)
    place = math.ceil(count / 2 + CONFIDENCE * math.sqrt(count) / 2)
    return sorted(ratios)[place] if place < count else math.inf


@dataclass(frozen=True)
class Comparison:
    """How fast something is beside a baseline: the median ratio of speeds, above 1 if it is faster, and the interval
    of it at a confidence of 99 %; None for too few samples."""

    ratio: float
    interval: tuple[float, float] | None

    @property
    def verdict(self) -> str:
        """`faster` or `slower` if the interval lies on that side of 1, else `no difference`."""
        low, high = self.interval or (0.0, math.inf)
        return "faster" if low > 1 else "slower" if high < 1 else "no difference"


def compare(baseline: Sequence[float], times: Sequence[float]) -> Comparison:
    """Compare times with those of a baseline that were measured in turn with them."""
    ratios = [base / time for base, time in zip(baseline, times, strict=True)]
    high = ratio_upper_bound(ratios)
    low = -ratio_upper_bound([-ratio for ratio in ratios])
    return Comparison(median_ratio(ratios), None if math.isinf(high) else (low, high))
