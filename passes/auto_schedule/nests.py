"""Vectorization and parallelization of one stage's loops, shared by all CPU rules."""

from __future__ import annotations

from itertools import takewhile

from mlcc.ir import tir
from mlcc.ir.intrinsics import called, name_of
from mlcc.ir.visit import used_vars
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.auto_schedule.tuning_choices import nearest_first
from mlcc.passes.schedule.handles import BlockRV, LoopRV


def stores_disjointly(stage: Stage, position: int) -> bool:
    """Return True if different iterations of a loop provably write different elements.

    Calls with effects and pointers count as conflicts, since their accesses are not visible.
    """
    var = stage.loops[position].var
    others = {loop.var for loop in stage.loops} - {var}
    stored = [a for a in stage.accesses if a.stored]
    if not stored or _has_opaque_accesses(stage):
        return False
    return all(
        sum(var in used_vars(i) for i in a.indices) == 1
        and any(var in (vs := used_vars(i)) and not vs & others and _is_shift(i, var) for i in a.indices)
        for a in stored
    )


def _is_shift(index: tir.Expr, var: tir.Var) -> bool:
    """Return True if an index is the variable, plus or minus a constant."""
    match index:
        case tir.Var():
            return index is var
        case tir.Add(lhs=lhs, rhs=tir.IntImm()) | tir.Sub(lhs=lhs, rhs=tir.IntImm()):
            return lhs is var
    return False


def _has_opaque_accesses(stage: Stage) -> bool:
    """Return True if a stage has calls with effects, or pointers, whose accesses are not visible."""
    for node in stage.calls:
        if isinstance(node, tir.Evaluate) and not isinstance(node.value, tir.IntImm):
            return True
        if isinstance(node, tir.Call) and (not isinstance(node.op, tir.Op) or _passes_pointers(node)):
            return True
    return False


def _passes_pointers(call: tir.Call) -> bool:
    known = called(call)
    return known.into is not None or known.extern or known.packed or name_of(call) in _POINTERS


_POINTERS = ("call_llvm_intrin", "tvm_struct_get", "tvm_stack_make_array")


def is_worth_parallelizing(kernel: Kernel, stage: Stage) -> bool:
    """Return True if a stage has enough work for several threads; unknown extents are taken to be large."""
    times = kernel.bounds_of_loops(stage, range(len(stage.loops)))[1]
    return times is None or times * stage.operations >= kernel.facts.parallel_operations


def spatial_nest(kernel: Kernel, block: BlockRV) -> str:
    """Schedule a stage without reduction axes; return a short description.

    Loops that traverse memory contiguously are fused; the inner part is vectorized and the outer part runs in parallel.
    """
    stage = kernel.stage(block)
    disjoint = [n for n in range(len(stage.loops)) if stores_disjointly(stage, n)]
    if not disjoint:
        return f"`{stage.block.name}` left alone: no loop is proven to write distinct elements"
    vector = vectorizable_loop(stage, disjoint) if stage.plain else None
    loops = kernel.loops(block)
    order = [n for n in range(len(loops)) if n != vector] + ([vector] if vector is not None else [])
    if order != sorted(order):
        kernel.sch.reorder(*(loops[n] for n in order))
    groups = _fusion_groups(stage, order, disjoint)
    parallel = is_worth_parallelizing(kernel, stage)
    fused = [kernel.sch.fuse(*(loops[n] for n in g)) if len(g) > 1 else loops[g[0]] for g in groups]
    inner = stage.times(groups[-1])
    notes = []
    if vector is not None:
        lanes = _choose_lanes(kernel, stage, inner)
        if lanes > 1:
            outer = [] if inner is not None and inner <= lanes else [None]
            chunk = _choose_chunk(kernel, stage, inner, lanes) if parallel and outer and len(fused) == 1 else None
            factors = [*outer, *([chunk] if chunk else []), lanes]
            parts = kernel.sch.split(fused.pop(), factors=factors if len(factors) > 1 else [None, lanes])
            kernel.sch.vectorize(parts[-1])
            fused += parts[: len(outer)] if outer else []
            notes.append(f"vectors of {lanes}")
    if parallel:
        notes += [words for words in (_parallelize(kernel, stage, groups, fused),) if words]
    if vector is not None and _separates_phases(stage, vector):
        unroll_inner(kernel, fused[1:])
    return f"`{stage.block.name}`: {', '.join(notes) or 'serial: too little work'}"


def _separates_phases(stage: Stage, vector: int) -> bool:
    """Return True if a stage loads elements at a stride under conditions, such as the even columns of padded rows.

    Where a row ends differs between phases, so that vectors with and without conditions are in no loops of their own.
    """
    conditional = any(isinstance(node, tir.Call) and name_of(node) == "if_then_else" for node in stage.calls)
    return conditional and any(step not in (0, 1) for step in stage.steps_by(vector))


def unroll_inner(kernel: Kernel, loops: list[LoopRV]) -> None:
    """Unroll the innermost of nested loops up to a number of vectors, so that their conditions are constants."""
    count = 1
    for handle in reversed(loops):
        loop = kernel.sch.get(handle) if kernel.exists(handle) else None
        if loop is None or loop.kind is not tir.ForKind.SERIAL:
            return
        count *= tir.const_int(loop.extent) or MAX_UNROLLED_VECTORS + 1
        if count > MAX_UNROLLED_VECTORS:
            return
        kernel.sch.unroll(handle)


def vectorizable_loop(stage: Stage, candidates: list[int]) -> int | None:
    """Return the loop to vectorize: stores are contiguous along it, and as many loads as possible are regular."""
    chosen, best_score = None, -1
    for position in candidates:
        steps = stage.steps_by(position)
        if any(s != 1 for s, a in zip(steps, stage.accesses, strict=True) if a.stored):
            continue
        score = 1 + sum(s in (0, 1) for s in steps)
        if score > best_score and stage.extents[position] != 1:
            chosen, best_score = position, score
    return chosen


def _fusion_groups(stage: Stage, order: list[int], disjoint: list[int]) -> list[list[int]]:
    """Group neighbouring loops that can be fused, outermost first."""
    groups = [[order[-1]]]
    for position in order[-2::-1]:
        head = groups[0][0]
        if position in disjoint and head in disjoint and stage.fusable(position, head):
            groups[0].insert(0, position)
        else:
            groups.insert(0, [position])
    return groups


def _lanes(kernel: Kernel, stage: Stage, iterations: int | None) -> int:
    """Return the lanes of a vector: a full one, or the next power of two for a short loop."""
    full_lanes = kernel.facts.lanes(stage.element_bytes)
    if iterations is None:
        return full_lanes
    return min(full_lanes, 1 << max(iterations - 1, 0).bit_length())


def _choose_lanes(kernel: Kernel, stage: Stage, iterations: int | None) -> int:
    """Choose how many iterations to run at a time; one vector by default."""
    lanes = _lanes(kernel, stage, iterations)
    if lanes == 1 or iterations is not None and iterations <= lanes:
        return lanes
    others = [n for n in (2 * lanes, 4 * lanes, lanes // 2) if n > 1 and (iterations is None or n < 2 * iterations)]
    return kernel.choose("lanes", f"elements of `{stage.block.name}` at a time", [lanes, *others])


def _choose_chunk(kernel: Kernel, stage: Stage, iterations: int | None, lanes: int) -> int | None:
    """Choose the vectors per parallel iteration: enough to pay for the threads, and several chunks for each core.

    Return None for unknown extents, since most of a chunk might be past the end.
    """
    if iterations is None:
        return None
    min_vectors = max(kernel.facts.parallel_operations // 4 // (stage.operations * lanes), 1)
    vectors = -(-iterations // lanes)
    max_vectors = max(vectors // (PIECES_PER_CORE * kernel.facts.cores), 1)
    chunk = max(min(1 << (min_vectors - 1).bit_length(), max_vectors), min_vectors)
    divisors = [n for n in range(max(chunk // 2, 1), chunk * 2) if vectors % n == 0] if iterations % lanes == 0 else []
    chunk = min(divisors, key=lambda n: abs(n - chunk)) if divisors else chunk
    options = [chunk, *(n for n in (chunk * 2, chunk * 4, chunk // 2, chunk // 4) if 0 < n < vectors)]
    return kernel.choose("parallel_chunk", f"vectors of `{stage.block.name}` in one parallel iteration", options)


def _parallelize(kernel: Kernel, stage: Stage, groups: list[list[int]], fused: list[LoopRV]) -> str:
    """Run the outermost loops in parallel, as far as their iterations write distinct elements."""
    disjoint = [n for n in range(len(stage.loops)) if stores_disjointly(stage, n)]
    loops = list(takewhile(lambda pair: all(n in disjoint for n in pair[0]), zip(groups, fused, strict=False)))
    return "parallel" if parallelize_outer(kernel, [loop for _, loop in loops]) else ""


def parallelize_outer(kernel: Kernel, loops: list[LoopRV]) -> bool:
    """Run nested loops, given outermost first, in parallel; fuse them until there are enough iterations to share.

    The remaining inner loops stay. Return True if anything runs in parallel.
    """
    chosen: list[LoopRV] = []
    total, known = 1, True
    for loop in loops:
        extent = tir.const_int(kernel.sch.get(loop).extent)
        if not known and extent is not None and extent < PIECES_PER_CORE * kernel.facts.cores:
            break  # a short inner loop costs less than divisions by unknown sizes
        chosen.append(loop)
        total, known = total * (1 if extent is None else extent), known and extent is not None
        if total >= PIECES_PER_CORE * kernel.facts.cores:
            break
    if not chosen or known and total <= 1:
        return False
    if kernel.facts.cores > 1:
        count = kernel.choose(
            "parallel_loops",
            "outer loops that run in parallel as one",
            nearest_first(len(chosen), range(1, len(loops) + 1)),
        )
        chosen = loops[:count]
    kernel.sch.parallel(kernel.sch.fuse(*chosen) if len(chosen) > 1 else chosen[0])
    return True


MAX_UNROLLED_VECTORS = 16  # of a copy whose conditions differ between vectors
PIECES_PER_CORE = 4  # parallel pieces per core, for load balance


def reduce_nest(kernel: Kernel, block: BlockRV) -> str:
    """Schedule a stage with reduction axes; return a short description.

    It is vectorized along the axis that it stores contiguously, and parallel over the outer spatial axes. The order of
    summation stays.
    """
    stage = kernel.stage(block)
    disjoint = [n for n in stage.spatial if stores_disjointly(stage, n)]
    if not disjoint:
        return f"`{stage.block.name}` left alone: no loop is proven to write distinct elements"
    vector = vectorizable_loop(stage, disjoint) if stage.straight and stage.block.init is not None else None
    if vector is not None and not set(stage.steps_by(vector)) <= {0, 1}:
        vector = None  # gathers cost more than vectorization saves
    loops = kernel.loops(block)
    outer = [n for n in stage.spatial if n != vector]
    reduced = list(stage.reduced)
    notes = []
    outer_loops = [loops[n] for n in outer]
    if vector is not None:
        lanes = _choose_lanes(kernel, stage, stage.extents[vector])
        vector_loop, lane_loop = kernel.sch.split(loops[vector], factors=[None, lanes])
        kernel.sch.reorder(*outer_loops, vector_loop, *(loops[n] for n in reduced), lane_loop)
        kernel.sch.vectorize(lane_loop)
        outer_loops.append(vector_loop)
        notes.append(f"vectors of {lanes}")
    elif [*outer, *reduced] != sorted([*outer, *reduced]):
        kernel.sch.reorder(*outer_loops, *(loops[n] for n in reduced))
    if is_worth_parallelizing(kernel, stage):
        groups = [[n] for n in (*outer, *([vector] if vector is not None else []))]
        notes += [words for words in (_parallelize(kernel, stage, groups, outer_loops),) if words]
    if vector is not None:
        kernel.sch.decompose_reduction(block, loops[reduced[0]])
    return f"`{stage.block.name}`: {', '.join(notes) or 'serial'}"
