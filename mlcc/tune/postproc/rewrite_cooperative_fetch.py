"""Cooperative fetching: the threads of a block share the loads into shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.postproc.postproc import Postproc

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_KEY = "meta_schedule.cooperative_fetch"
_WIDEST = 4  # bytes of an element up to which loads are vectorized


class RewriteCooperativeFetch(Postproc):
    """Distributes the loads of `meta_schedule.cooperative_fetch` over threads. TVM: `RewriteCooperativeFetch`.

    The threads are those bound before. Loads are vectorized by the annotation's width if it divides their number.
    """

    def __init__(self) -> None:
        self._warp = -1

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        self._warp = context.facts.thread_warp_size or -1

    def apply(self, sch: Schedule) -> bool:
        threads: dict[str, int] = {}
        fetches: list[tuple[BlockRV, int, dict[str, int]]] = []
        for inst in list(sch.trace.insts):
            given = inst.arguments
            if inst.name == "bind" and given["thread_axis"] in ("threadIdx.x", "threadIdx.y"):
                extent = tir.const_int(sch.get(given["loop"]).extent)
                if extent is None:
                    return False
                threads[given["thread_axis"]] = extent
            elif inst.name == "annotate" and given["ann_key"] == "warp_execution":
                threads["threadIdx.x"] = self._warp
            elif inst.name == "annotate" and given["ann_key"] == _KEY:
                fetches.append((given["block_or_loop"], sch.get(given["ann_val"]), dict(threads)))
        for block, lanes, shared_by in fetches:
            _fetch(sch, block, lanes, shared_by)
        return True


def _fetch(sch: Schedule, block: BlockRV, lanes: int, threads: dict[str, int]) -> None:
    sch.unannotate(block, _KEY)
    fused = sch.get_loops(block)[-1]
    extent = tir.const_int(sch.get(fused).extent)
    if extent is None:
        return
    in_vectors = lanes > 1 and extent % lanes == 0 and _widest_bytes(sch.get(block)) <= _WIDEST
    axes = [axis for axis in ("threadIdx.y", "threadIdx.x") if axis in threads]
    _, *parts = sch.split(fused, factors=[None, *(threads[axis] for axis in axes), *([lanes] if in_vectors else [])])
    if in_vectors:
        sch.vectorize(parts.pop())
    for axis, part in reversed(list(zip(axes, parts, strict=True))):
        sch.bind(part, axis)


def _widest_bytes(block: tir.Block) -> int:
    """Return the size in bytes of the widest value that the block loads, casts or stores."""
    wide = (tir.BufferLoad, tir.Cast)
    sizes = [n.dtype.bytes for n in walk(block.body) if isinstance(n, wide)]
    return max(sizes + [n.value.dtype.bytes for n in walk(block.body) if isinstance(n, tir.BufferStore)], default=1)
