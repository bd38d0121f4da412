"""Multi-level tiling around a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tensor_intrin import find_intrin
from mlcc.tune.schedule_rule.analysis import block_of
from mlcc.tune.schedule_rule.intrin_tiles import matches_intrin, tile_with_tensor_intrin
from mlcc.tune.schedule_rule.multi_level_tiling import MultiLevelTiling, ReuseType, TilingState


class MultiLevelTilingWithIntrin(MultiLevelTiling):
    """Tiles blocks that match the intrinsic `intrin_name`, with an innermost tile for it; other blocks are unchanged.

    The other arguments are those of `MultiLevelTiling`. TVM: `MultiLevelTilingWithIntrin`.
    """

    def __init__(
        self, intrin_name: str, structure: str, tile_binds: Sequence[str] | None = None,
        max_innermost_factor: int | None = None, vector_load_lens: Sequence[int] | None = None,
        reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(structure, tile_binds, max_innermost_factor, vector_load_lens, reuse_read, reuse_write)
        self.intrin_name = intrin_name

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not matches_intrin(block_of(sch, block), find_intrin(sch.state, self.intrin_name)):
            return [sch]
        return super().apply(sch.copy(), block) or [sch]

    def _sub_rules(self, states: list[TilingState]) -> list[TilingState]:
        return super()._sub_rules([derived for state in states for derived in self._for_intrin(state)])

    def _for_intrin(self, state: TilingState) -> list[TilingState]:
        loop = tile_with_tensor_intrin(state.sch, state.block, self.intrin_name)
        if loop is None:
            return []
        outer = state.sch.blockize(loop)
        state.sch.annotate(outer, "meta_schedule.auto_tensorize", self.intrin_name)
        return [replace(state, block=outer)]
