"""Multi-level tiling: split every loop of a block with data reuse, and order the tile loops by a structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from mlcc.ir import tir
from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.handles import BlockRV, ExprRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.schedule_rule.analysis import (
    TILING,
    annotation,
    block_of,
    loop_of,
    needs_multi_level_tiling,
    read_pattern,
)
from mlcc.tune.schedule_rule.rule import ScheduleRule

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext

_REQUESTS = ("no", "may", "must")
_WIDEST = {"float32": 4, "float16": 8, "int8": 16}  # lanes that one load of a thread takes, by dtype


class ReuseType(NamedTuple):
    """The caching of tiles' operands or results: `req` is "no", "may" or "must".

    Copies are made at the tile levels `levels` (from 1 on), in memory of the storage scope `scope`.
    """

    req: str
    levels: list[int]
    scope: str

    @staticmethod
    def of(given: ReuseType | Mapping[str, Any] | None) -> ReuseType:
        """Convert an argument to a reuse. Raises ValueError for an unknown request."""
        reuse = ReuseType("no", [], "") if given is None else given
        reuse = ReuseType(**reuse) if isinstance(reuse, Mapping) else reuse
        if reuse.req not in _REQUESTS:
            raise ValueError(f"the `req` of a reuse must be {', '.join(_REQUESTS)}, not {reuse.req!r}")
        return reuse

    def as_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return self._asdict()


@dataclass(frozen=True, slots=True)
class TilingState:
    """The state of tiling: the schedule, the block, its loops and sampled extents by tile level, its caches."""

    sch: Schedule
    block: BlockRV
    tiles: tuple[tuple[LoopRV, ...], ...] = field(default=())
    factors: tuple[tuple[ExprRV, ...], ...] = field(default=())
    reads: tuple[BlockRV, ...] = field(default=())
    written: BlockRV | None = None

    def copy(self) -> TilingState:
        return replace(self, sch=self.sch.copy())


class MultiLevelTiling(ScheduleRule):
    """Tiles blocks with data reuse. TVM: `MultiLevelTiling`.

    `structure` is the order of the tile loops of spatial (S) and reduction (R) axes: "SSRSRS" on CPUs, "SSSRRSRS" on
    GPUs. `tile_binds` are the thread axes of the outer levels. Results may be accumulated in a write cache
    (`reuse_write`), operands in read caches (`reuse_read`), whose loads are `vector_load_lens` elements wide.
    `filter_fn(sch, block)` selects further blocks to tile. Raises ValueError for a structure of other letters.
    """

    def __init__(
        self, structure: str, tile_binds: Sequence[str] | None = None, max_innermost_factor: int | None = None,
        vector_load_lens: Sequence[int] | None = None, reuse_read: ReuseType | Mapping[str, Any] | None = None,
        reuse_write: ReuseType | Mapping[str, Any] | None = None,
        filter_fn: Callable[[Schedule, BlockRV], bool] | None = None,
    ) -> None:  # fmt: skip
        if not set(structure) <= {"S", "R"}:
            raise ValueError(f"`structure` must consist of S and R, not {structure!r}")
        self.structure = structure
        self.tile_binds = list(tile_binds or ())
        self.max_innermost_factor = -1 if max_innermost_factor is None else max_innermost_factor
        self.vector_load_lens = list(vector_load_lens or ())
        self.reuse_read, self.reuse_write = ReuseType.of(reuse_read), ReuseType.of(reuse_write)
        self.filter_fn = filter_fn
        self._levels = {
            IterKind.SPATIAL: [i for i, c in enumerate(structure) if c == "S"],
            IterKind.REDUCE: [i for i, c in enumerate(structure) if c == "R"],
        }
        self._warp, self._max_threads = -1, -1
        self._stages: tuple[int, ...] = ()

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        facts = context.facts
        if facts.max_threads_per_block:
            self._warp, self._max_threads = facts.thread_warp_size, facts.max_threads_per_block
        self._stages = (4, 5) if facts.has_async_copies else ()

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        wanted = self.filter_fn is not None and self.filter_fn(sch, block)
        if not wanted and not needs_multi_level_tiling(block_of(sch, block)):
            return [sch]
        sch.annotate(block, TILING, self.structure)
        return [state.sch for state in self._sub_rules([TilingState(sch, block)])]

    def _sub_rules(self, states: list[TilingState]) -> list[TilingState]:
        for rule in (self._tile, self._reuse_written, self._reuse_read, self._pipelined):
            states = [derived for state in states for derived in rule(state)]
        return states

    # ------------------------------------------------------------ tiles

    def _tile(self, state: TilingState) -> list[TilingState]:
        sch, block = state.sch, state.block
        loops = sch.get_loops(block)
        kinds = [axis.kind for axis in block_of(sch, block).block.iter_vars]
        space: int | None = 1
        tiles: list[list[LoopRV]] = [[] for _ in self.structure]
        factors: list[list[ExprRV]] = [[] for _ in self.structure]
        outer = loops[: self._untiled(kinds)]
        for loop, kind in zip(loops[len(outer) :], kinds[len(outer) :], strict=True):
            levels = self._levels.get(kind)
            if levels is None:
                continue
            if kind is IterKind.SPATIAL and space is not None:
                extent = tir.const_int(sch.get(loop).extent)
                space = None if extent is None else space * extent
            if len(levels) == 1:
                tiles[levels[0]].append(loop)
                continue
            sampled = self._sampled(sch, block, loop, len(levels))
            for level, tile, factor in zip(levels, sch.split(loop, factors=sampled), sampled, strict=True):
                tiles[level].append(tile)
                factors[level].append(factor)
        sch.reorder(*(loop for level in tiles for loop in level))
        if self.tile_binds:
            tiles[0] = [*outer, *tiles[0]]
        for level, axis in enumerate(self.tile_binds[: len(tiles)]):
            fused = sch.fuse(*tiles[level])
            sch.bind(fused, axis)
            tiles[level] = [fused]
        if self._warp != -1:
            low = self._warp if space is None or space > 2 * self._warp else 1
            sch.annotate(block, "meta_schedule.thread_extent_low_inclusive", low)
            sch.annotate(block, "meta_schedule.thread_extent_high_inclusive", self._max_threads)
        return [replace(state, tiles=tuple(map(tuple, tiles)), factors=tuple(map(tuple, factors)))]

    def _untiled(self, kinds: Sequence[IterKind]) -> int:
        """Return the number of outer loops that are not tiled."""
        return 0

    def _sampled(self, sch: Schedule, block: BlockRV, loop: LoopRV, n: int) -> list[ExprRV]:
        """Sample the tile extents of a loop."""
        factors: list[ExprRV] = sch.sample_perfect_tile(loop, n=n, max_innermost_factor=self.max_innermost_factor)
        return factors

    # ------------------------------------------------------------ caches

    def _reuse_written(self, state: TilingState) -> list[TilingState]:
        request, levels, scope = self.reuse_write
        if request == "no":
            return [state]
        asked = annotation(state.sch, state.block, "s_tir.meta_schedule.write_cache_level")
        if isinstance(asked, list):
            request, levels = "must", asked
        states: list[TilingState] = []
        if request == "may":
            consumers = state.sch.get_consumers(state.block)
            if len(consumers) == 1 and _is_copy(block_of(state.sch, consumers[0]).block):
                return [*self._collected(state, consumers[0], levels), state]
            states.append(state.copy())
        cache = state.sch.cache_write(state.block, 0, scope)
        return states + self._collected(state, cache, levels)

    def _collected(self, state: TilingState, cache: BlockRV, levels: Sequence[int]) -> list[TilingState]:
        """Return a variant for each level: the cache is written back after the tiles of that level."""
        states = []
        for level in levels:
            tiled = replace(state.copy(), written=cache)
            tiled.sch.reverse_compute_at(cache, tiled.tiles[level - 1][-1], True)
            states.append(tiled)
        return states

    def _reuse_read(self, state: TilingState) -> list[TilingState]:
        request, levels, scope = self.reuse_read
        if request == "no":
            return [state]
        states = []
        for level in levels:
            tiled = state.copy()
            sch, block = tiled.sch, tiled.block
            at = tiled.tiles[level - 1][-1]
            reads = block_of(sch, block).block
            written = reads.writes[0].buffer
            caches: list[BlockRV] = []
            for index, region in enumerate(reads.reads):
                if region.buffer is written or not region.buffer.shape:
                    continue
                cache = sch.cache_read(block, index, scope, [block])
                sch.compute_at(cache, at, True)
                sch.fuse(*sch.get_loops(cache)[-len(region.buffer.shape) :])
                self._fetch_together(sch, cache)
                caches.append(cache)
            states.append(replace(tiled, reads=tuple(caches)))
        return states

    def _fetch_together(self, sch: Schedule, cache: BlockRV) -> None:
        """Annotate a cache's loads for cooperative fetching, with a sampled vector width."""
        dtype = str(block_of(sch, cache).block.writes[0].buffer.dtype)
        widest = _WIDEST.get(dtype, max(self.vector_load_lens, default=0))
        lanes = [n for n in self.vector_load_lens if n <= widest and (dtype != "float16" or n == 1 or n % 2 == 0)]
        if lanes:
            chosen = sch.sample_categorical(lanes, [1.0 / len(lanes)] * len(lanes))
            sch.annotate(cache, "meta_schedule.cooperative_fetch", chosen)

    def _pipelined(self, state: TilingState) -> list[TilingState]:
        """Add software-pipelined variants of a state whose reduction loop loads two operands and then uses them."""
        reduced = self._levels[IterKind.REDUCE]
        if not reduced or not self._stages:
            return [state]
        body = loop_of(state.sch, state.tiles[reduced[0]][-1]).loop.body
        if len(body) != 3 or not all(isinstance(stmt, tir.For) for stmt in body):
            return [state]
        states = [state]
        for stage in self._stages:
            variant = state.copy()
            fused = variant.sch.fuse(*variant.tiles[reduced[0]])
            variant.sch.annotate(fused, "software_pipeline_stage", [0, 0, stage - 2])
            variant.sch.annotate(fused, "software_pipeline_order", [0, 1, 2])
            variant.sch.annotate(fused, "software_pipeline_async_stages", [0])
            states.append(variant)
        return states


def _is_copy(block: tir.Block) -> bool:
    """Return True for a copy with the same order of indices, such as the write-back of a write cache."""
    return len(block.writes) == 1 and all(read_pattern(read, block.writes[0]) == (True, True) for read in block.reads)
