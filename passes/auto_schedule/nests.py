"""The loops of one stage in vectors and in parallel: what rules end with."""

from __future__ import annotations

from itertools import takewhile

from mlcc.ir import tir
from mlcc.ir.intrinsics import called, name_of
from mlcc.ir.visit import used_vars
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.offers import around
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.schedule.handles import BlockRV, LoopRV


def owned(stage: Stage, place: int) -> bool:
    """Return True if different iterations of a loop provably write different elements.

    Calls with effects and pointers, whose accesses are not visible, count as conflicts.
    """
    var = stage.loops[place].var
    others = {loop.var for loop in stage.loops} - {var}
    stored = [a for a in stage.accesses if a.stored]
    if not stored or _reaches_out(stage):
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


def _reaches_out(stage: Stage) -> bool:
    """Return True if a stage has calls with effects, or pointers, whose accesses are not visible."""
    for node in stage.calls:
        if isinstance(node, tir.Evaluate) and not isinstance(node.value, tir.IntImm):
            return True
        if isinstance(node, tir.Call) and (not isinstance(node.op, tir.Op) or _hands_out_pointers(node)):
            return True
    return False


def _hands_out_pointers(call: tir.Call) -> bool:
    known = called(call)
    return known.into is not None or known.extern or known.packed or name_of(call) in _POINTERS


_POINTERS = ("call_llvm_intrin", "tvm_struct_get", "tvm_stack_make_array")


def worth_threads(kernel: Kernel, stage: Stage) -> bool:
    """Return True if a stage has enough work for several threads; unknown extents are taken to be large."""
    times = stage.iterations
    return times is None or times * stage.operations >= kernel.facts.parallel_operations


def spatial_nest(kernel: Kernel, block: BlockRV) -> str:
    """A stage without reduce axes: loops that run through memory alike become one, its inner part vectors, its outer
    part parallel. Gives a few words on what was done."""
    stage = kernel.stage(block)
    free = [n for n in range(len(stage.loops)) if owned(stage, n)]
    if not free:
        return f"`{stage.block.name}` stays as it is: no loop is proven to write elements of its own"
    vector = vector_place(stage, free) if stage.plain else None
    loops = kernel.loops(block)
    order = [n for n in range(len(loops)) if n != vector] + ([vector] if vector is not None else [])
    if order != sorted(order):
        kernel.sch.reorder(*(loops[n] for n in order))
    groups = _groups(stage, order, free)
    parallel = worth_threads(kernel, stage)
    fused = [kernel.sch.fuse(*(loops[n] for n in g)) if len(g) > 1 else loops[g[0]] for g in groups]
    inner = stage.times(groups[-1])
    said = []
    if vector is not None:
        lanes = _chosen_lanes(kernel, stage, inner)
        if lanes > 1:
            outer = [] if inner is not None and inner <= lanes else [None]
            chunk = _chunk(kernel, stage, inner, lanes) if parallel and outer and len(fused) == 1 else None
            factors = [*outer, *([chunk] if chunk else []), lanes]
            parts = kernel.sch.split(fused.pop(), factors=factors if len(factors) > 1 else [None, lanes])
            kernel.sch.vectorize(parts[-1])
            fused += parts[: len(outer)] if outer else []
            said.append(f"vectors of {lanes}")
    if parallel:
        said += [words for words in (_parallel(kernel, stage, groups, fused),) if words]
    return f"`{stage.block.name}`: {', '.join(said) or 'serial: too little to do'}"


def vector_place(stage: Stage, free: list[int]) -> int | None:
    """Return the loop to vectorize: stores along it are contiguous, and loads are regular."""
    best, most = None, -1
    for place in free:
        steps = stage.steps_by(place)
        if any(s != 1 for s, a in zip(steps, stage.accesses, strict=True) if a.stored):
            continue
        score = 1 + sum(s in (0, 1) for s in steps)
        if score > most and stage.extents[place] != 1:
            best, most = place, score
    return best


def _groups(stage: Stage, order: list[int], free: list[int]) -> list[list[int]]:
    """Neighbouring loops that may as well be one, outermost first."""
    groups = [[order[-1]]]
    for place in order[-2::-1]:
        head = groups[0][0]
        if place in free and head in free and stage.fusable(place, head):
            groups[0].insert(0, place)
        else:
            groups.insert(0, [place])
    return groups


def _lanes(kernel: Kernel, stage: Stage, times: int | None) -> int:
    """Return the lanes of a vector: a full one, or the next power of two for a short loop."""
    whole = kernel.facts.lanes(stage.element_bytes)
    if times is None:
        return whole
    return min(whole, 1 << max(times - 1, 0).bit_length())


def _chosen_lanes(kernel: Kernel, stage: Stage, times: int | None) -> int:
    """Choose how many iterations to run at a time; one vector by default."""
    lanes = _lanes(kernel, stage, times)
    if lanes == 1 or times is not None and times <= lanes:
        return lanes
    others = [n for n in (2 * lanes, 4 * lanes, lanes // 2) if n > 1 and (times is None or n < 2 * times)]
    return kernel.choose("lanes", f"elements of `{stage.block.name}` at a time", [lanes, *others])


def _chunk(kernel: Kernel, stage: Stage, times: int | None, lanes: int) -> int | None:
    """Choose the vectors of a parallel iteration: enough to pay, and several chunks for each core.

    Return None for unknown extents, since most of a chunk might be beyond the end.
    """
    if times is None:
        return None
    least = max(kernel.facts.parallel_operations // 4 // (stage.operations * lanes), 1)
    vectors = -(-times // lanes)
    most = max(vectors // (PIECES * kernel.facts.cores), 1)
    chunk = max(min(1 << (least - 1).bit_length(), most), least)
    dividing = [n for n in range(max(chunk // 2, 1), chunk * 2) if vectors % n == 0] if times % lanes == 0 else []
    chunk = min(dividing, key=lambda n: abs(n - chunk)) if dividing else chunk
    options = [chunk, *(n for n in (chunk * 2, chunk * 4, chunk // 2, chunk // 4) if 0 < n < vectors)]
    return kernel.choose("parallel_chunk", f"vectors of `{stage.block.name}` in one parallel iteration", options)


def _parallel(kernel: Kernel, stage: Stage, groups: list[list[int]], made: list[LoopRV]) -> str:
    """Run the outermost loops in parallel, as far as they write elements of their own."""
    free = [n for n in range(len(stage.loops)) if owned(stage, n)]
    loops = list(takewhile(lambda pair: all(n in free for n in pair[0]), zip(groups, made, strict=False)))
    return "parallel" if share_out(kernel, [loop for _, loop in loops]) else ""


def share_out(kernel: Kernel, loops: list[LoopRV]) -> bool:
    """Run nested loops, given outermost first, in parallel, fused until there is enough to share out.

    Loops inside stay. Return True if anything runs in parallel.
    """
    chosen: list[LoopRV] = []
    total, known = 1, True
    for loop in loops:
        times = tir.const_int(kernel.sch.get(loop).extent)
        if not known and times is not None and times < PIECES * kernel.facts.cores:
            break  # a short loop inside costs less than divisions by sizes that are not known
        chosen.append(loop)
        total, known = total * (1 if times is None else times), known and times is not None
        if total >= PIECES * kernel.facts.cores:
            break
    if not chosen or known and total <= 1:
        return False
    if kernel.facts.cores > 1:
        count = kernel.choose(
            "parallel_loops", "outer loops that run in parallel as one", around(len(chosen), range(1, len(loops) + 1))
        )
        chosen = loops[:count]
    kernel.sch.parallel(kernel.sch.fuse(*chosen) if len(chosen) > 1 else chosen[0])
    return True


PIECES = 4  # parallel pieces for each core, so that none of them waits long for the last one


def reduce_nest(kernel: Kernel, block: BlockRV) -> str:
    """A stage with reduce axes: in vectors along the axis that it stores consecutively, in parallel over the outer
    spatial ones. The order in which each element is summed up stays."""
    stage = kernel.stage(block)
    free = [n for n in stage.spatial if owned(stage, n)]
    if not free:
        return f"`{stage.block.name}` stays as it is: no loop is proven to write elements of its own"
    vector = vector_place(stage, free) if stage.straight and stage.block.init is not None else None
    if vector is not None and not set(stage.steps_by(vector)) <= {0, 1}:
        vector = None  # gathers cost more than vectors save
    loops = kernel.loops(block)
    outer = [n for n in stage.spatial if n != vector]
    reduced = list(stage.reduced)
    said = []
    outer_loops = [loops[n] for n in outer]
    if vector is not None:
        lanes = _chosen_lanes(kernel, stage, stage.extents[vector])
        first, last = kernel.sch.split(loops[vector], factors=[None, lanes])
        kernel.sch.reorder(*outer_loops, first, *(loops[n] for n in reduced), last)
        kernel.sch.vectorize(last)
        outer_loops.append(first)
        said.append(f"vectors of {lanes}")
    elif [*outer, *reduced] != sorted([*outer, *reduced]):
        kernel.sch.reorder(*outer_loops, *(loops[n] for n in reduced))
    if worth_threads(kernel, stage):
        groups = [[n] for n in (*outer, *([vector] if vector is not None else []))]
        said += [words for words in (_parallel(kernel, stage, groups, outer_loops),) if words]
    if vector is not None:
        kernel.sch.decompose_reduction(block, loops[reduced[0]])
    return f"`{stage.block.name}`: {', '.join(said) or 'serial'}"
