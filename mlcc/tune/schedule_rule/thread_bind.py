"""Binding of loop nests to thread blocks and threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mlcc.ir import tir
from mlcc.ir.tir import ForKind, IterKind
from mlcc.passes.schedule.analysis.bindings import loop_iter_kind
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tree import Tree
from mlcc.tune.schedule_rule.analysis import block_of, has_been_tiled, is_root

Factor = Callable[[int], "ExprRV | int"]  # the number of threads for a loop of so many iterations

_UNBOUNDED = (1 << 63) - 1


def factor_sampler(sch: Schedule, extents: Sequence[int]) -> Factor:
    """Return a sampler of the number of threads, among the `extents` not above a loop's trip count."""

    def factor(most: int) -> ExprRV | int:
        fitting = [e for e in extents if e <= most]
        if len(fitting) < 2:
            return fitting[0] if fitting else most
        return sch.sample_categorical(fitting, [1.0 / len(fitting)] * len(fitting))

    return factor


@dataclass(slots=True)
class _Nest:
    """The loop nest around a block.

    `alone` counts loops before the first with several statements or that is not serial, `spatial` the leading spatial
    ones. `blocks` and `threads` are the positions of loops bound to blocks and threads, None if there are none.
    """

    alone: int
    spatial: int
    blocks: int | None = None
    threads: int | None = None


def bind_block_thread_idx(sch: Schedule, block: BlockRV, most_blocks: int, most_threads: int, factor: Factor) -> None:
    """Fuse the spatial loops around a block and bind them to `blockIdx.x` and `threadIdx.x` if they are unbound.

    Does nothing for blocks that multi-level tiling has bound, and for the root block.
    """
    ref = block_of(sch, block)
    if is_root(ref) or has_been_tiled(ref.block):
        return
    nest = _nest(ref.tree, ref.tree.loops_above(ref.block))
    if nest.blocks is not None:
        return
    loops = sch.get_loops(block)
    added = 0
    if nest.spatial == 0:
        loops = [sch.add_unit_loop(loops[0] if loops else block), *loops]
        added, nest.spatial = 1, 1
    if nest.threads is not None:
        around = sch.get_loops(block)
        sch.bind(sch.fuse(*around[: min(nest.alone + added, nest.threads + added, nest.spatial)]), "blockIdx.x")
        return
    fused = sch.fuse(*loops[: min(nest.alone + added, nest.spatial)])
    _bind_spatial(sch, fused, most_blocks, most_threads, factor)


def _nest(tree: Tree, loops: list[tir.For]) -> _Nest:
    nest = _Nest(len(loops), 0)
    for at, loop in enumerate(loops):
        axis = loop.thread or ""
        if axis.startswith("blockIdx") and nest.blocks is None:
            nest.blocks = at
        if axis.startswith("threadIdx") and nest.threads is None:
            nest.threads = at
        if loop.kind is not ForKind.SERIAL:
            nest.alone = min(nest.alone, at)
        if len(loop.body) != 1:
            nest.alone = min(nest.alone, at + 1)
        if loop_iter_kind(tree, loop) is IterKind.SPATIAL and nest.spatial == at:
            nest.spatial += 1
    return nest


def _bind_spatial(sch: Schedule, loop: LoopRV, most_blocks: int, most_threads: int, factor: Factor) -> None:
    extent = tir.const_int(sch.get(loop).extent)
    extent = _UNBOUNDED if extent is None else extent
    if extent <= most_blocks * most_threads:
        blocks, threads = sch.split(loop, factors=[None, factor(min(extent, most_threads))])
    else:
        rest, blocks, threads = sch.split(loop, factors=[None, most_blocks, most_threads])
        sch.reorder(blocks, threads, rest)
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
