"""Reductions whose results lie side by side: sums over windows (pooling, depthwise and grouped convolutions), sums over
other axes than the last, softmax over channels, and what surrounds them.

The sums of a tile, some vectors along what is stored consecutively and perhaps some rows of them, stay in registers
while everything that is summed up goes by. All other stages are computed for the same tile, before and after. Data that
are read at windows along the vectors are copied before, with what surrounds them and as far as whole vectors reach
(`padded_copies`); elsewhere, padding is chosen where it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.auto_schedule.inlining import inline_cheap, try_inline
from mlcc.passes.auto_schedule.kernel import Kernel, not_this
from mlcc.passes.auto_schedule.nests import owned, share_out, vector_place, worth_threads
from mlcc.passes.auto_schedule.offers import around
from mlcc.passes.auto_schedule.padded_copies import copied_windows, place_copies, windows_along
from mlcc.passes.auto_schedule.stage import CALL_OPERATIONS, Access, Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MOST_OPTIONS = 6  # numbers of vectors or rows of a tile that are offered, those nearest to the best guess
UNROLLED = 16  # elements of a window that are written out one after the other
HALF = 0.6  # what a vector of half the width costs of a whole one


def columns(kernel: Kernel) -> str:
    """The rule: tiles of results side by side, as the module says."""
    inline_cheap(kernel)
    sums = _reducing(kernel)
    width = _width(kernel, kernel.stage(sums[0]))
    windows = windows_along(kernel.stage(sums[0]), width.along) if len(sums) == 1 else []
    if windows and not kernel.either("padded", "data read at windows are copied with their padding", True):
        windows = []
    copies = copied_windows(kernel, sums[0], width.along, width.lanes * width.vectors, windows) if windows else []
    if not copies:
        _inline_padding(kernel)
    last = kernel.blocks()[-1]
    if kernel.stage(last).reduced:
        last = kernel.sch.cache_write(last, 0, "local")
    tile = _tile(kernel, sums, kernel.stage(last), width)
    kernel.say(str(tile))
    many = any(worth_threads(kernel, s) for s in kernel.stages())
    apart = [kernel.sch.get(b) for b in (last, *copies)]
    others = [b for b in kernel.blocks() if not any(kernel.sch.get(b) is other for other in apart)]
    outer = _tiled(kernel, last, tile)
    for block in reversed(others):
        kernel.sch.compute_at(block, outer[-1])
    for block in sums:
        kernel.sch.set_scope(block, 0, "local")
    first = [(block, _nest(kernel, block, len(outer), tile)) for block in others]
    level = place_copies(kernel, copies, outer, width.lanes) if copies else 0
    if many:
        share_out(kernel, outer[:level] or outer)
    for block, loop in first:
        if loop is not None:
            kernel.sch.decompose_reduction(block, loop)
    return f"{len(sums)} reductions, results side by side"


# ---------------------------------------------------------------- looking


def _reducing(kernel: Kernel) -> list[BlockRV]:
    """Return the blocks that reduce. Raise NotThis for kernels that the rule does not take."""
    reductions = []
    stages = kernel.stages()
    if any(kernel.is_output(s) for s in stages[:-1]):
        not_this("there are several outputs")
    for block, stage in zip(kernel.blocks(), stages, strict=True):
        if not stage.plain or len(stage.stores) != 1:
            not_this(f"block `{stage.block.name}` does more than store one expression")
        if stage.reduced:
            if stage.block.init is None:
                not_this(f"block `{stage.block.name}` does not say what it starts from")
            reductions.append(block)
    if not reductions:
        not_this("no block reduces")
    return reductions


def _inline_padding(kernel: Kernel) -> None:
    """Inline padding and cheap stages, so that padding is selected where windows are read.

    Away from the edges of the data there is nothing to select.
    """
    for block in kernel.blocks():
        stage = kernel.stage(block)
        if kernel.is_output(stage) or stage.reduced or not stage.plain or len(stage.stores) != 1:
            continue
        calls = sum(isinstance(n, tir.Call) for n in walk(stage.block.body))
        if stage.operations < CALL_OPERATIONS or (_is_padding(stage) and calls == 1):
            try_inline(kernel, block)


def _is_padding(stage: Stage) -> bool:
    value = stage.stores[0].value
    return (
        isinstance(value, tir.Call)
        and isinstance(value.op, tir.Op)
        and value.op.name == "tir.if_then_else"
        and isinstance(value.args[2], (tir.FloatImm, tir.IntImm))
    )


@dataclass(frozen=True)
class Width:
    """`vectors` of `lanes` along the loop `along` of a stage."""

    along: int
    lanes: int
    vectors: int


def _width(kernel: Kernel, stage: Stage) -> Width:
    """Choose the width of tiles, in vectors along the axis that a stage stores consecutively."""
    along = vector_place(stage, [n for n in stage.spatial if owned(stage, n)])
    if along is None:
        not_this(f"block `{stage.block.name}` stores no axis consecutively")
    size = stage.extents[along]
    group = _group(stage, along) or size
    lanes = _lanes(kernel, kernel.facts.lanes(max(s.element_bytes for s in kernel.stages())), group)
    if lanes < 2:
        not_this("one column only")
    most = _sums(kernel)
    if any(_again(stage, n) for n in stage.spatial if n != along):
        most = max(most // 4, 1)  # the others are rows, for which vectors are loaded once
    vectors = max(most // 2, 1) if group is None else _parts(-(-group // lanes), most)
    options = around(vectors, range(1, 2 * _sums(kernel) + 1) if group is None else range(1, -(-group // lanes) + 1))
    fitting = [n for n in options[:MOST_OPTIONS] if n == vectors or group == size or group and group % (lanes * n) == 0]
    vectors = kernel.choose("vectors", "vectors of a tile", fitting)
    if group != size and group is not None and group % (lanes * vectors):
        not_this("groups of channels are no whole vectors")
    _check_loads(kernel)
    return Width(along, lanes, vectors)


def _sums(kernel: Kernel) -> int:
    """Return the number of vector accumulators: enough to hide the latency of an addition."""
    return max(kernel.facts.vector_registers // 4, 1)


def _lanes(kernel: Kernel, whole: int, extent: int | None) -> int:
    """Return the lanes of a vector: all of them, or a half or a quarter where that wastes less."""
    if extent is None:
        return whole
    choices = [lanes for lanes in (whole, whole // 2, whole // 4) if lanes >= 2]
    cost = {lanes: -(-extent // lanes) * (1.0 if lanes == whole else HALF) for lanes in choices}
    if extent < 2 or not choices:
        return 1
    return kernel.choose(
        "lanes", "elements of a vector", {n: cost[n] for n in sorted(choices, key=lambda n: (cost[n], -n))}
    )


def _parts(count: int, most: int) -> int:
    """Return the group size, at most `most`, that covers `count` items with little waste in the last group."""
    return min(range(1, most + 1), key=lambda n: (-(-count // n) * (n + 1), -n))


def _group(stage: Stage, place: int) -> int | None:
    """Return how many consecutive iterations load the same element (`channel // 32`); None if no load does."""
    var = stage.loops[place].var
    divisors = [
        tir.const_int(node.rhs)
        for access in stage.accesses
        for index in access.indices
        for node in walk(index)
        if isinstance(node, tir.FloorDiv) and node.lhs is var
    ]
    return reduce(gcd, (n for n in divisors if n), 0) or None


def _check_loads(kernel: Kernel) -> None:
    """Raise NotThis if a reduction reads along its results with a large stride."""
    for stage in kernel.stages():
        if stage.reduced:
            place = vector_place(stage, list(stage.spatial))
            if place is None:
                not_this(f"block `{stage.block.name}` does not store its results side by side")
            by_groups = _group(stage, place) is not None
            if any(s is None and not by_groups or s is not None and not 0 <= s <= 4 for s in stage.steps_by(place)):
                not_this(f"block `{stage.block.name}` does not read side by side")


@dataclass(frozen=True)
class Tile:
    """A width, and `rows` of it along the loop `down` (or None) of the last stage; `shared` are the loops that tell
    results of reductions apart."""

    width: Width
    down: int | None
    rows: int
    shared: tuple[int, ...]

    def __str__(self) -> str:
        rows = f"{self.rows} rows of " if self.rows > 1 else ""
        return f"tiles of {rows}{self.width.vectors} vectors of {self.width.lanes}"


def _tile(kernel: Kernel, sums: list[BlockRV], last: Stage, width: Width) -> Tile:
    if not all(owned(last, n) for n in range(len(last.loops))):
        not_this(f"block `{last.block.name}` is not proven to write each element once")
    results = {kernel.stage(b).stores[0].buffer for b in sums}
    reads = [a for a in last.accesses if a.buffer in results and not a.stored]
    shared = [n for n, loop in enumerate(last.loops) if all(loop.var in a.variables for a in reads)]
    along = vector_place(last, shared)
    if along is None:
        not_this("no axis of the results is stored consecutively")
    width = Width(along, width.lanes, width.vectors)
    most = _sums(kernel)
    inside = [n for n in shared if n != along and last.extents[n] != 1]
    stage = kernel.stage(sums[0])
    down = max(inside, key=lambda n: (_again(stage, n) if len(sums) == 1 else 0, n), default=None)
    if down is None:
        return Tile(width, None, 1, tuple(shared))
    size = last.extents[down]
    rows = 1 if width.vectors > most // 2 else _parts(most if size is None else size, most // width.vectors)
    group = _group(stage, down) if down < len(stage.loops) else None
    while group is not None and group % rows:
        rows -= 1
    fitting = [n for n in around(rows, range(1, size or most)) if (group or n) % n == 0]
    rows = kernel.choose("rows", "rows of a tile", fitting[:MOST_OPTIONS])
    return Tile(width, down if rows > 1 else None, rows, tuple(shared))


def _again(stage: Stage, place: int) -> int:
    """Count the vector loads of a reduction that all rows of a tile along the loop at `place` can share."""
    if place not in stage.spatial:
        return 0
    along = vector_place(stage, list(stage.spatial))
    group = _group(stage, place) is not None

    def stays(access: Access) -> bool:
        step = stage.step(access, place)
        return tir.const_int(step) == 0 if step is not None else group

    steps = stage.steps_by(along) if along is not None and along != place else []
    return sum(step == 1 and not a.stored and stays(a) for step, a in zip(steps, stage.accesses, strict=False))


# ---------------------------------------------------------------- scheduling


def _tiled(kernel: Kernel, last: BlockRV, tile: Tile) -> list[LoopRV]:
    """Tile the loops of the last stage; return the loops around tiles."""
    sch, loops, width = kernel.sch, kernel.loops(last), tile.width
    panel, vectors, lane = sch.split(loops[width.along], [None, width.vectors, width.lanes])
    strip, row = sch.split(loops[tile.down], [None, tile.rows]) if tile.down is not None else (None, None)
    at = {width.along: panel, tile.down: strip}
    outer = [at.get(n) or loops[n] for n in tile.shared]
    own = [loop for n, loop in enumerate(loops) if n not in tile.shared]
    inner = [*([row] if row is not None else []), vectors]
    sch.reorder(*outer, *own, *inner, lane)
    for loop in inner:
        sch.unroll(loop)
    sch.vectorize(lane)
    return outer


def _nest(kernel: Kernel, block: BlockRV, above: int, tile: Tile) -> LoopRV | None:
    """Schedule the loops of another stage for one tile; return the first that reduces."""
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    reduced = [n for n in stage.reduced if n >= above]
    spatial = [n for n in range(above, len(loops)) if n not in reduced]
    along = vector_place(stage, spatial)
    rest = [n for n in spatial if n != along]
    parts: list[LoopRV] = []
    if along is not None:
        width, size = tile.width, stage.extents[along]
        whole = size is not None and size <= width.vectors * width.lanes
        parts = sch.split(loops[along], [None, width.lanes] if whole else [None, width.vectors, width.lanes])
    if reduced:
        sch.reorder(*(loops[n] for n in (*reduced, *rest)), *parts)
        for n in rest:
            sch.unroll(loops[n])
        _unroll_window(kernel, stage, [(n, loops[n]) for n in reduced])
    elif parts:
        sch.reorder(*(loops[n] for n in rest), *parts)
    if parts:
        sch.unroll(parts[-2])
        sch.vectorize(parts[-1])
    return loops[reduced[0]] if reduced else None


def _unroll_window(kernel: Kernel, stage: Stage, reduced: list[tuple[int, LoopRV]]) -> None:
    """Unroll the innermost loops of a reduction as far as they are short."""
    times, counts = 1, [0]
    for number, (place, _) in enumerate(reversed(reduced), 1):
        times *= stage.extents[place] or 2 * UNROLLED + 1
        if times > 2 * UNROLLED:
            break
        counts.append(number)
        if times <= UNROLLED:
            counts[0] = number
    about = f"innermost loops of `{stage.block.name}` that are written out"
    count = kernel.choose("unrolled", about, list(dict.fromkeys((*counts, 0))))
    for _, loop in [*reversed(reduced)][:count]:
        kernel.sch.unroll(loop)
