"""Statistics of paired samples: the median of ratios, and a distribution-free upper confidence bound of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

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
