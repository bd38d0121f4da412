"""Kernels that reduce each row: softmax, norms, means, products of a matrix and a vector.

Some lanes of a warp have a row, or a warp, or a block, by how long rows are; they share it out, and put their partial
results together. A row that fits into the registers of its threads is read once.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile
from math import prod

from mlcc.ir import tir
from mlcc.passes.auto_schedule.gpu.nests import combinable, stores_only
from mlcc.passes.auto_schedule.gpu.row_share import RowShare, fitting_vector, is_row, share_rows
from mlcc.passes.auto_schedule.inlining import inline_cheap, inline_reshapes, try_inline
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.products import number_of
from mlcc.passes.auto_schedule.stage import Access, Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

SHORT = 32  # elements of a row below which it has to be seen that rows do not overlap


def rows(kernel: GpuKernel) -> str:
    """The rule: run all stages of a row one after the other in one block.

    Intermediate rows are in registers, or in shared memory if they are long.
    """
    if not any(stage.reduced for stage in kernel.stages()):
        not_this("no block reduces")  # before steps that the next rules take as well
    inline_reshapes(kernel)
    inline_cheap(kernel)
    stages = kernel.stages()
    axes = _row_axes(kernel, stages)
    share = _share(kernel, stages, axes)
    if share.kept and not all(_stays(kernel, s, axes, share) for s in stages[:-1]):
        share = replace(share, kept=False)
    if not share.kept:
        share = replace(share, threads=max(share.threads, kernel.facts.warp), rows=1)
        for block in kernel.blocks()[:-1]:
            if not kernel.stage(block).reduced:
                try_inline(kernel, block)  # again for each reader: that is less than a trip through memory
    reduced = sum(bool(s.reduced) for s in stages)
    _schedule(kernel, axes, share)
    kernel.say(_said(share))
    return f"{reduced} reductions along rows; {share.threads} threads have a row"


def _said(share: RowShare) -> str:
    where = "a row stays in registers" if share.kept else "rows are read by each stage"
    return f"{share.rows} rows in a block, {share.vector} elements at a time; {where}"


def _schedule(kernel: GpuKernel, axes: int, share: RowShare) -> None:
    sch, blocks = kernel.sch, kernel.blocks()
    copies = _copies(kernel, axes, share) if share.kept else []
    *before, last = blocks
    held = [block for block in before if _place(kernel, block, axes, share)]
    loops = kernel.loops(last)
    row = kernel.fused(loops[: kernel.stage(last).long[axes - 1] + 1])
    if share.rows > 1:
        row, inside = sch.split(row, [None, share.rows])
        sch.bind(row, "blockIdx.x")
        sch.bind(inside, "threadIdx.y")
    else:
        inside = row
        sch.bind(row, "blockIdx.x")
    for block in (*reversed(before), *copies):
        sch.compute_at(block, inside)
    for block in (*copies, *held):
        written = kernel.stage(block).block.writes[0].buffer
        mapping = share.index_map(written)
        if mapping is not None:
            sch.transform_layout(block, ("write", 0), mapping, assume_injective_transform=True)
    depth = 2 if share.rows > 1 else 1
    for block in (*copies, *blocks):
        share_out_row(kernel, block, share, depth, block in copies)


def _copies(kernel: GpuKernel, axes: int, share: RowShare) -> list[BlockRV]:
    """Copy rows that a stage reduces, or that several stages read, to registers."""
    assert share.length is not None
    readers: dict[tir.Buffer, list[BlockRV]] = {}
    reduced: set[tir.Buffer] = set()
    apart: set[tir.Buffer] = set()
    for block in kernel.blocks():
        stage = kernel.stage(block)
        for access in stage.accesses:
            if access.stored or access.buffer not in kernel.func.buffers:
                continue
            if not _is_own_row(stage, access, axes, share):
                apart.add(access.buffer)
                continue
            users = readers.setdefault(access.buffer, [])
            if block not in users:
                users.append(block)
            if stage.reduced:
                reduced.add(access.buffer)
    copies = []
    for buffer, users in readers.items():
        if buffer in apart or (buffer not in reduced and len(users) < 2):
            continue
        copies.append(kernel.sch.cache_read(users[0], number_of(kernel, users[0], buffer), "local", users))
    return copies


def _place(kernel: GpuKernel, block: BlockRV, axes: int, share: RowShare) -> bool:
    """Set the scope of a stage's results; return True if these are rows in registers.

    Rows that are not kept in registers go to shared memory, or stay in global memory if they are too large.
    """
    stage = kernel.stage(block)
    inner = _inner(stage, axes)
    along = bool(inner) and not stage.reduced
    if along and not share.kept:
        size = stage.times(inner)
        room = kernel.facts.shared_static // (2 * len(kernel.stages()))
        if size is None or size * stage.element_bytes > room:
            return False
    for number in range(len(stage.block.writes)):
        kernel.sch.set_scope(block, number, "shared" if along and not share.kept else "local")
    return along and share.kept


def _stays(kernel: GpuKernel, stage: Stage, axes: int, share: RowShare) -> bool:
    """Return True if a stage's results can be in registers: each thread reads only elements that it wrote."""
    if stage.reduced or not _inner(stage, axes):
        return True
    if len(stage.stores) != 1 or share.length is None or share.index_map(stage.stores[0].buffer) is None:
        return False
    buffer = stage.stores[0].buffer
    return all(_is_own_row(s, a, axes, share) for s in kernel.stages() for a in s.accesses if a.buffer is buffer)


def _is_own_row(stage: Stage, access: Access, axes: int, share: RowShare) -> bool:
    """Return True if an access is to a row whose elements are dealt to the same threads as in other stages.

    A stage that goes over a row several times deals out the elements of all rounds in one sequence: a thread gets the
    same ones each time only if they come round evenly.
    """
    assert share.length is not None
    inner = _inner(stage, axes)
    evenly = share.vector == 1 and share.length % share.threads == 0
    return is_row(stage, access, inner, share.length) and (evenly or stage.times(inner) == share.length)


def share_out_row(kernel: GpuKernel, block: BlockRV, share: RowShare, outer: int, copies: bool = False) -> None:
    """The loops of a stage within a row, below so many `outer` ones, over the threads that have the row."""
    sch, stage = kernel.sch, kernel.stage(block)
    loops = kernel.loops(block)
    inner = [n for n in (stage.reduced or range(outer, len(loops))) if stage.extents[n] != 1]
    if not inner:
        if share.threads > 1 and not all(region.buffer.scope == "local" for region in stage.block.writes):
            _, single = sch.split(sch.add_unit_loop(block), [None, share.threads])
            sch.bind(single, "threadIdx.x")  # the first thread's
        return
    along = kernel.fused([loops[n] for n in inner])
    turn, thread, lane = _parts(kernel, along, share, stage.times(inner) == share.length)
    if thread is not None:
        sch.bind(thread, "threadIdx.x")
    if lane is not None:
        (sch.unroll if stage.reduced else sch.vectorize)(lane)
    if share.kept and (copies or stage.reduced):
        sch.unroll(turn)


def _parts(
    kernel: GpuKernel, along: LoopRV, share: RowShare, whole: bool
) -> tuple[LoopRV, LoopRV | None, LoopRV | None]:
    """A loop over a row in turns, over threads, and over the lanes of a vector, those that there are."""
    sch, vector = kernel.sch, share.vector if whole else 1
    lane = thread = None
    if vector > 1 and share.threads > 1 and share.even:
        turn, thread, lane = sch.split(along, [None, share.threads, vector])
        return turn, thread, lane
    if vector > 1:
        along, lane = sch.split(along, [None, vector])
    if share.threads > 1:
        along, thread = sch.split(along, [None, share.threads])
    return along, thread, lane


def _inner(stage: Stage, axes: int) -> list[int]:
    """Return the places of the loops within a row."""
    return list(stage.reduced) or stage.long[axes:]


def _share(kernel: GpuKernel, stages: list[Stage], axes: int) -> RowShare:
    """Choose the distribution of rows over threads, and the length of rows (None if unknown or not uniform)."""
    lengths = {s.times(s.reduced) for s in stages if s.reduced}
    length = lengths.pop() if len(lengths) == 1 else None
    inside = [s for s in stages if s.times(_inner(s, axes)) == length]
    given = kernel.func.buffers
    sizes = [
        max(a.buffer.dtype.bits // 8, 1)
        for s in inside
        for a in s.accesses
        if a.buffer in given and s.loops[_inner(s, axes)[-1]].var in a.variables
    ]
    widest = max(sizes, default=4)
    vector = min((fitting_vector(s, _inner(s, axes), widest) for s in inside), default=1)
    last = stages[-1]
    places = last.long[:axes]
    count = last.times(places)
    arrays = 1 + sum(not s.reduced for s in inside if s is not stages[-1])
    share = share_rows(kernel, count, length, vector, widest, arrays)
    known = prod(takewhile(bool, (last.extents[n] or 0 for n in reversed(places))))
    if count is None and len(places) > 1 and known % share.rows:  # one loop of these could not be taken apart again
        share = replace(share, rows=1, threads=max(share.threads, kernel.facts.warp))
    return share


def _row_axes(kernel: GpuKernel, stages: list[Stage]) -> int:
    """Return the number of outer loops that all stages share, not counting loops of extent 1.

    Leave the kernel to the next rule if its stages do not run over the same rows.
    """
    if any(kernel.is_output(s) for s in stages[:-1]):
        not_this("there are several outputs")
    count = min(sum(n in s.spatial for n in s.long) for s in stages if s.reduced)
    if count == 0:
        not_this("there is one row only")
    first = [stages[-1].loops[n] for n in stages[-1].long[:count]]
    for stage in stages:
        name = f"block `{stage.block.name}`"
        if not stores_only(stage):
            not_this(f"{name} does more than store expressions")
        long = stage.long
        own = [stage.loops[n] for n in long[:count]]
        if not len(own) == len(first) == count or not all(map(stage.same_extent, own, first)):
            not_this(f"{name} has other rows")
        inner = _inner(stage, count)
        if any(n not in long[:count] for n in long if n not in inner):
            not_this(f"{name} reduces one part of its rows only")
        if stage.reduced:
            _check_rows(stage, inner)
            if not combinable(stage):
                not_this(f"how {name} combines is not known")
    return count


def _check_rows(stage: Stage, inner: list[int]) -> None:
    """Rows that are read along memory; short ones that do not overlap, as windows do."""
    along = [n for n in inner if stage.extents[n] != 1]
    name = f"block `{stage.block.name}`"
    if along and not all(step in (0, 1) for step in stage.steps_by(along[-1])):
        not_this(f"{name} does not read along its rows")
    length = stage.times(inner)
    if length is not None and length <= SHORT:
        reads = [
            a for a in stage.accesses if not a.stored and not a.variables.isdisjoint(stage.loops[n].var for n in along)
        ]
        if length < 2 or not any(is_row(stage, a, inner, length) for a in reads):
            not_this(f"rows of {length} elements are for one thread each")


def grid_rows(kernel: GpuKernel, block: BlockRV) -> None:
    """A reduction by itself: some threads for each result."""
    stage = kernel.stage(block)
    loops = kernel.loops(block)
    outer, inner = [loops[n] for n in stage.spatial], [loops[n] for n in stage.reduced]
    if [*stage.spatial, *stage.reduced] != sorted([*stage.spatial, *stage.reduced]):
        kernel.sch.reorder(*outer, *inner)
    place = kernel.fused(outer) if outer else kernel.sch.add_unit_loop(inner[0])
    stage = kernel.stage(block)
    vector = fitting_vector(stage, list(stage.reduced), stage.element_bytes)
    share = share_rows(kernel, stage.times(stage.spatial), stage.times(stage.reduced), vector, stage.element_bytes, 1)
    kernel.sch.bind(place, "blockIdx.x")
    threads = max(share.threads, kernel.facts.warp)
    share_out_row(kernel, block, RowShare(share.length, vector, threads, 1, False), 1)
