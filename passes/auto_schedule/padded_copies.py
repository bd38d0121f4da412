"""Padded copies of the data that a reduction reads at windows along its vectors, rounded up to whole vectors.

A copy is made of as much at a time as tiles do not share: a plane of each channel.
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.visit import used_vars
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.nests import spatial_nest
from mlcc.passes.auto_schedule.products import elementwise_consumer, read_index
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV


def windows_along(stage: Stage, along: int) -> list[tir.Buffer]:
    """Return the buffers that a reduction reads at windows (`x * 2 + r`) along a loop."""
    buffers: list[tir.Buffer] = []
    var = stage.loops[along].var
    reduced = {stage.loops[n].var for n in stage.reduced if stage.extents[n] != 1}
    for access, step in zip(stage.accesses, stage.steps_by(along), strict=True):
        if not access.stored and access.indices and step is not None and step > 0 and var in access.variables:
            moves = step > 1 or bool(used_vars(access.indices[-1]) & reduced)
            if moves and access.buffer not in buffers:
                buffers.append(access.buffer)
    return buffers


def copied_windows(
    kernel: Kernel, block: BlockRV, along: int, columns: int, windows: list[tir.Buffer]
) -> list[BlockRV]:
    """Pad the reduction to whole tiles of `columns`, and copy the data that are read at windows; return the copies."""
    sch, stage = kernel.sch, kernel.stage(block)
    var = stage.loops[along].var
    sch.pad_einsum(block, [columns if stage.axes[a.var] is var else 1 for a in stage.block.iter_vars])
    reader = elementwise_consumer(kernel, block)
    if (
        reader is not None
        and kernel.stage(reader).block.name.endswith("_pad")
        and elementwise_consumer(kernel, reader) is not None
    ):
        try_inline(kernel, reader)  # the copy from padded memory
    copies = []
    for buffer in windows:
        copy = _find_or_add_copy(kernel, block, buffer)
        for before in sch.get_producers(copy):
            try_inline(kernel, before)
        copies.append(copy)
    return copies


def _find_or_add_copy(kernel: Kernel, block: BlockRV, buffer: tir.Buffer) -> BlockRV:
    """Return the block that copies a buffer for a reduction; add one if the buffer is not padded already."""
    for producer in kernel.sch.get_producers(block):
        writer = kernel.sch.get(producer)
        if writer.reads and writer.reads[0].buffer is buffer and writer.writes[0].buffer.name == f"{buffer.name}_pad":
            return producer
        if writer.writes[0].buffer is buffer:
            return producer
    return kernel.sch.cache_read(block, read_index(kernel, block, buffer), "global")


def place_copies(kernel: Kernel, copies: list[BlockRV], outer: list[LoopRV], lanes: int) -> int:
    """Compute and vectorize copies under the tile loops whose iterations share no part of them.

    Return the number of these loops.
    """
    level = min(_independent_loops(kernel, copy, outer) for copy in copies)
    for copy in copies:
        if level == 0:
            kernel.say(spatial_nest(kernel, copy))
            continue
        kernel.sch.compute_at(copy, outer[level - 1], preserve_unit_loops=True)
        loops = kernel.loops(copy)[level:]
        kernel.sch.vectorize(kernel.sch.split(loops[-1], [None, lanes])[1])
    return level


def _independent_loops(kernel: Kernel, copy: BlockRV, outer: list[LoopRV]) -> int:
    """Return the number of outermost tile loops whose iterations read disjoint parts of the copy."""
    (reader,) = kernel.sch.get_consumers(copy)
    stage = kernel.stage(reader)
    buffer = kernel.stage(copy).block.writes[0].buffer
    unit_loops = {loop.var for loop, extent in zip(stage.loops, stage.extents, strict=True) if extent == 1}

    count = 0
    for loop in outer:
        var = kernel.sch.get(loop).var
        position = {loop.var: n for n, loop in enumerate(stage.loops)}.get(var)
        reads = [a for a in stage.accesses if a.buffer is buffer and not a.stored]
        is_independent = position is not None and all(
            any(used_vars(i) - unit_loops == {var} or i is var for i in a.indices) for a in reads
        )
        if not is_independent and tir.const_int(kernel.sch.get(loop).extent) != 1:
            break
        count += 1
    return count
