"""`compute_at` and `reverse_compute_at`: move a stage under a loop of its consumers, or of its producers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.arith.conditions import linear_parts
from mlcc.arith.intset import Interval, eval_range, from_range
from mlcc.arith.region_bound import lower_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.axis_domains import Box, axis_domains, hull
from mlcc.passes.schedule.analysis.bindings import bindings, loop_domain
from mlcc.passes.schedule.analysis.block_access import exact_region, with_regions
from mlcc.passes.schedule.analysis.checks import check_complete_or_reduction_block, check_not_output, scope_root
from mlcc.passes.schedule.analysis.insertion import LAST, insertion_position, insertion_range
from mlcc.passes.schedule.analysis.move_legality import check_order, check_same_iterations
from mlcc.passes.schedule.analysis.new_nest import NewNest
from mlcc.passes.schedule.analysis.region_cover import covers, over_loops, region_text
from mlcc.passes.schedule.analysis.scope import consumers, finished_before, producers
from mlcc.passes.schedule.primitives.inline import inline_into_consumers, inline_into_producer
from mlcc.passes.schedule.primitives.suggestions import suggesting_places
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.removal import removable_statement
from mlcc.passes.schedule.state import INLINE, ROOT, BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def compute_at(
    state: State, block: BlockRef, loop: LoopRef | str, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """Compute a block under a loop of its consumers, each time as much of it as they need there.

    The loops of the block are made anew (`ax0`, `ax1`, ...; those of one iteration only with `preserve_unit_loops`),
    and its old ones go. `index` is the position among the statements of the loop's body: -1 the last that is legal,
    -2 the first. The block is complete or a reduction, no output, and the loop, which is not around it, is around all
    of its consumers. Refused otherwise (E0647 to E0651, E0656, E0658, E0659). TVM: `compute_at`.
    """
    _move(state, block, loop, preserve_unit_loops, index, False)


@primitive()
def reverse_compute_at(
    state: State, block: BlockRef, loop: LoopRef | str, preserve_unit_loops: bool = False, index: int = -1
) -> None:
    """Compute a block under a loop of its producers, each time for as much as they have produced there.

    As `compute_at`, with the loop around all of the block's producers, but for those that are done before the outermost
    loop around it begins; the block may be an output. Refused otherwise
    (E0647 to E0651, E0656, E0659). TVM: `reverse_compute_at`.
    """
    _move(state, block, loop, preserve_unit_loops, index, True)


def _move(
    state: State, block: BlockRef, loop: LoopRef | str, preserve_unit_loops: bool, index: int, reverse: bool
) -> None:
    if loop == ROOT:
        return
    if loop == INLINE:
        (inline_into_producer if reverse else inline_into_consumers)(state, block)
        return
    assert isinstance(loop, LoopRef)
    with suggesting_places(state, block, reverse):
        plan = plan_move(block, loop, preserve_unit_loops, index, reverse)
    edit = Rebuild(block.tree)
    edit.put(plan.removed)
    edit.amend(loop.loop, lambda made: replace(made, body=_insert(made.body, plan)))
    state.update(block.func_name, edit)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A move of a block: the statement `removed`, and `stmt`, inserted at `position` of the loop's body."""

    removed: tir.Stmt
    position: int
    stmt: tir.Stmt


def _insert(body: tuple[tir.Stmt, ...], plan: Move) -> tuple[tir.Stmt, ...]:
    return (*body[: plan.position], plan.stmt, *body[plan.position :])


def can_compute_at(block: BlockRef, loop: LoopRef, preserve_unit_loops: bool = False, reverse: bool = False) -> bool:
    """Return True if the move would be accepted."""
    try:
        plan_move(block, loop, preserve_unit_loops, LAST, reverse)
    except Refusal:
        return False
    return True


def plan_move(ref: BlockRef, loop_ref: LoopRef, preserve_unit_loops: bool, index: int, reverse: bool) -> Move:
    """Check the move and build the new loops. Refuses illegal ones.

    Plans are memoized: places are tried before one is taken.
    """
    cache, key = ref.tree.cache, ("move", ref.block, loop_ref.loop, preserve_unit_loops, index, reverse)
    if key not in cache:
        cache[key] = _plan(ref, loop_ref, preserve_unit_loops, index, reverse)
    return cache[key]  # type: ignore[no-any-return]


def _plan(ref: BlockRef, loop_ref: LoopRef, preserve_unit_loops: bool, index: int, reverse: bool) -> Move:
    tree, block, loop = ref.tree, ref.block, loop_ref.loop
    scope = scope_root(tree, block, require_stage_pipeline=True)
    check_complete_or_reduction_block(tree, block, scope)
    _check_same_scope(ref, loop_ref, scope)
    _check_loop_variables(tree, block, loop)
    if not reverse:
        check_not_output(tree, block, scope)
    removed = removable_statement(tree, block)
    before, after = producers(tree, block), consumers(tree, block)
    split = insertion_range(tree, block, loop.body, before, after)
    needed = _incomplete_producers(tree, block, loop, before) if reverse else after
    missing = [b for b in needed if b not in split.below]
    if missing:
        raise _not_below_loop(block, loop, missing, reverse)
    if not needed:
        _check_producers_done(tree, block, loop, before)
    check_order(tree, block, loop, before, after)
    at = insertion_position(split, index, loop)
    analyzer = shape_analyzer(tree.func)
    around = [*tree.loops_above(loop), loop]
    for outer in reversed(around):
        analyzer.bind(outer.var, tir.Range(outer.min, outer.extent))
    accessed, required = _regions(tree, block, loop, needed, reverse)
    domains = axis_domains(block, accessed, required, analyzer, exact=reverse)
    nest = NewNest(block, around, analyzer)
    stmt = nest.make(domains, preserve_unit_loops)
    check_same_iterations(tree, block, scope, nest, needed if reverse else ())
    if reverse:
        _check_nothing_lost(nest, needed, analyzer)
        _check_remainders_cover(nest, required, analyzer)
        _check_produced_by_all(nest, required, analyzer)
        _check_enough_produced(ref, loop, nest, needed, analyzer)
    return Move(removed, at, stmt)


def _check_same_scope(ref: BlockRef, loop_ref: LoopRef, scope: tir.Block) -> None:
    tree, block, loop = ref.tree, ref.block, loop_ref.loop
    if ref.func_name != loop_ref.func_name:
        raise Refusal(
            "E0648", f"block `{block.name}` is in `{ref.func_name}`, but the loop is in `{loop_ref.func_name}`"
        )
    where = tree.scope(loop)
    if where is not scope:
        inside = f"block `{where.name}`" if where is not None else "no block"
        raise Refusal(
            "E0648",
            f"loop `{loop.var.name}` is in {inside}, but block `{block.name}` is in block `{scope.name}`",
            (block, loop),
        )
    if tree.is_under(tree.realize(block), loop):
        raise Refusal("E0648", f"block `{block.name}` is already under loop `{loop.var.name}`", (block, loop))


def _check_loop_variables(tree: Tree, block: tir.Block, loop: tir.For) -> None:
    """A block without axes, such as the parts of a partitioned loop, may use the variables of the loops around it."""
    above = {outer.var for outer in tree.loops_above(block)} - {outer.var for outer in (*tree.loops_above(loop), loop)}
    used = [outer.var for outer in tree.loops_above(block) if outer.var in above & used_vars(block)]
    if used:
        raise Refusal(
            "E0648",
            f"block `{block.name}` uses the loop variable `{used[0].name}` directly, not by an axis: it cannot move",
            (block, loop),
        )


def _incomplete_producers(
    tree: Tree, block: tir.Block, loop: tir.For, producers: Sequence[tir.Block]
) -> Sequence[tir.Block]:  # fmt: skip
    """Return the producers whose results may be incomplete inside the loops around `loop`; all if there are none.

    Left out are those that finish before the outermost of these loops begins, in memory that no other block writes:
    their results are available anywhere. TVM requires them below the loop, too.
    """
    finished = finished_before(tree, _outermost(tree, loop), producers)

    def done(one: tir.Block) -> bool:
        own = {region.buffer for region in one.writes}
        others = (region.buffer for other in producers if other is not one for region in other.writes)
        return one in finished and own.isdisjoint(others)

    return [one for one in producers if not done(one)] or producers


def _outermost(tree: Tree, loop: tir.For) -> tir.For:
    """Return the outermost loop around `loop` in its scope; `loop` itself if there is none."""
    return next(iter(tree.loops_above(loop)), loop)


def _check_producers_done(tree: Tree, block: tir.Block, loop: tir.For, producers: Sequence[tir.Block]) -> None:
    """Refuse (E0650) a block without consumers whose producers are not done: all of it would be computed in each
    iteration, for nothing says how much of it is needed there."""
    finished = finished_before(tree, _outermost(tree, loop), producers)
    late = [one for one in producers if one not in finished]
    if late:
        raise Refusal(
            "E0650",
            f"nothing reads what block `{block.name}` computes, so all of it would be computed in each iteration of "
            f"`{loop.var.name}`, where `{late[0].name}` has not computed all that it reads",
            (block, loop, late[0]),
        )


def _not_below_loop(block: tir.Block, loop: tir.For, missing: Sequence[tir.Block], reverse: bool) -> Refusal:
    names = ", ".join(f"`{b.name}`" for b in missing)
    verb = "computes what it reads" if reverse else "reads what it computes"
    return Refusal(
        "E0649",
        f"block `{block.name}` cannot be computed at loop `{loop.var.name}`: {names}, which {verb}, is not under it",
        (block, loop, *missing),
    )


def _check_nothing_lost(nest: NewNest, producers: Sequence[tir.Block], analyzer: Analyzer) -> None:
    """Refuse (E0651) new loops over what is produced that leave out iterations of a block which reads beyond that, as
    padding does under a condition."""
    block = nest.realize.block
    filled = {region.buffer for one in producers for region in one.writes}
    axes = {axis.var: from_range(axis.dom) for axis in block.iter_vars}
    dims = [
        (_relax(span, {}, axes, analyzer), extent)
        for region in block.reads
        if region.buffer in filled
        for span, extent in zip(region.region, region.buffer.shape, strict=True)
    ]
    if all(_inside(span, extent, analyzer) for span, extent in dims):
        return
    loops = {loop.var: from_range(tir.Range(loop.min, loop.extent)) for loop in (*nest.around, *nest.loops)}
    for axis, value in zip(block.iter_vars, nest.realize.values, strict=True):
        reached = eval_range(value, value, loops, analyzer)
        least, most = axis.dom.min, c.sub(c.add(axis.dom.min, axis.dom.extent), 1)
        if not (_at_most(reached.low, least, analyzer) and _at_most(most, reached.high, analyzer)):
            words = f"the new loops of block `{block.name}` omit a part of its axis `{axis.var.name}`"
            raise Refusal("E0651", f"{words}: they run over what is computed there, and it reads beyond that", block)


def _check_enough_produced(
    ref: BlockRef, loop: tir.For, nest: NewNest, needed: Sequence[tir.Block], analyzer: Analyzer
) -> None:
    """Refuse (E0651) new loops that read a larger box than there are elements computed in one iteration of `loop`.

    The end of a row and the start of the next one, as in a part of a fused loop, lie in a box of two rows. A block
    with conditions may read less than its regions.
    """
    tree, block = ref.tree, ref.block
    if _has_conditions(block):
        return
    domain = {at.var: tir.Range(at.min, at.extent) for at in reversed(nest.loops)}
    for region in block.reads:
        writers = [one for one in needed if any(written.buffer is region.buffer for written in one.writes)]
        read = lower_bound(over_loops(nest.realize, region.region), domain) if writers else None
        most = [_most_elements(tree, one, region.buffer, loop) for one in writers]
        sizes = zip(read or (), region.buffer.shape, strict=read is not None)
        least = 0 if read is None else prod(_least_length(interval, size, analyzer) for interval, size in sizes)
        if least > sum(most):
            names = " and ".join(f"`{one.name}`" for one in writers)
            raise Refusal(
                "E0651",
                f"block `{block.name}` would read {least} elements of `{region.buffer.name}` or more in one iteration "
                f"of `{loop.var.name}`, in which {names} may compute only {sum(most)}",
                (block, *writers, loop),
                "split the loop where rows end: by a multiple of the extent of the inner dimension, or a divisor of it",
            )


def _most_elements(tree: Tree, block: tir.Block, buffer: tir.Buffer, loop: tir.For) -> int:
    """Return how many elements of `buffer` a block writes at most in one iteration of `loop`."""
    loops = loop_domain(tree, tree.parent(tree.realize(block)), loop, buffer.scope).values()
    spans = [region.region for region in with_regions(block).writes if region.buffer is buffer]
    return sum(prod(_constant(span.extent) for span in (*loops, *region)) for region in spans)


def _constant(size: Expr) -> int:
    value = tir.const_int(size)
    return INF if value is None else value


def _least_length(interval: Interval, extent: Expr, analyzer: Analyzer) -> int:
    """Return how many integers from 0 up to `extent` an interval that begins among them has at least."""
    if interval.low is None or interval.high is None:
        return 0
    least = analyzer.bound(analyzer.simplify(c.add(c.sub(interval.high, interval.low), 1))).min
    return max(0, min(least, _constant(extent)))


def _check_remainders_cover(nest: NewNest, required: dict[tir.Buffer, list[Box]], analyzer: Analyzer) -> None:
    """Refuse (E0651) new loops that read beyond what is produced by an index with a remainder, such as `i % 16`: it
    does not say which `i` are needed."""
    block = nest.realize.block
    values = bindings(nest.realize)
    loops = {loop.var: from_range(tir.Range(loop.min, loop.extent)) for loop in nest.loops}
    for region in block.reads:
        boxes = required.get(region.buffer)
        if not boxes:
            continue
        produced = [hull(part) for part in zip(*boxes, strict=True)]
        for at, (span, there) in enumerate(zip(region.region, produced, strict=True)):
            if not any(isinstance(node, tir.FloorMod) for node in walk(span.min)):
                continue
            read = _relax(span, values, loops, analyzer)
            if not (_at_most(there.low, read.low, analyzer) and _at_most(read.high, there.high, analyzer)):
                words = f"which iterations of block `{block.name}` are needed cannot be told from the index"
                raise Refusal("E0651", f"{words} `{span.min}` in dimension {at} of `{region.buffer.name}`", block)


def _check_produced_by_all(nest: NewNest, required: dict[tir.Buffer, list[Box]], analyzer: Analyzer) -> None:
    """Refuse (E0651) new loops that read more of a buffer than there is: of several buffers, another may have more.

    A block with conditions may read less than its regions.
    """
    block, realize = nest.realize.block, nest.realize
    if sum(map(bool, required.values())) < 2 or _has_conditions(block):
        return
    domain = {loop.var: tir.Range(loop.min, loop.extent) for loop in reversed(nest.loops)}
    for region in block.reads:
        boxes = required.get(region.buffer)
        read = lower_bound(over_loops(realize, region.region), domain, realize.predicate, analyzer) if boxes else None
        if not boxes or read is None:
            continue
        there = [hull(part) for part in zip(*boxes, strict=True)]
        if not covers(region.buffer.shape, there, read, analyzer):
            words = f"block `{block.name}` would read {region_text(region.buffer, read)} there, of which only "
            raise Refusal("E0651", f"{words}{region_text(region.buffer, there)} is computed before", block)


def _has_conditions(block: tir.Block) -> bool:
    """Return True if conditions guard something in a block."""
    for node in walk((*(block.init or ()), *block.body)):
        match node:
            case tir.IfThenElse() | tir.While() | tir.Call(op=tir.Op(name="tir.if_then_else")):
                return True
            case tir.BlockRealize(predicate=predicate) if tir.const_int(predicate) != 1:
                return True
    return False


def _at_most(low: Expr | None, high: Expr | None, analyzer: Analyzer) -> bool:
    return low is not None and high is not None and analyzer.prove(c.less_equal(low, high))


def _inside(span: Interval, extent: Expr, analyzer: Analyzer) -> bool:
    below = span.low is not None and analyzer.prove(c.less(span.low, 0))
    return not below and span.high is not None and analyzer.prove(c.less(span.high, extent))


def shape_analyzer(func: tir.PrimFunc) -> Analyzer:
    """Return an analyzer that knows that the extents of parameters are not negative."""
    analyzer = Analyzer(differences=False)
    for buffer in func.buffers:
        for extent in buffer.shape if buffer is not None else ():
            parts = linear_parts(extent)
            if parts is not None and len(parts[0]) == 1:
                ((var, factor),) = parts[0].items()
                if factor > 0:
                    analyzer.bind_bound(var, -(parts[1] // factor), INF)
    return analyzer


# ---------------------------------------------------------------- regions


def _regions(
    tree: Tree, block: tir.Block, loop: tir.For, needed: Sequence[tir.Block], reverse: bool
) -> tuple[dict[tir.Buffer, list[Box]], dict[tir.Buffer, list[Box]]]:
    """Return, by buffer, the regions that one iteration of the block accesses, and those to cover in one of `loop`."""
    accessed: dict[tir.Buffer, list[Box]] = {}
    for region in block.reads if reverse else block.writes:
        accessed.setdefault(region.buffer, []).append([from_range(r) for r in region.region])
    required: dict[tir.Buffer, list[Box]] = {buffer: [] for buffer in accessed}
    analyzer = Analyzer()
    for other in needed:
        realize = tree.realize(other)
        values = bindings(realize)
        declared = with_regions(other)
        for region in declared.writes if reverse else declared.reads:
            if region.buffer in required:
                region = exact_region(other, region, writing=True) if reverse else region
                scope = "global" if reverse else region.buffer.scope
                domain = loop_domain(tree, tree.parent(realize), loop, scope)
                intervals = {var: from_range(span) for var, span in domain.items()}
                required[region.buffer].append([_relax(r, values, intervals, analyzer) for r in region.region])
    return accessed, required


def _relax(
    span: tir.Range, values: dict[tir.Var, Expr], domain: dict[tir.Var, Interval], analyzer: Analyzer
) -> Interval:
    low, extent = substitute(span.min, values), substitute(span.extent, values)
    high = analyzer.simplify(c.add(low, c.sub(extent, 1)))
    return eval_range(low, high, domain, analyzer)
