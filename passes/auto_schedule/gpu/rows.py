"""Kernels that reduce each row: softmax, norms, means, products of a matrix and a vector.

A row is shared by some lanes of a warp, by a warp or by a block, depending on its length; they combine their partial
results. A row that fits into the registers of its threads is read once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import prod

from mlcc.ir import tir
from mlcc.passes.auto_schedule.gpu.nests import has_known_combiner, stores_only
from mlcc.passes.auto_schedule.gpu.row_distribution import RowDistribution, distribute_rows, fitting_vector, is_row
from mlcc.passes.auto_schedule.inlining import inline_cheap, inline_reshapes, try_inline
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

SHORT = 32  # rows up to this length must be shown not to overlap


def rows(kernel: GpuKernel) -> str:
    """Run all stages of a row one after another in one block; see the module.

    Intermediate rows stay in registers, or in shared memory if they are long.
    """
    if not any(stage.reduced for stage in kernel.stages()):
        not_applicable("no block reduces")  # before steps that later rules repeat
    inline_reshapes(kernel)
    inline_cheap(kernel)
    stages = kernel.stages()
    axes = _shared_row_axes(kernel, stages)
    distribution = _choose_distribution(kernel, stages, axes)
    if distribution.kept and not all(_fits_registers(kernel, s, axes, distribution) for s in stages[:-1]):
        distribution = replace(distribution, kept=False)
    if not distribution.kept:
        distribution = replace(distribution, threads=max(distribution.threads, kernel.facts.warp), rows=1)
        for block in kernel.blocks()[:-1]:
            if not kernel.stage(block).reduced:
                try_inline(kernel, block)  # recomputing is cheaper than a round trip through memory
    reduced = sum(bool(s.reduced) for s in stages)
    _schedule(kernel, axes, distribution)
    kernel.say(_describe(distribution))
    return f"{reduced} reductions along rows; {distribution.threads} threads per row"


def _describe(share: RowDistribution) -> str:
    where = "a row stays in registers" if share.kept else "rows are read by each stage"
    return f"{share.rows} rows in a block, {share.vector} elements at a time; {where}"


def _schedule(kernel: GpuKernel, axes: int, distribution: RowDistribution) -> None:
    sch, blocks = kernel.sch, kernel.blocks()
    copies = _cache_rows(kernel, axes, distribution) if distribution.kept else []
    *producers, last = blocks
    register_blocks = [block for block in producers if _set_scope(kernel, block, axes, distribution)]
    loops = kernel.loops(last)
    row = kernel.fused(loops[: kernel.stage(last).nonunit_loops[axes - 1] + 1])
    if distribution.rows > 1:
        row, row_in_block = sch.split(row, [None, distribution.rows])
        sch.bind(row, "blockIdx.x")
        sch.bind(row_in_block, "threadIdx.y")
    else:
        row_in_block = row
        sch.bind(row, "blockIdx.x")
    for block in (*reversed(producers), *copies):
        sch.compute_at(block, row_in_block)
    for block in (*copies, *register_blocks):
        written = kernel.stage(block).block.writes[0].buffer
        mapping = distribution.index_map(written)
        if mapping is not None:
            sch.transform_layout(block, ("write", 0), mapping, assume_injective_transform=True)
    depth = 2 if distribution.rows > 1 else 1
    for block in (*copies, *blocks):
        bind_row(kernel, block, distribution, depth, block in copies)


def _cache_rows(kernel: GpuKernel, axes: int, distribution: RowDistribution) -> list[BlockRV]:
    """Copy rows that a stage reduces, or that several stages read, to registers."""
    assert distribution.length is not None
    readers: dict[tir.Buffer, list[BlockRV]] = {}
    reduced: set[tir.Buffer] = set()
    not_rows: set[tir.Buffer] = set()
    for block in kernel.blocks():
        stage = kernel.stage(block)
        for access in stage.accesses:
            if access.stored or access.buffer not in kernel.func.buffers:
                continue
            if not _is_own_row(stage, access, axes, distribution):
                not_rows.add(access.buffer)
                continue
            reader_blocks = readers.setdefault(access.buffer, [])
            if block not in reader_blocks:
                reader_blocks.append(block)
            if stage.reduced:
                reduced.add(access.buffer)
    copies = []
    for buffer, reader_blocks in readers.items():
        if buffer in not_rows or (buffer not in reduced and len(reader_blocks) < 2):
            continue
        copies.append(
            kernel.sch.cache_read(
                reader_blocks[0], read_index(kernel, reader_blocks[0], buffer), "local", reader_blocks
            )
        )
    return copies


def _set_scope(kernel: GpuKernel, block: BlockRV, axes: int, distribution: RowDistribution) -> bool:
    """Set the memory scope of a stage's results; return True if these are rows in registers.

    Rows that are not kept in registers go to shared memory, or stay in global memory if they are too large.
    """
    stage = kernel.stage(block)
    inner = _row_loops(stage, axes)
    is_row = bool(inner) and not stage.reduced
    if is_row and not distribution.kept:
        size = stage.times(inner)
        max_bytes = kernel.facts.shared_static // (2 * len(kernel.stages()))
        if size is None or size * stage.element_bytes > max_bytes:
            return False
    for number in range(len(stage.block.writes)):
        kernel.sch.set_scope(block, number, "shared" if is_row and not distribution.kept else "local")
    return is_row and distribution.kept


def _fits_registers(kernel: GpuKernel, stage: Stage, axes: int, distribution: RowDistribution) -> bool:
    """Return True if a stage's results can stay in registers: each thread reads only elements that it wrote."""
    if stage.reduced or not _row_loops(stage, axes):
        return True
    if len(stage.stores) != 1 or distribution.length is None or distribution.index_map(stage.stores[0].buffer) is None:
        return False
    buffer = stage.stores[0].buffer
    return all(_is_own_row(s, a, axes, distribution) for s in kernel.stages() for a in s.accesses if a.buffer is buffer)


def _is_own_row(stage: Stage, access: Access, axes: int, distribution: RowDistribution) -> bool:
    """Return True if an access is to a row whose elements are dealt to the same threads as in other stages.

    A stage that visits a row several times deals out the elements of all rounds in one sequence: a thread gets the same
    ones in each round only if the row length is a multiple of the threads.
    """
    assert distribution.length is not None
    inner = _row_loops(stage, axes)
    evenly = distribution.vector == 1 and distribution.length % distribution.threads == 0
    return is_row(stage, access, inner, distribution.length) and (evenly or stage.times(inner) == distribution.length)


def bind_row(
    kernel: GpuKernel, block: BlockRV, distribution: RowDistribution, outer: int, copies: bool = False
) -> None:
    """Bind the loops of a stage within a row, below `outer` outer loops, to the threads that share the row."""
    sch, stage = kernel.sch, kernel.stage(block)
    loops = kernel.loops(block)
    inner = [n for n in (stage.reduced or range(outer, len(loops))) if stage.extents[n] != 1]
    if not inner:
        if distribution.threads > 1 and not all(region.buffer.scope == "local" for region in stage.block.writes):
            _, single = sch.split(sch.add_unit_loop(block), [None, distribution.threads])
            sch.bind(single, "threadIdx.x")  # run by the first thread
        return
    along = kernel.fused([loops[n] for n in inner])
    serial, thread, lane = _split_row(kernel, along, distribution, stage.times(inner) == distribution.length)
    if thread is not None:
        sch.bind(thread, "threadIdx.x")
    if lane is not None:
        (sch.unroll if stage.reduced else sch.vectorize)(lane)
    if distribution.kept and (copies or stage.reduced):
        sch.unroll(serial)


def _split_row(
    kernel: GpuKernel, along: LoopRV, distribution: RowDistribution, is_full_row: bool
) -> tuple[LoopRV, LoopRV | None, LoopRV | None]:
    """Split a loop over a row; return the serial loop, and those over threads and lanes (None where absent)."""
    sch, vector = kernel.sch, distribution.vector if is_full_row else 1
    lane = thread = None
    if vector > 1 and distribution.threads > 1 and distribution.even:
        serial, thread, lane = sch.split(along, [None, distribution.threads, vector])
        return serial, thread, lane
    if vector > 1:
        along, lane = sch.split(along, [None, vector])
    if distribution.threads > 1:
        along, thread = sch.split(along, [None, distribution.threads])
    return along, thread, lane


def _row_loops(stage: Stage, axes: int) -> list[int]:
    """Return the positions of the loops within a row."""
    return list(stage.reduced) or stage.nonunit_loops[axes:]


def _choose_distribution(kernel: GpuKernel, stages: list[Stage], axes: int) -> RowDistribution:
    """Choose how rows are distributed over threads; the length of rows is None if unknown or not uniform."""
    lengths = {s.times(s.reduced) for s in stages if s.reduced}
    length = lengths.pop() if len(lengths) == 1 else None
    row_stages = [s for s in stages if s.times(_row_loops(s, axes)) == length]
    parameters = kernel.func.buffers
    sizes = [
        max(a.buffer.dtype.bits // 8, 1)
        for s in row_stages
        for a in s.accesses
        if a.buffer in parameters and s.loops[_row_loops(s, axes)[-1]].var in a.variables
    ]
    widest = max(sizes, default=4)
    vector = min((fitting_vector(s, _row_loops(s, axes), widest) for s in row_stages), default=1)
    last = stages[-1]
    row_positions = last.nonunit_loops[:axes]
    count = last.times(row_positions)
    arrays = 1 + sum(not s.reduced for s in row_stages if s is not stages[-1])
    distribution = distribute_rows(kernel, count, length, vector, widest, arrays)
    known_rows = prod(takewhile(bool, (last.extents[n] or 0 for n in reversed(row_positions))))
    if (
        count is None and len(row_positions) > 1 and known_rows % distribution.rows
    ):  # a fused loop could not be split again
        distribution = replace(distribution, rows=1, threads=max(distribution.threads, kernel.facts.warp))
    return distribution


def _shared_row_axes(kernel: GpuKernel, stages: list[Stage]) -> int:
    """Return the number of outer loops that all stages share, not counting loops of extent 1.

    Raise RuleNotApplicable if stages do not run over the same rows.
    """
    if any(kernel.is_output(s) for s in stages[:-1]):
        not_applicable("there are several outputs")
    count = min(sum(n in s.spatial for n in s.nonunit_loops) for s in stages if s.reduced)
    if count == 0:
        not_applicable("there is only one row")
    first = [stages[-1].loops[n] for n in stages[-1].nonunit_loops[:count]]
    for stage in stages:
        name = f"block `{stage.block.name}`"
        if not stores_only(stage):
            not_applicable(f"{name} does more than store expressions")
        long = stage.nonunit_loops
        row_loops = [stage.loops[n] for n in long[:count]]
        if not len(row_loops) == len(first) == count or not all(map(stage.same_extent, row_loops, first)):
            not_applicable(f"{name} runs over other rows")
        inner = _row_loops(stage, count)
        if any(n not in long[:count] for n in long if n not in inner):
            not_applicable(f"{name} reduces only a part of its rows")
        if stage.reduced:
            _check_contiguous_rows(stage, inner)
            if not has_known_combiner(stage):
                not_applicable(f"the combiner of {name} is unknown")
    return count


def _check_contiguous_rows(stage: Stage, inner: list[int]) -> None:
    """Raise RuleNotApplicable unless rows are contiguous; short rows must not overlap, as windows do."""
    along = [n for n in inner if stage.extents[n] != 1]
    name = f"block `{stage.block.name}`"
    if along and not all(step in (0, 1) for step in stage.steps_by(along[-1])):
        not_applicable(f"{name} does not read contiguously along its rows")
    length = stage.times(inner)
    if length is not None and length <= SHORT:
        reads = [
            a for a in stage.accesses if not a.stored and not a.variables.isdisjoint(stage.loops[n].var for n in along)
        ]
        if length < 2 or not any(is_row(stage, a, inner, length) for a in reads):
            not_applicable(f"rows of {length} elements are reduced by one thread each")


def reduction_nest(kernel: GpuKernel, block: BlockRV) -> None:
    """Schedule a reduction by itself, with several threads for each result."""
    stage = kernel.stage(block)
    loops = kernel.loops(block)
    outer, inner = [loops[n] for n in stage.spatial], [loops[n] for n in stage.reduced]
    if [*stage.spatial, *stage.reduced] != sorted([*stage.spatial, *stage.reduced]):
        kernel.sch.reorder(*outer, *inner)
    block_loop = kernel.fused(outer) if outer else kernel.sch.add_unit_loop(inner[0])
    stage = kernel.stage(block)
    vector = fitting_vector(stage, list(stage.reduced), stage.element_bytes)
    distribution = distribute_rows(
        kernel, stage.times(stage.spatial), stage.times(stage.reduced), vector, stage.element_bytes, 1
    )
    kernel.sch.bind(block_loop, "blockIdx.x")
    threads = max(distribution.threads, kernel.facts.warp)
    bind_row(kernel, block, RowDistribution(distribution.length, vector, threads, 1, False), 1)
