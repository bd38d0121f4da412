"""Strips of rows of a convolution whose data each task copies for itself, with their padding and layout.

A copy that all threads share costs more with several of them: a line that one core writes and another one reads is
fetched from the other core's cache, and fetched again to be written in the next call. A copy for a strip of rows stays
with the core that reads it. Neighbouring strips both copy the rows between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mlcc.errors import CompileError
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.nests import unroll_inner
from mlcc.passes.lowering.loop_partition import ALONE, PARTITION
from mlcc.passes.schedule.handles import BlockRV, LoopRV

COPY_COST = 4.0  # of a vector, in multiplications of vectors
SHARED_COST = 30.0  # the same, of a line that another core wrote, or has read before it is written
MAX_SERIAL_COST = 1.03  # relative time with one thread
NEARLY_EQUAL = 1.02  # relative time up to which more strips are taken, for the balance between threads


@dataclass(frozen=True)
class Strips:
    """Strips of `rows` results along loop `axis`, whose windows move along a `dimension` of the data.

    `lead` are the loops outside, which do not share data either.
    """

    axis: int
    rows: int
    dimension: int
    lead: tuple[int, ...]

    @property
    def depth(self) -> int:
        """The number of loops down to that over strips."""
        return len(self.lead) + 1


def choose_strips(kernel: Kernel, product: Contraction, data: Operand, weights: Operand) -> Strips | None:
    """Choose the strips with the least expected time on all cores; None if a copy for all of them is better."""
    facts, stage = kernel.facts, product.stage
    axis = _row_axis(product, data, weights)
    shape = [tir.const_int(n) for n in data.buffer.shape]
    weight_shape = [tir.const_int(n) for n in weights.buffer.shape]
    if axis is None or stage.iterations is None or None in shape or None in weight_shape or facts.cores == 1:
        return None
    if prod(weight_shape) * weights.buffer.dtype.bytes > facts.l2_bytes // 2:  # type: ignore[arg-type]
        return None  # they would be read again for each strip
    height = stage.extents[axis]
    dimension = next(d for d, window in data.windows.items() if axis in window)
    window = data.windows[dimension]
    lead = tuple(p for p in product.outer if p != axis and data.has(p))
    images = stage.times(lead)
    assert height is not None and images is not None
    overlap = 1 + sum(step * ((stage.extents[k] or 1) - 1) for k, step in window.items() if k != axis)
    lanes = facts.lanes(data.buffer.dtype.bytes)
    outside = prod(stage.extents[p] or 1 for p in lead)
    row_vectors = prod(n or 1 for d, n in enumerate(shape) if d != dimension) / lanes / outside
    copied, computed = row_vectors * COPY_COST, stage.iterations / (height * images) / lanes

    def strip_time(rows: int) -> float:
        return ((rows - 1) * window[axis] + overlap) * copied + rows * computed

    def times(rows: int) -> tuple[float, float]:
        """Return the time on one core, and on all."""
        count = -(-height // rows) * images
        last = height - (-(-height // rows) - 1) * rows
        serial = images * ((-(-height // rows) - 1) * strip_time(rows) + strip_time(last))
        return serial, max(-(-count // facts.cores) * strip_time(rows), serial / facts.cores)

    whole = images * strip_time(height)
    lines = images * ((height - 1) * window[axis] + overlap) * row_vectors
    shared = (whole + lines * SHARED_COST * (facts.cores - 1) / facts.cores) / facts.cores
    by_rows = {rows: times(rows) for rows in range(1, height + 1)}
    fitting = {rows: of_all for rows, (of_one, of_all) in by_rows.items() if of_one <= whole * MAX_SERIAL_COST}
    best = min(fitting.values())
    rows = min(n for n, time in fitting.items() if time <= best * NEARLY_EQUAL)
    if best >= shared:
        rows = 0
    rows = kernel.choose(
        "strips", "rows of a strip whose data are copied by its task; 0: by all", [rows, 0 if rows else height]
    )
    return Strips(axis, rows, dimension, lead) if rows else None


def _row_axis(product: Contraction, data: Operand, weights: Operand) -> int | None:
    """Return the outermost axis that moves windows over the data, other than those of a register tile."""
    for p in product.outer:
        windows = [window for window in data.windows.values() if p in window]
        if len(windows) == 1 and not weights.has(p) and (product.extent(p) or 0) > 1:
            return p
    return None


def place_copy(kernel: Kernel, copy: BlockRV, strips: Strips, loop: LoopRV, lanes: int, phases: bool) -> bool:
    """Compute a copy of data under the `loop` over strips; return False if that is refused.

    `phases`: columns that a stride separates are in parts of their own.
    """
    try:
        kernel.sch.compute_at(copy, loop, preserve_unit_loops=True)
    except CompileError:  # not provably complete where it is read
        return False
    loops = kernel.loops(copy)[strips.depth :]
    kernel.sch.annotate(loops[strips.dimension], PARTITION, ALONE)  # the last strip may have fewer rows
    vectors, lane = kernel.sch.split(loops[-1], [None, lanes])
    kernel.sch.vectorize(lane)
    if phases:
        unroll_inner(kernel, [*loops[:-1], vectors])
    return True
