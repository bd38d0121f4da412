"""Multi-level tiling around the tensor cores of a GPU."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tensor_intrin import find_intrin
from mlcc.tune.schedule_rule.analysis import TILING, block_of, loop_of, needs_multi_level_tiling
from mlcc.tune.schedule_rule.intrin_axes import IntrinAxes, intrin_axes
from mlcc.tune.schedule_rule.intrin_tiles import tile_with_tensor_intrin
from mlcc.tune.schedule_rule.multi_level_tiling import MultiLevelTiling, ReuseType, TilingState

_INTRIN_ROLES = ("init", "load_a", "load_b", "compute", "store")
_FRAGMENTS = ("wmma.matrix_a", "wmma.matrix_b")
_TENSORIZE = "meta_schedule.auto_tensorize"
_ROW_OFFSETS = {"float16": 8, "int8": 16}  # by dtype, the offset of `storage_align` against bank conflicts


@dataclass(frozen=True, slots=True)
class _TensorizedState(TilingState):
    """The state of tiling for a group of intrinsics; `store` is the block that reindexes the result."""

    group: Mapping[str, str] | None = None
    store: BlockRV | None = None


class MultiLevelTilingTensorCore(MultiLevelTiling):
    """Tiles blocks that match tensor core intrinsics, a variant per group of intrinsics; other blocks are unchanged.

    A group names the intrinsics that `init`, `load_a`, `load_b`, `compute` and `store` fragments, those of `wmma`. Axes
    of the block are fused to those of the intrinsic, and its operands laid out accordingly; if an extent is not a
    multiple of the intrinsic's, the block is unchanged. The other arguments are those of `MultiLevelTiling`;
    `use_software_pipeline` has loads run an iteration ahead. TVM: `MultiLevelTilingTensorCore`.

    Raises ValueError for a group of other intrinsics, or without one, for a bound threadIdx.x, without a bound
    threadIdx.y, and where results do not pass shared memory.
    """

    def __init__(
        self, intrin_groups: Sequence[Mapping[str, str]], structure: str, tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int | None = None, vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None, use_software_pipeline: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(structure, tile_binds, max_innermost_factor, vector_load_lens, reuse_read, reuse_write)
        for group in intrin_groups:
            if missing := [part for part in _INTRIN_ROLES if part not in group]:
                raise ValueError(f"a group of intrinsics must have {', '.join(_INTRIN_ROLES)}: {missing[0]} is missing")
            if not group["compute"].startswith("wmma"):
                raise ValueError(f"the intrinsics must be those of wmma, not {group['compute']!r}")
        if "threadIdx.x" in self.tile_binds or "threadIdx.y" not in self.tile_binds:
            raise ValueError("`tile_binds` must have threadIdx.y (the warps), and not threadIdx.x (their threads)")
        if self.reuse_write.req != "must" or not self.reuse_write.scope.startswith("shared"):
            raise ValueError("`reuse_write` must have `req` 'must' and a shared scope")
        self.intrin_groups = [dict(group) for group in intrin_groups]
        self.use_software_pipeline = use_software_pipeline

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not needs_multi_level_tiling(block_of(sch, block)):
            return [sch]
        states: list[TilingState] = []
        for group in reversed(self.intrin_groups):  # TVM's order
            axes = intrin_axes(block_of(sch, block), find_intrin(sch.state, group["compute"]))
            if axes is not None:
                copy = sch.copy()
                copy.annotate(block, TILING, self.structure)
                state = self._for_intrin(_TensorizedState(copy, block, group=group), axes)
                states += [state] if state is not None else []
        return [state.sch for state in self._sub_rules(states)] or [sch]

    def _sub_rules(self, states: list[TilingState]) -> list[TilingState]:
        for rule in (
            self._tile, self._packed, self._reuse_written, self._stored, self._reuse_read, self._loaded,
            self._prefetched,
        ):  # fmt: skip
            states = [derived for state in states for derived in rule(state)]  # type: ignore[arg-type]
        return states

    def _untiled(self, kinds: Sequence[IterKind]) -> int:
        return sum(kind is IterKind.SPATIAL for kind in kinds) - 2

    # ------------------------------------------------------------ the intrinsic

    def _for_intrin(self, state: _TensorizedState, axes: IntrinAxes) -> _TensorizedState | None:
        """Lay out the operands as the intrinsic's and tile for it; None if it does not fit."""
        sch, block = state.sch, state.block
        before = block_of(sch, block).block
        if len(before.reads) != 2 or len(before.writes) != 1:
            return None
        assert state.group is not None
        places = [("read", 0), ("read", 1), ("write", 0)]
        buffers = [before.reads[0].buffer, before.reads[1].buffer, before.writes[0].buffer]
        store, *loads = (sch.reindex(block, place) for place in (places[2], *places[:2]))
        maps = []
        for place, buffer in zip(places, buffers, strict=True):
            now = block_of(sch, block).block
            region = (now.reads if place[0] == "read" else now.writes)[place[1]].region
            maps.append(axes.of_buffer(buffer, [r.min for r in region]))
            sch.transform_layout(block, place, maps[-1], None, True)
        for copied, index_map in zip((store, *loads), (maps[2], *maps[:2]), strict=True):
            sch.transform_block_layout(copied, index_map)
        sch.transform_block_layout(block, axes.whole())
        loop = tile_with_tensor_intrin(sch, block, state.group["compute"])
        if loop is None:
            return None
        outer = sch.blockize(loop)
        sch.annotate(outer, _TENSORIZE, state.group["compute"])
        sch.annotate(outer, f"{_TENSORIZE}_init", state.group["init"])
        sch.annotate(outer, "warp_execution", 1)
        return replace(state, block=outer, store=store)

    # ------------------------------------------------------------ results

    def _packed(self, state: _TensorizedState) -> list[_TensorizedState]:
        """Lay out the result in fragments, grouped by warp."""
        assert state.group is not None
        init = find_intrin(state.sch.state, state.group["init"]).description.block.body
        rows, columns = (tir.const_int(loop.extent) for loop in find(init, tir.For))
        inner = self._levels[IterKind.SPATIAL][self.tile_binds.index("threadIdx.y") + 1 :]
        down, across = (functools.reduce(operator.mul, (state.factors[at][axis] for at in inner)) for axis in (-2, -1))

        def places(*i: Any) -> tuple[Any, ...]:
            *outer, m, n = i
            own = m // rows, n // columns
            return (*outer, own[0] // down, own[1] // across, own[0] % down, own[1] % across, m % rows, n % columns)

        state.sch.transform_layout(state.block, ("write", 0), places, None, True)
        return [state]

    def _stored(self, state: _TensorizedState) -> list[_TensorizedState]:
        """Store fragments to shared memory, and from there to the result, a row of a warp's fragments at a time."""
        assert state.group is not None and state.written is not None and state.store is not None
        sch = state.sch
        fragments = sch.cache_write(state.block, 0, "wmma.accumulator")
        i0, j0, i1, j1 = _fragment_loops(sch, state.written)
        sch.reorder(i1, i0, j0, j1)
        sch.compute_at(fragments, i1, True)
        sch.bind(sch.fuse(*_fragment_loops(sch, fragments)[:2]), "threadIdx.y")
        sch.reverse_compute_inline(state.store)
        stored = sch.blockize(sch.get_loops(fragments)[-2])
        sch.annotate(stored, _TENSORIZE, state.group["store"])
        sch.fuse(*sch.get_loops(state.written)[-5:])
        self._fetch_together(sch, state.written)
        return [state]

    # ------------------------------------------------------------ operands

    def _loaded(self, state: _TensorizedState) -> list[_TensorizedState]:
        """Load operands from shared memory to fragments."""
        assert state.group is not None
        sch = state.sch
        at = state.tiles[self._levels[IterKind.REDUCE][1]][-1]
        for index, (scope, part) in enumerate(zip(_FRAGMENTS, ("load_a", "load_b"), strict=True)):
            fragments = sch.cache_read(state.block, index, scope)
            sch.compute_at(fragments, at, True)
            loop = tile_with_tensor_intrin(sch, fragments, state.group[part])
            if loop is None:
                return []
            sch.annotate(sch.blockize(loop), _TENSORIZE, state.group[part])
        for cache in state.reads:
            sch.compute_inline(sch.get_producers(cache)[0])
            apart = _ROW_OFFSETS.get(str(block_of(sch, cache).block.writes[0].buffer.dtype))
            if apart is not None:
                sch.storage_align(cache, 0, -2, 32, apart)
        return [state]

    def _prefetched(self, state: _TensorizedState) -> list[_TensorizedState]:
        """With `use_software_pipeline`, overlap the loads of the next iteration with the products of this one."""
        if not self.use_software_pipeline or _steps(state, self._levels[IterKind.REDUCE]) <= 1:
            return [state]
        sch = state.sch
        for cache in state.reads:
            sch.annotate(cache, "tirx.manifest_shared_memory_local_stage", 1)
            sch.annotate(cache, "double_buffer_scope", 0)
        outer, inner = (state.tiles[level][-1] for level in self._levels[IterKind.REDUCE][:2])
        for loop, stage, order in (
            (inner, [0, 0, 1], [0, 1, 2]), (outer, [0, 0, 0, 0, 0, 1, 1], [0, 3, 1, 4, 5, 2, 6]),
        ):  # fmt: skip
            sch.annotate(loop, "software_pipeline_stage", stage)
            sch.annotate(loop, "software_pipeline_order", order)
        return [state]


def _fragment_loops(sch: Schedule, block: BlockRV) -> list[LoopRV]:
    """The loops over warps and over their fragments; those over a fragment are inside."""
    return sch.get_loops(block)[-6:-2]


def _steps(state: TilingState, levels: Sequence[int]) -> int:
    extents = [tir.const_int(loop_of(state.sch, loop).loop.extent) or 1 for at in levels for loop in state.tiles[at]]
    return functools.reduce(operator.mul, extents, 1)
