"""The choice of a tile, dimension by dimension, by expected time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mlcc.passes.auto_schedule.kernel import AnyKernel

MAX_SLOWDOWN = 1.6  # tiles with a larger expected time relative to the best are not offered
T = TypeVar("T")


def choose_tile(
    kernel: AnyKernel[Any], candidates: Sequence[tuple[float, T]], parts: Sequence[tuple[str, str, Callable[[T], int]]]
) -> T:
    """Choose one of some tiles, given best first, each with its expected time.

    `parts` are the dimensions that identify a tile: the name of the choice, its description, and its value. Each is
    offered as far as it is compatible with those before it.
    """
    remaining = [candidate for candidate in candidates if candidate[0] <= MAX_SLOWDOWN * candidates[0][0]]
    for name, about, value in parts:
        costs: dict[int, float] = {}
        for time, tile in remaining:  # candidates are sorted: the first with a value is its best
            costs.setdefault(value(tile), time)
        chosen = kernel.choose(name, about, costs, "tile")
        remaining = [candidate for candidate in remaining if value(candidate[1]) == chosen]
    return remaining[0][1]
