"""The distribution of rows over threads, for the rule `gpu-rows`.

A row of contiguous elements is cut into vectors of `vector` elements, which are dealt round-robin to `threads` threads,
so that the accesses of a warp are coalesced. A block has `rows` rows. Rows that are `kept` stay in the registers of
their threads, at most ROW_REGISTER_BYTES in each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.visit import substitute
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.lowering.match_buffer import compact_strides

VECTOR_BYTES = 16  # the widest access of a thread
SECTOR = 32  # bytes per memory transaction
ROW_REGISTER_BYTES = 128  # most bytes of a row per thread in registers
BLOCK_THREADS = 128  # threads per block of several rows
UNKNOWN_LENGTH_THREADS = 128  # threads per row of unknown length
MIN_VECTORS_PER_THREAD = 2  # least vectors per thread before more threads share a row


@dataclass(frozen=True, slots=True)
class RowDistribution:
    """The length of rows (None if unknown) and their distribution over threads."""

    length: int | None
    vector: int
    threads: int
    rows: int
    kept: bool

    @property
    def even(self) -> bool:
        """True if all threads have the same number of elements."""
        return self.length is not None and self.length % (self.vector * self.threads) == 0

    def index_map(self, buffer: tir.Buffer) -> tir.IndexMap | None:
        """Map a buffer's indices to (..., row, turn, thread, vector lane); None if it does not consist of such rows."""
        assert self.length is not None
        dtype = buffer.shape[0].dtype
        index_vars = tuple(tir.Var(f"i{n}", dtype) for n in range(len(buffer.shape)))
        first, size = len(index_vars), 1
        while size % self.length and first:  # the fewest dimensions that hold whole rows
            first -= 1
            extent = tir.const_int(buffer.shape[first])
            if extent is None:
                return None
            size *= extent
        if size % self.length or not size:
            return None
        simple = Analyzer()
        flat: tir.Expr = c.const(0, dtype)
        for index, dim in zip(index_vars[first:], buffer.shape[first:], strict=True):
            simple.bind(index, tir.Range(c.const(0, dtype), dim))
            flat = c.add(c.mul(flat, dim), index)
        position_in_row = c.floormod(flat, self.length)
        turn, thread = self.vector * self.threads, c.floormod(c.floordiv(position_in_row, self.vector), self.threads)
        parts = (c.floordiv(position_in_row, turn), thread, c.floormod(position_in_row, self.vector))
        outer = (*index_vars[:first], *([] if size == self.length else [c.floordiv(flat, self.length)]))
        return tir.IndexMap(index_vars, (*outer, *map(simple.simplify, parts)))


def distribute_rows(
    kernel: GpuKernel, count: int | None, length: int | None, vector: int, size: int, arrays: int
) -> RowDistribution:
    """Distribute `count` rows of `length` elements over threads.

    An access moves `vector` elements of `size` bytes; `arrays` arrays are kept in registers at a time.
    """
    facts = kernel.facts
    if length is None:
        return RowDistribution(None, 1, min(UNKNOWN_LENGTH_THREADS, facts.max_threads), 1, False)
    vector_count = -(-length // vector)
    max_vectors = max(ROW_REGISTER_BYTES // max(arrays - 1, 1) // (max(size, 4) * vector), 1)  # vectors per thread
    min_threads = min(max(SECTOR // (vector * size), 1), facts.warp)  # lanes that fill a sector
    threads = 1
    while (
        threads < facts.warp
        and threads < vector_count
        and (threads < min_threads or 2 * MIN_VECTORS_PER_THREAD * threads <= vector_count)
    ):
        threads *= 2
    while threads < facts.max_threads and threads * max_vectors < vector_count:
        threads *= 2
    enough_threads = facts.sm_count * BLOCK_THREADS
    while (
        count is not None
        and count * threads < enough_threads
        and 2 * threads <= vector_count
        and threads < facts.max_threads
    ):
        threads *= 2
    alternatives = [
        n for n in (threads // 2, 2 * threads, 4 * threads) if 1 < n <= min(facts.max_threads, vector_count)
    ]
    threads = kernel.choose("threads", "threads per row", [threads, *alternatives])
    rows = max(BLOCK_THREADS // threads, 1)
    while (
        rows > 1
        and rows * threads > facts.warp
        and count is not None
        and (count < rows * facts.sm_count or count % rows)
    ):
        rows //= 2
    return RowDistribution(length, vector, threads, rows, threads * max_vectors >= vector_count)


def fitting_vector(stage: Stage, inner: Sequence[int], widest: int) -> int:
    """Return how many elements an access along a row moves: at most 16 bytes of the widest type, aligned.

    The number suits all accesses that move along the row with a known stride.
    """
    along = [n for n in inner if stage.extents[n] != 1]
    if not along or any(stage.extents[n] is None for n in along):
        return 1
    vector = max(VECTOR_BYTES // widest, 1)
    for access in stage.accesses:
        run, steps = _contiguous_run(stage, access, along)
        if stage.step(access, along[-1]) is None:
            continue
        offset = _offset(stage, access)
        while vector > 1 and (run % vector or not all(_is_multiple_of(vector, s) for s in (*steps, offset))):
            vector //= 2
    return vector


def _contiguous_run(stage: Stage, access: Access, along: Sequence[int]) -> tuple[int, list[tir.Expr | None]]:
    """Return the length of an access's run of constant stride in a row, and the strides of the other loops."""
    position, *others = reversed(along)
    run, step = stage.extents[position] or 1, _constant_stride(stage, access, position)
    while others and step is not None:
        outer = _constant_stride(stage, access, others[0])
        if outer is None or outer != step * run:
            break
        run *= stage.extents[others.pop(0)] or 1
    if step == 0:
        return run, []  # the access is invariant along the row
    rest = [n for n in range(len(stage.loops)) if n not in along or n in others]
    return run, [stage.step(access, n) for n in rest if stage.extents[n] != 1]


def _constant_stride(stage: Stage, access: Access, position: int) -> int | None:
    step = stage.step(access, position)
    return None if step is None else tir.const_int(step)


def is_row(stage: Stage, access: Access, inner: Sequence[int], length: int) -> bool:
    """Return True if an access covers a whole contiguous row, starting at a multiple of `length`."""
    along = [n for n in inner if stage.extents[n] != 1]
    if access.buffer.strides or not along or stage.extents[along[-1]] is None:
        return False
    run, steps = _contiguous_run(stage, access, along)
    return (
        run == length
        and _constant_stride(stage, access, along[-1]) == 1
        and all(_is_multiple_of(length, s) for s in (*steps, _offset(stage, access)))
    )


def _is_multiple_of(number: int, value: tir.Expr | None) -> bool:
    return value is not None and tir.const_int(Analyzer().simplify(c.floormod(value, number))) == 0


def _offset(stage: Stage, access: Access) -> tir.Expr | None:
    """Return the linear offset of the first element that an access touches."""
    start = {loop.var: loop.min for loop in stage.loops}
    strides = access.buffer.strides or compact_strides(access.buffer.shape)
    total: tir.Expr = c.const(0, strides[0].dtype if strides else "int64")
    for index, stride in zip(access.indices, strides, strict=True):
        total = c.add(total, c.mul(c.cast(stride.dtype, substitute(index, start)), stride))
    return Analyzer().simplify(total)
