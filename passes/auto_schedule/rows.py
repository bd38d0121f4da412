"""Kernels that reduce along the end of each row: softmax, norms, means, sums over trailing axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from mlcc.errors import CompileError
from mlcc.passes.auto_schedule.inlining import inline_cheap, inline_reshapes, simplify_divided_indices
from mlcc.passes.auto_schedule.kernel import Kernel, not_applicable
from mlcc.passes.auto_schedule.nests import is_worth_parallelizing
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV

ACCUMULATORS = 4  # independent vector accumulators: the latency of an addition over its throughput
VECTORS_AT_A_TIME = 2  # vectors at a time of a stage, which hides latency
LANES_PER_STEP = 4  # partial results that one step combines at the end of a row


def rows(kernel: Kernel) -> str:
    """Run all stages of a row one after another, while it is in the L1 cache, and rows in parallel.

    A reduction accumulates in the lanes of some vectors, which are combined at the end of the row.
    """
    inline_reshapes(kernel)
    inline_cheap(kernel)
    simplify_divided_indices(kernel)
    stages = kernel.stages()
    axes = _shared_row_axes(kernel, stages)
    parallel = any(is_worth_parallelizing(kernel, s) for s in stages)
    parts: list[tuple[BlockRV, str]] = []
    for block, stage in zip(kernel.blocks(), stages, strict=True):
        if stage.reduced:
            fusable = parts and _reduces_row_of(stage, kernel.stage(parts[-1][0]))
            max_vectors = (
                _vectors_at_a_time(kernel, stage, stage.reduced, VECTORS_AT_A_TIME) if fusable else ACCUMULATORS
            )
            parts += split_reduction(kernel, block, stage, max_vectors)
        else:
            parts.append((block, "stored"))
    *before, (last, _) = parts
    row = kernel.fused(kernel.loops(last)[: _last_row_axis(stages[-1], axes) + 1])
    for block, _ in reversed(before):
        kernel.sch.compute_at(block, row)
    if parallel and stages[-1].extents[:axes] != (1,) * axes:
        kernel.sch.parallel(row)
    while parts:
        (block, kind), *parts = parts
        if kind == "stored" and parts and _reduces_stores_of(kernel, block, parts[0]):
            fuse_reduction_into_producer(kernel, block, parts.pop(0)[0])
        else:
            schedule_row_stage(kernel, block, kind)
    return f"{sum(bool(s.reduced) for s in stages)} reductions along rows"


def _last_row_axis(stage: Stage, axes: int) -> int:
    return stage.nonunit_loops[axes - 1]


def _shared_row_axes(kernel: Kernel, stages: list[Stage]) -> int:
    """Return the number of outer loops that all stages share, not counting loops of extent 1.

    Leave the kernel to the next rule if its stages do not run over the same rows.
    """
    reducing = [s for s in stages if s.reduced]
    if not reducing:
        not_applicable("no block reduces")
    if any(kernel.is_output(s) for s in stages[:-1]):
        not_applicable("there are several outputs")
    count = min(sum(n in s.spatial for n in s.nonunit_loops) for s in reducing)
    if count == 0:
        not_applicable("there is only one row")
    first = [stages[-1].loops[n] for n in stages[-1].nonunit_loops[:count]]
    for stage in stages:
        name = f"block `{stage.block.name}`"
        if not (stage.straight if stage.reduced else stage.plain and len(stage.stores) == 1):
            not_applicable(f"{name} does more than store one expression")
        long = stage.nonunit_loops
        row_loops = [stage.loops[n] for n in long[:count]]
        same = (stage.same_extent(a, b) for a, b in zip(row_loops, first, strict=False))
        if not len(row_loops) == len(first) == count or not all(same):
            not_applicable(f"{name} runs over other rows")
        inner = list(stage.reduced) if stage.reduced else long[count:]
        if any(n not in long[:count] for n in long if n not in inner):
            not_applicable(f"{name} reduces only a part of its rows")
        along = [n for n in inner if stage.extents[n] != 1]
        regular = not stage.reduced or _innermost_fusable(stage, along) == along
        if not regular or (along and not set(stage.steps_by(along[-1])) <= {0, 1}):
            not_applicable(f"{name} is not contiguous along its rows")
    return count


def split_reduction(
    kernel: Kernel, block: BlockRV, stage: Stage, max_vectors: int = ACCUMULATORS
) -> list[tuple[BlockRV, str]]:
    """Split a reduction into partial results in vector lanes (rfactor) and steps that combine them.

    At most `max_vectors` vectors accumulate side by side.
    """
    lanes = kernel.facts.lanes(stage.element_bytes)
    extents = [stage.extents[n] for n in stage.reduced]
    iterations = None if None in extents else prod(n for n in extents if n is not None)
    greatest = kernel.bounds_of_loops(stage, stage.reduced)[1]
    if lanes < 2 or (greatest is not None and greatest < (2 if greatest == iterations else 1) * lanes):
        return [(block, "short")]
    loops = [kernel.loops(block)[n] for n in stage.reduced]
    options = [
        _accumulators_and_fit(iterations, _typical(kernel, stage), lanes, n)
        for n in (max_vectors, 2 * max_vectors, max_vectors // 2, 1)
        if n
    ]
    vectors = kernel.choose("accumulators", f"accumulator vectors of `{stage.block.name}`", _distinct_counts(options))
    if dict(reversed(options))[vectors]:
        loop = kernel.fused(loops)
    elif len(loops) > 1 and extents[-1] is not None and 2 * extents[-1] < lanes - 2:
        return [(block, "short")]
    else:  # pad the last loop with neutral elements
        loop = loops[-1]
        kernel.sch.pad_reduction(loop, vectors * lanes)
    kernel.say(f"`{stage.block.name}`: partial results in {vectors} vectors of {lanes}")
    widths = [vectors * lanes, *([lanes] if vectors > 1 else [])]
    while widths[-1] > LANES_PER_STEP:
        widths.append(widths[-1] // LANES_PER_STEP)
    steps: list[tuple[BlockRV, str]] = []
    for width in widths:
        _, lane = kernel.sch.split(loop, factors=[None, width])
        partial = kernel.sch.rfactor(lane, len(stage.stores[0].indices))
        for number in range(len(stage.stores)):
            kernel.sch.set_scope(partial, number, "local")
        steps.append((partial, "joined" if steps else "partial"))
        loop = kernel.loops(block)[-1]
    return [*steps, (block, "last")]


def _accumulators_and_fit(times: int | None, last: int | None, lanes: int, max_count: int) -> tuple[int, bool]:
    """Return the number of vector accumulators, and True if the loops fuse into one without a tail.

    `times` is the number of iterations of the loops together, `last` that of the innermost one.
    """
    accumulators = _accumulators(times, lanes, max_count)
    for candidate in accumulator_counts(accumulators):
        if candidate and times is not None and times % (candidate * lanes) == 0:
            return candidate, True
    return _accumulators(last, lanes, max_count), False


def accumulator_counts(count: int) -> list[int]:
    """Return about as many accumulators as `count`, best first: whichever fits the data has no tail."""
    return [count, *([count + 1, count - 1] if count >= ACCUMULATORS else []), *([count // 2] if count > 1 else [])]


def _typical(kernel: Kernel, stage: Stage) -> int | None:
    """Return the extent of the last loop of a reduction, or the least one of several; None if there is no greatest."""
    least, greatest = kernel.bounds(stage.loops[stage.reduced[-1]].extent)
    return least if greatest is not None else None


def _distinct_counts(ways: Sequence[tuple[int, bool]]) -> list[int]:
    return list(dict.fromkeys(number for number, _ in ways))


def _accumulators(iterations: int | None, lanes: int, max_count: int) -> int:
    """Return the number of vector accumulators for sums of `iterations` elements."""
    count = 1
    while count < max_count and (iterations is None or iterations >= 4 * count * lanes):
        count *= 2
    return count


def _innermost_fusable(stage: Stage, positions: list[int]) -> list[int]:
    """Return the innermost of some loops that traverse memory like a single loop."""
    first = len(positions) - 1
    while first > 0 and stage.fusable(positions[first - 1], positions[first]):
        first -= 1
    return positions[max(first, 0) :]


def _reduces_row_of(stage: Stage, before: Stage) -> bool:
    """Return True if a stage reduces the row that `before` stores."""
    along = {stage.loops[n].var for n in stage.reduced}
    row = before.stores[0].buffer
    return not before.reduced and any(a.buffer is row and not a.stored and a.variables & along for a in stage.accesses)


def _reduces_stores_of(kernel: Kernel, block: BlockRV, after: tuple[BlockRV, str]) -> bool:
    """Return True if the stage `after` reduces the stores of `block` to partial results."""
    stage = kernel.stage(block)
    inner = list(range(1, len(stage.loops)))
    return (
        after[1] == "partial"
        and _innermost_fusable(stage, inner) == inner
        and _reduces_row_of(kernel.stage(after[0]), stage)
    )


def fuse_reduction_into_producer(kernel: Kernel, block: BlockRV, partial: BlockRV) -> None:
    """Schedule a stage within a row, and accumulate partial results of it as soon as each vector is computed."""
    sch, loops = kernel.sch, kernel.loops(block)
    width = _useful_lanes(kernel.stage(partial))
    step, lane = sch.split(kernel.fused(loops[1:]), factors=[None, width])
    sch.vectorize(lane)
    try:
        sch.reverse_compute_at(partial, step)
    except CompileError:  # it reads more than this stage computes in a step
        schedule_row_stage(kernel, partial, "partial")
        return
    sch.vectorize(kernel.fused(kernel.loops(partial)[2:]))
    sch.decompose_reduction(partial, step)


def schedule_row_stage(kernel: Kernel, block: BlockRV, kind: str) -> None:
    """Schedule the loops of a stage within a row."""
    sch, stage, loops = kernel.sch, kernel.stage(block), kernel.loops(block)
    reduced = [loops[n] for n in stage.reduced]
    spatial = [loop for n, loop in enumerate(loops) if n and n not in stage.reduced]
    if kind == "last":
        sch.unroll(reduced[0])
    if kind in ("short", "last") or not spatial:
        return
    inner = _innermost_fusable(stage, [n for n in range(1, len(loops)) if n not in stage.reduced])
    along = kernel.fused([loops[n] for n in inner] if not reduced else spatial)
    if reduced:
        sch.reorder(*reduced, along)
    lanes = min(kernel.facts.lanes(stage.element_bytes), _useful_lanes(stage))
    if not reduced:
        lanes *= _choose_vectors(
            kernel, stage, _vectors_at_a_time(kernel, stage, inner, 2 * VECTORS_AT_A_TIME, unknown=1)
        )
    accumulator, lane = sch.split(along, factors=[None, lanes])
    sch.vectorize(lane)
    if reduced:
        sch.unroll(accumulator)
        sch.decompose_reduction(block, reduced[0])
        if kind == "joined":
            sch.unroll(reduced[0])


def _vectors_at_a_time(
    kernel: Kernel, stage: Stage, positions: Sequence[int], max_vectors: int, unknown: int = VECTORS_AT_A_TIME
) -> int:
    """Return how many vectors along some loops to compute at a time: the most with little padding."""
    extents = [stage.extents[n] for n in positions]
    if None in extents:
        return unknown
    vectors = -(-prod(n for n in extents if n is not None) // kernel.facts.lanes(stage.element_bytes))
    return next(n for n in (4, 2, 1) if n <= max_vectors and -vectors % n <= vectors // 16)


def _choose_vectors(kernel: Kernel, stage: Stage, guess: int) -> int:
    """Choose how many vectors of a stage to compute at a time."""
    return kernel.choose("vectors", f"vectors of `{stage.block.name}` at a time", list(dict.fromkeys((guess, 2, 1, 4))))


def _useful_lanes(stage: Stage) -> int:
    """Return the most lanes of use: the next power of two of a short row."""
    extents = [n for position, n in enumerate(stage.extents) if position and position not in stage.reduced]
    if any(n is None for n in extents):
        return 1 << 30
    return 1 << max(prod(n for n in extents if n is not None) - 1, 0).bit_length()
