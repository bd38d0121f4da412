"""Region cover and stage pipelines: do producers write all elements that their consumers read?

The place of a producer and a consumer of one buffer is the innermost loop or block around both. The region that the
producer writes in one iteration of the place must contain the region that the consumer reads there. Producers count
by a lower bound of their region, consumers by an upper bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import NOTHING, Interval, from_range, meet
from mlcc.arith.min_max import prove_less_equal
from mlcc.arith.proofs import linear_terms
from mlcc.arith.region_bound import Box, lower_bound, union_lower_bound, upper_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm, Range
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import analyzer_of, bindings, iterations_key, loop_domain
from mlcc.passes.schedule.analysis.scope import DepKind, scope_info
from mlcc.passes.schedule.tree import Tree

Violation = tuple[str, tuple[tir.Stmt, ...]]  # why, and the places to look at


def stage_pipeline_violation(tree: Tree, scope: tir.Block) -> Violation | None:
    """Return why the blocks of `scope` form no pipeline of stages, with the blocks to mark; None if they form one."""
    key = ("pipeline", scope)
    if key not in tree.cache:
        tree.cache[key] = _pipeline_violation(tree, scope)
    return tree.cache[key]  # type: ignore[no-any-return]


def _pipeline_violation(tree: Tree, scope: tir.Block) -> Violation | None:
    info = scope_info(tree, scope)
    for dep in info.deps:
        if dep.kind is DepKind.WAR:
            words = f"`{dep.dst.name}` writes `{dep.buffer.name}` after `{dep.src.name}` has read it"
            return words, (dep.src, dep.dst)
    return next((w for b in info.by_dst if (w := region_cover_violation(tree, b)) is not None), None)


def is_stage_pipeline(tree: Tree, scope: tir.Block) -> bool:
    return stage_pipeline_violation(tree, scope) is None


def region_cover(tree: Tree, block: tir.Block) -> bool:
    """Return True if the producers of `block` in its scope write all elements of their buffers that it reads."""
    return region_cover_violation(tree, block) is None


def region_cover_violation(tree: Tree, block: tir.Block) -> Violation | None:
    """Return a message on a buffer of which `block` reads more than its producers write, and the blocks to mark.

    None if there is no such buffer.
    """
    key = ("cover", block)
    if key not in tree.cache:
        tree.cache[key] = _cover_violation(tree, block)
    return tree.cache[key]  # type: ignore[no-any-return]


def uncovered_inputs(tree: Tree, block: tir.Block, buffer: tir.Buffer) -> Violation | None:
    """Return why `block`, or a block around it, may read elements of `buffer` that earlier blocks of its scope leave
    out, and the blocks to mark; None if each reads only what was written.
    """
    for inner in (block, *(at for at in tree.ancestors(block) if isinstance(at, tir.Block))):
        scope = tree.scope(inner)
        if scope is None or not any(region.buffer is buffer for region in inner.reads):
            continue
        deps = scope_info(tree, scope).sources(inner)
        sources = dict.fromkeys(d.src for d in deps if d.kind is DepKind.RAW and d.buffer is buffer)
        violation = _uncovered_by(tree, inner, list(sources), buffer)
        if violation is not None:
            return violation
    return None


def _cover_violation(tree: Tree, block: tir.Block) -> Violation | None:
    scope = tree.scope(block)
    if scope is None:
        return None
    sources = [d.src for d in scope_info(tree, scope).sources(block) if d.kind is DepKind.RAW]
    if not sources:
        return None
    blocks = [block, *dict.fromkeys(sources)]
    key = ("cover", *(iterations_key(tree, b) for b in blocks))
    return tree.memoized(key, lambda: _uncovered_by(tree, block, blocks[1:]))  # type: ignore[no-any-return]


def _uncovered_by(
    tree: Tree, block: tir.Block, sources: list[tir.Block], only: tir.Buffer | None = None
) -> Violation | None:  # fmt: skip
    path: list[tir.Stmt] = [s for s in tree.ancestors(block) if isinstance(s, (tir.For, tir.Block))]
    places: dict[tir.Stmt, list[tir.Block]] = {place: [] for place in path}
    for source in sources:
        places[common_ancestor(tree, source, block)].append(source)
    for place, blocks in places.items():
        for region in block.reads if blocks else ():
            if only is not None and region.buffer is not only:
                continue
            words = _uncovered(tree, block, region, blocks, place)
            if words is not None:
                return words
    return None


def _uncovered(
    tree: Tree, block: tir.Block, region: tir.BufferRegion, sources: list[tir.Block], place: tir.Stmt
) -> Violation | None:
    buffer = region.buffer
    writers = [s for s in sources if any(w.buffer is buffer for w in s.writes)]
    if not writers or any(writes_all(tree, w, buffer, place) for w in writers):
        return None
    analyzer = analyzer_of(tree)
    produced = produced_region(tree, buffer, writers, place, analyzer)
    used = consumed_region(tree, block, region, place, analyzer)
    if covers(buffer.shape, produced, used, analyzer):
        return None
    names = " and ".join(f"`{w.name}`" for w in writers)
    where = f" in one iteration of `{place.var.name}`" if isinstance(place, tir.For) else ""
    words = f"`{block.name}` reads {region_text(buffer, used)}{where}, of which "
    if any(i.empty for i in produced):
        words += f"{names} may not write all elements"
    else:
        words += f"{names} {'write' if len(writers) > 1 else 'writes'} {region_text(buffer, produced)}"
    return words, (*writers, block)


def writes_all(tree: Tree, block: tir.Block, buffer: tir.Buffer, place: tir.Stmt) -> bool:
    """Return True if a block visibly writes every element of a buffer in one iteration of `place`.

    Each dimension has an index of loops below `place` that spans it. Nearly all producers have this form, and it takes
    20 us to check; the region of others takes 3 ms.
    """
    realize = tree.realize(block)
    if tir.const_int(realize.predicate) != 1:
        return False
    axes = bindings(realize)
    below = loop_domain(tree, tree.parent(realize), place)
    same = analyzer_of(tree).same
    for region in block.writes:
        if region.buffer is buffer and all(
            tir.const_int(r.extent) == 1 and _spans(r.min, axes, below, size, same)
            for r, size in zip(region.region, buffer.shape, strict=True)
        ):
            return True
    return False


def _spans(
    index: Expr, axes: dict[tir.Var, Expr], loops: dict[tir.Var, Range], size: Expr, same: Callable[[Expr, Expr], bool]
) -> bool:
    """Return True if `index` runs from 0 up to `size`: a loop, or several in mixed radix as in `i * 12 + j * 4 + k`.

    Removes the loops that it uses from `loops`. Only the outermost may have a symbolic extent.
    """
    reached = 1
    terms = linear_terms(index)
    for at, (value, scale) in enumerate(sorted(terms, key=lambda term: term[1])):
        value = axes.get(value, value)  # type: ignore[call-overload]
        if not isinstance(value, tir.Var):
            return len(terms) == 1 and tir.const_int(size) == 1 and tir.const_int(value) == 0
        domain = loops.pop(value, None)
        if domain is None or tir.const_int(domain.min) != 0 or scale != reached:
            return False
        extent = tir.const_int(domain.extent)
        if extent is None:
            return at + 1 == len(terms) and same(c.mul(domain.extent, c.const(reached, size.dtype)), size)
        reached *= extent
    return tir.const_int(size) == reached


def common_ancestor(tree: Tree, one: tir.Stmt, two: tir.Stmt) -> tir.Stmt:
    """The innermost loop or block around both."""
    above = {id(s) for s in tree.ancestors(one)}
    return next(s for s in tree.ancestors(two) if id(s) in above and isinstance(s, (tir.For, tir.Block)))


# ---------------------------------------------------------------- regions of blocks over loops


def over_loops(realize: tir.BlockRealize, ranges: Iterable[Range]) -> list[Range]:
    """Return ranges over the axes of a block as ranges over the loops around it."""
    values = bindings(realize)
    return [Range(substitute(r.min, values), substitute(r.extent, values)) for r in ranges]


def relaxed_upper(
    tree: Tree, block: tir.Block, region: tir.BufferRegion, high: tir.Stmt, analyzer: Analyzer | None = None
) -> Box:
    """Return an upper bound of the part of a region that `block` accesses, over the loops up to `high`."""
    realize = tree.realize(block)
    domain = loop_domain(tree, tree.parent(realize), high, region.buffer.scope)
    return upper_bound(over_loops(realize, region.region), domain, realize.predicate, analyzer or analyzer_of(tree))


def relaxed_lower(
    tree: Tree, block: tir.Block, region: tir.BufferRegion, high: tir.Stmt, analyzer: Analyzer | None = None
) -> Box:
    """Return a lower bound of the part of a region that `block` accesses, over the loops up to `high`.

    The box is empty if none is known.
    """
    realize = tree.realize(block)
    domain = loop_domain(tree, tree.parent(realize), high, region.buffer.scope)
    bound = lower_bound(over_loops(realize, region.region), domain, realize.predicate, analyzer or analyzer_of(tree))
    return [NOTHING] * len(region.region) if bound is None else bound


def produced_region(
    tree: Tree, buffer: tir.Buffer, writers: Iterable[tir.Block], high: tir.Stmt, analyzer: Analyzer | None = None
) -> Box:
    """Return a lower bound of the part of `buffer` that the blocks together write in one iteration of `high`."""
    boxes = [relaxed_lower(tree, b, w, high, analyzer) for b in writers for w in b.writes if w.buffer is buffer]
    return union_lower_bound(boxes)


def consumed_region(
    tree: Tree, block: tir.Block, region: tir.BufferRegion, high: tir.Stmt, analyzer: Analyzer | None = None
) -> Box:
    """Return an upper bound of the part of a region that `block` reads in one iteration of `high`."""
    return relaxed_upper(tree, block, region, high, analyzer)


def covers(shape: tuple[Expr, ...], produced: Box, used: Box, analyzer: Analyzer) -> bool:
    """Return True if `produced` contains the part of `used` inside a buffer of this shape."""
    return all(_contains(n, a, b, analyzer) for n, a, b in zip(shape, produced, used, strict=True))


def _contains(extent: Expr, produced: Interval, used: Interval, analyzer: Analyzer) -> bool:
    if produced.empty:
        return False
    if used.empty:
        return True
    whole = from_range(Range(IntImm(extent.dtype, 0), extent))
    a, b = _clip(produced, whole, analyzer), _clip(used, whole, analyzer)
    if a.low is b.low and a.high is b.high and a.low is not None and a.high is not None:
        return True
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return _at_most(a.low, b.low, analyzer) and _at_most(b.high, a.high, analyzer)


def _at_most(a: Expr, b: Expr, analyzer: Analyzer) -> bool:
    below = c.less_equal(analyzer.simplify(c.sub(a, b)), IntImm(a.dtype, 0))
    return analyzer.prove(below) or prove_less_equal(a, b, analyzer)


def _clip(interval: Interval, whole: Interval, analyzer: Analyzer) -> Interval:
    low, high = (None if e is None else analyzer.simplify(e) for e in (interval.low, interval.high))
    return meet(Interval(low, high), whole, analyzer)


def region_text(buffer: tir.Buffer, box: Box) -> str:
    """Return the text of a region for messages, such as `C[0:16, vj]`."""
    return f"`{buffer.name}[{', '.join(_interval_text(i) for i in box)}]`"


def _interval_text(interval: Interval) -> str:
    if interval.is_point:
        return str(interval.low)
    simplify = Analyzer().simplify
    low = "" if interval.low is None else str(simplify(interval.low))
    high = "" if interval.high is None else str(simplify(c.add(interval.high, 1)))
    return f"{low}:{high}"
