"""The choice of a register tile, dimension by dimension, with what the analysis expects of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.tiles import Tile

WORST = 1.6  # times as long as with the best tile: what is expected to take longer is not offered
T = TypeVar("T")


def choose_tile(kernel: Kernel, found: Sequence[tuple[T, Tile, float]], name_of: Callable[[T], int]) -> tuple[T, Tile]:
    """One of some tiles, given best first, each with the axis that its rows are of and its efficiency."""
    best = found[0][2]
    left = [one for one in found if one[2] * WORST >= best] or [found[0]]
    parts: tuple[tuple[str, str, Callable[[tuple[T, Tile, float]], int]], ...] = (
        ("row_axis", "the loop that a tile has its rows along", lambda one: name_of(one[0])),
        ("lanes", "elements of a vector", lambda one: one[1].lanes),
        ("vectors", "vectors of columns of a tile", lambda one: one[1].vectors),
        ("rows", "rows of a tile", lambda one: one[1].rows),
    )
    for name, about, value in parts:
        costs: dict[int, float] = {}
        for one in left:  # the first with a value is the best with it
            costs.setdefault(value(one), best / one[2])
        taken = kernel.choose(name, about, costs, "tile")
        left = [one for one in left if value(one) == taken]
        best = left[0][2]
    return left[0][:2]
