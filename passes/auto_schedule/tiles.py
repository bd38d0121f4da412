"""Register tiles of contractions: the rows, and the vectors of columns, that accumulate at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isqrt
from operator import attrgetter

from mlcc.machine.cpu_tables import CpuFacts

SUMS_IN_FLIGHT = 8  # independent sums that keep the multipliers busy: latency 4, two units; half where a sum takes both
ROW_LOAD, VECTOR_LOAD = 0.2, 0.35  # in multiplications: a broadcast element from L1; a vector of a panel from L2
TYPICAL_SIZES = (1, 8, 32, 100, 1000)  # assumed values of unknown sizes
TAIL_COST = 0.0003  # in efficiency, of each vector in the tiles for fewer rows, which all are code to compile


@dataclass(frozen=True, order=True)
class Tile:
    """`rows` times `vectors` vectors of `lanes` elements.

    A vector takes `cost` of the time of a full one, and is loaded from `lines` cache lines on average. `in_flight` sums
    keep the multipliers busy.
    """

    rows: int
    vectors: int
    lanes: int
    cost: float = 1.0
    lines: float = 1.0
    in_flight: float = SUMS_IN_FLIGHT

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def efficiency(
        self,
        m: int | None,
        n: int | None,
        heights: Sequence[int] = TYPICAL_SIZES,
        widths: Sequence[int] = TYPICAL_SIZES,
    ) -> float:
        """Return the share of the multipliers' time that computes results.

        The rest is taken by loads, and by lanes past the end. A tail runs in a smaller tile; an unknown width is padded
        to whole tiles. The efficiency of an unknown height or width is a mean over typical `heights` or `widths`.
        """
        if m == 0 or n == 0:
            return 1.0
        utilized = _mean_utilization(self.columns, widths) if n is None else 1.0
        if m is None:
            return utilized * sum(self._efficiency(height, n, True) for height in heights) / len(heights)
        return utilized * self._efficiency(m, n, False)

    def _efficiency(self, height: int, n: int | None, unknown: bool) -> float:
        """Return the efficiency for a height, and for whole tiles if the width is unknown.

        If the height is unknown to the code, the tiles of a tail are all of full width.
        """
        width = self.columns if n is None else n
        vectors = -(-width // self.lanes)
        time = 0.0
        for r, down in _tiles_along(height, self.rows):
            whole = -(-vectors // self.vectors) * self.vectors
            for v, across in _tiles_along(whole if unknown and r < self.rows else vectors, self.vectors):
                time += down * across * self._step_cost(r, v)
        return height * width / self.lanes * self.cost / time

    def _step_cost(self, rows: int, vectors: int) -> float:
        """Return the time of one step of the sums of some rows and vectors, in multiplications of full vectors."""
        sums = rows * vectors
        loads = ROW_LOAD * rows + self.cost * VECTOR_LOAD * self.lines * vectors
        return (self.cost * sums + loads) * max(1.0, self.in_flight / sums)


def typical_sizes(least: int, greatest: int | None) -> tuple[int, ...]:
    """Return sizes that stand for an unknown one with these bounds (None: any)."""
    if least <= TYPICAL_SIZES[0] and greatest is None:
        return TYPICAL_SIZES
    if greatest is None:  # with remainders that differ, by whatever tiles divide them
        return (least, 2 * least + 1, 4 * least + 3, *(n for n in TYPICAL_SIZES if n > 4 * least + 3))
    return tuple(sorted({least, isqrt(least * greatest), greatest}))


def _matches_panels(columns: int, panel: int) -> bool:
    """Return True if a tile reads whole panels, or several tiles read one whole panel."""
    return panel == 0 or columns % panel == 0 or panel % columns == 0


def _tiles_along(size: int, step: int) -> list[tuple[int, int]]:
    """Return the tiles along an axis, each with its count."""
    return [(step, size // step), *([(size % step, 1)] if size % step else [])]


def _mean_utilization(step: int, sizes: Sequence[int]) -> float:
    """Return the mean utilization of whole steps over sizes."""
    return sum(s / (-(-s // step) * step) for s in sizes) / len(sizes)


def tiles(
    facts: CpuFacts, m: int | None, n: int | None, lanes: int, spare: int | None = None, halves: bool = True,
    panel: int = 0, anywhere: bool = False, heights: Sequence[int] = TYPICAL_SIZES,
    widths: Sequence[int] = TYPICAL_SIZES,
) -> list[Tile]:  # fmt: skip
    """Return all tiles for sizes (None: unknown), best first, by their use of the multipliers.

    Tiles have vectors of `lanes`, or, if `halves` is true, of half as many where these take half the time or hold all
    columns. Among equals, full vectors come first, then fewer loads, then fewer rows. `spare`: registers for other
    values (None: an operand, and without FMA a product). `panel`: the columns of given panels (0: none); a tile reads
    whole ones, or a part of one. `anywhere`: vectors may begin anywhere in a cache line and cross it; then a tile of
    one vector, which needs a load for each multiplication, would be bound by loads. `heights` stand for an unknown `m`,
    `widths` for an unknown `n`.
    """
    registers = facts.vector_registers - ((1 if facts.fma else 2) if spare is None else spare)
    # half a vector holds all columns: never slower, and twice as fast on CPUs that split vectors
    fits_half_vector = n is not None and n * 2 <= lanes
    try_halves = halves and (facts.in_halves or fits_half_vector) and lanes > 2 and n is not None
    load_width = 0.5 if facts.in_halves else 1.0  # the fraction of a vector per load
    vector_widths = [(lanes, 1.0)] + [(lanes // 2, 0.5)] * try_halves
    candidates = [
        Tile(
            rows,
            vectors,
            width,
            cost,
            1 + anywhere * min(width / lanes, load_width) * facts.vector_bytes / facts.line_bytes,
            SUMS_IN_FLIGHT * load_width / cost,
        )
        for width, cost in vector_widths
        for vectors in range(1, max(min(registers // 2, registers if n is None else -(-n // width)), 1) + 1)
        for rows in range(1, min(registers, m or max(heights)) + 1)
        if rows * vectors + min(rows, vectors) <= registers
        and _matches_panels(vectors * width, panel)
        and (vectors > 1 or not anywhere or (n is not None and n <= width))
    ]

    def worth(tile: Tile) -> tuple[float, int, int, int]:
        tails = tile.rows * (tile.rows - 1) // 2 * tile.vectors if m is None else 0
        value = tile.efficiency(m, n, heights, widths) - TAIL_COST * tails
        return round(value, 4), tile.lanes, -(tile.rows + tile.vectors), -tile.rows

    return sorted(candidates, key=worth, reverse=True)


# the dimensions of a tile, for `choose_tile`
PARTS: tuple[tuple[str, str, Callable[[Tile], int]], ...] = (
    ("lanes", "elements of a vector", attrgetter("lanes")),
    ("vectors", "vectors of columns of a tile", attrgetter("vectors")),
    ("rows", "rows of a tile", attrgetter("rows")),
)


@functools.lru_cache(maxsize=1024)  # layers of one shape ask again and again
def best_tile(
    facts: CpuFacts, m: int | None, n: int | None, lanes: int, spare: int | None = None, halves: bool = True,
    panel: int = 0,
) -> Tile:  # fmt: skip
    """Return the first of `tiles`."""
    return tiles(facts, m, n, lanes, spare, halves, panel)[0]
