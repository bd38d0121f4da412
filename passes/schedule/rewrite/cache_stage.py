"""Stages that copy a buffer, or a part of it, to a cache or back, and their places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.arith.conditions import conjunct_operands
from mlcc.arith.intset import to_range
from mlcc.arith.region_bound import strict_bound, upper_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import children, replace
from mlcc.ir.tir import TRUE, Expr, ForKind, IntImm, IterKind, Range
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.bindings import bindings, loop_domain
from mlcc.passes.schedule.analysis.scope import DepKind, scope_info
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.rewrite.retarget import point
from mlcc.passes.schedule.tree import Rebuild, Tree

# ---------------------------------------------------------------- buffers


def buffer_in_scope(buffer: tir.Buffer, storage: str, shape: tuple[Expr, ...] | None = None) -> tir.Buffer:
    """A buffer like `buffer` in another storage scope, called `A_shared`; of another shape if one is given."""
    name = f"{buffer.name}_{storage}"
    return with_new_data(replace(buffer, name=name, shape=buffer.shape if shape is None else shape), storage)


def with_new_data(buffer: tir.Buffer, storage: str) -> tir.Buffer:
    """Return the buffer over new memory in a storage scope. The offset of a view is dropped (TVM keeps it)."""
    pointee = buffer.data.pointer.dtype if buffer.data.pointer is not None else buffer.dtype.element
    data = tir.Var(buffer.name, buffer.data.dtype, tir.PointerType(pointee, storage or "global"))
    if isinstance(buffer.elem_offset, tir.Var):
        return replace(buffer, data=data, elem_offset=None, offset_factor=1, strides=())
    return replace(buffer, data=data)


# ---------------------------------------------------------------- the stage


@dataclass(frozen=True, slots=True)
class Stage:
    """A copying block in its loops."""

    block: tir.Block
    nest: tir.Stmt


def stage_in_loops(loops: list[tuple[tir.Var, Range]], realize: tir.BlockRealize) -> Stage:
    """A block in serial loops, outermost first."""
    nest: tir.Stmt = realize
    for var, span in reversed(loops):
        nest = tir.For(var, span.min, span.extent, ForKind.SERIAL, (nest,))
    return Stage(realize.block, nest)


def driving_loops(values: Iterable[Expr], loops: Sequence[tir.For]) -> list[tir.For]:
    """Return those of `loops`, outermost first, on which the values depend, directly or by the range of such a loop."""
    used = {v for value in values for v in used_vars(value)}
    driving: list[tir.For] = []
    for loop in reversed(loops):
        if loop.var in used:
            driving.append(loop)
            used |= used_vars(loop.min) | used_vars(loop.extent)
    return driving[::-1]


def zero(like: Expr) -> Expr:
    return IntImm(like.dtype, 0)


def copy_block(
    name: str, axes: list[tir.IterVar], source: tuple[tir.Buffer, list[Expr]], target: tuple[tir.Buffer, list[Expr]]
) -> tir.Block:
    """target[...] = source[...]."""
    (read, from_), (written, to) = source, target
    return tir.Block(
        name, tuple(axes), (tir.BufferRegion(read, point(from_)),), (tir.BufferRegion(written, point(to)),),
        (tir.BufferStore(written, tir.BufferLoad(read.dtype, read, tuple(from_)), tuple(to)),),
    )  # fmt: skip


def copy_stage(
    region: tir.BufferRegion,
    source: tir.Buffer,
    target: tir.Buffer,
    storage: str,
    compact: bool,
    guard: Expr = TRUE,
    partial: bool = False,
    overhanging: Collection[int] = (),
) -> Stage:
    """Return the loops that copy `region` between its buffer and a cache, which is as large as the buffer or as
    `region`.

    They do where `guard` holds, and inside the buffer in the dimensions `overhanging`, where the region may leave it;
    `partial` says that others copy the rest. One of `source` and `target` is the buffer of
    the region, the other one the cache.
    """
    loops, axes, values = [], [], []
    whole: list[Expr] = []
    own: list[Expr] = []
    for n, (span, extent) in enumerate(zip(region.region, region.buffer.shape, strict=True)):
        loop = tir.Var(f"ax{n}", span.extent.dtype)
        loops.append((loop, Range(zero(span.extent), span.extent)))
        axis = tir.Var(f"v{n}", span.extent.dtype)
        dom = Range(zero(span.extent), span.extent) if compact else Range(zero(extent), extent)
        if partial and isinstance(span.min, IntImm):
            dom = span
        if n in overhanging:
            index = c.add(span.min, loop)
            inside = c.logical_and(c.less_equal(zero(index), index), c.less(index, extent))
            guard = c.logical_and(guard, inside)
        axes.append(tir.IterVar(axis, dom, IterKind.SPATIAL))
        values.append(loop if compact else c.add(span.min, loop))
        own.append(axis)
        whole.append(c.add(span.min, axis) if compact else axis)
    into, out = (own, whole) if target is not region.buffer else (whole, own)
    block = copy_block(f"{region.buffer.name}_{storage}", axes, (source, out), (target, into))
    return stage_in_loops(loops, tir.BlockRealize(tuple(values), guard, block))


# ---------------------------------------------------------------- places


@dataclass(frozen=True, slots=True)
class InsertionPoint:
    """An insertion point: before the statement `before`, or at the end of `holder`, the loop or scope around."""

    holder: tir.For | tir.Block
    before: tir.Stmt | None

    def insert(self, edit: Rebuild, stage: Stage) -> None:
        if self.before is not None:
            edit.before(self.before, stage.nest)
        else:
            edit.after(self.holder.body[-1], stage.nest)


def insertion_point_after(
    tree: Tree, scope: tir.Block, writer: tir.Block, users: Collection[tir.Block]
) -> InsertionPoint:
    """Between `writer` and the first of `users`, in the innermost place that holds both; without users at the end."""
    if not users:
        return InsertionPoint(scope, None)
    first = next((b for b in scope_info(tree, scope).blocks if b in users), None)
    if first is None:
        names = ", ".join(f"`{b.name}`" for b in users)
        raise Refusal("E0642", f"{names}: not in the scope `{scope.name}` of `{writer.name}`", tuple(users))
    order = scope_info(tree, scope).blocks
    if order.index(first) <= order.index(writer):
        how = "is the block that" if first is writer else f"comes before `{writer.name}`, which"
        raise Refusal("E0642", f"`{first.name}` {how} writes the buffer: it cannot read a copy", (first, writer))
    above = {id(s) for s in tree.ancestors(tree.realize(writer))}
    meeting = next(s for s in tree.ancestors(tree.realize(first)) if id(s) in above)
    before = tree.child_of(meeting, tree.realize(first))
    holder = next(s for s in (meeting, *tree.ancestors(meeting)) if isinstance(s, (tir.For, tir.Block)))
    return InsertionPoint(holder, before)


def dependents(tree: Tree, scope: tir.Block, writer: tir.Block) -> list[tir.Block]:
    """Return the blocks that depend on `writer` by a flow dependence."""
    return [d.dst for d in scope_info(tree, scope).dependents(writer) if d.kind is DepKind.RAW]


def only_writer(tree: Tree, scope: tir.Block, buffer: tir.Buffer) -> tir.Block | None:
    """Return the block of the scope that writes `buffer`, None if there is none; refuse (E0640) several."""
    writers = scope_info(tree, scope).writers.get(buffer, [])
    if len(writers) > 1:
        names = ", ".join(f"`{b.name}`" for b in dict.fromkeys(writers))
        raise Refusal(
            "E0640",
            f"only one block of `{scope.name}` may write `{buffer.name}`, but these do: {names}",
            tuple(writers),
        )
    if writers and all(w.buffer is not buffer for w in writers[0].writes):
        message = f"blocks inside `{writers[0].name}` write `{buffer.name}`, but it does not declare the write"
        raise Refusal("E0640", message, writers[0])
    return writers[0] if writers else None


# ---------------------------------------------------------------- regions


def relaxed_region(
    tree: Tree, block: tir.Block, region: tir.BufferRegion, high: tir.Stmt, guard: Expr = TRUE
) -> tir.BufferRegion:
    """Return the region that `block` accesses over the loops up to `high`, where its predicate and `guard` hold."""
    realize = tree.realize(block)
    values = bindings(realize)
    spans = [Range(substitute(r.min, values), substitute(r.extent, values)) for r in region.region]
    domain = loop_domain(tree, tree.parent(realize), high, region.buffer.scope)
    predicate = substitute(c.logical_and(realize.predicate, guard), values)
    box = upper_bound(spans, domain, predicate, Analyzer())
    shape = region.buffer.shape
    relaxed = tuple(to_range(i, Range(zero(n), n), Analyzer()) for i, n in zip(box, shape, strict=True))
    return clipped_region(tir.BufferRegion(region.buffer, relaxed))


def clipped_region(region: tir.BufferRegion) -> tir.BufferRegion:
    """Return the part of a region that lies in its buffer, as far as its ranges are constant."""
    spans = tuple(_inside(span, n) for span, n in zip(region.region, region.buffer.shape, strict=True))
    return tir.BufferRegion(region.buffer, spans)


def overhanging_dims(tree: Tree, scope: tir.Block, region: tir.BufferRegion) -> tuple[int, ...]:
    """Return the dimensions in which a region that `scope` declares may leave its buffer, as that of padding does."""
    analyzer = Analyzer()
    for node in reversed((scope, *tree.ancestors(scope))):
        for var, span in [(a.var, a.dom) for a in node.iter_vars] if isinstance(node, tir.Block) else ():
            analyzer.bind(var, span)

    def may_be_negative(value: Expr) -> bool:
        return -INF < analyzer.bound(analyzer.simplify(value)).min < 0

    sizes = zip(region.region, region.buffer.shape, strict=True)
    room = [(span.min, c.sub(size, c.add(span.min, span.extent))) for span, size in sizes]
    return tuple(n for n, ends in enumerate(room) if any(map(may_be_negative, ends)))


def covers_relaxed_region(
    tree: Tree, block: tir.Block, region: tir.BufferRegion, high: tir.Stmt, guard: Expr = TRUE
) -> bool:
    """Return True if the region of `relaxed` is exact: the block accesses all of it, for certain."""
    realize = tree.realize(block)
    values = bindings(realize)
    spans = [Range(substitute(r.min, values), substitute(r.extent, values)) for r in region.region]
    domain = loop_domain(tree, tree.parent(realize), high, region.buffer.scope)
    predicate = substitute(c.logical_and(realize.predicate, guard), values)
    return not spans or strict_bound(spans, domain, predicate, Analyzer()) is not None


def outer_guard(tree: Tree, block: tir.Block, high: tir.Stmt) -> Expr:
    """Return the conjuncts of the block's predicate that depend on no loop below `high`."""
    realize = tree.realize(block)
    below = set(loop_domain(tree, tree.parent(realize), high))
    guard: Expr = TRUE
    for part in conjunct_operands(realize.predicate):
        if not used_vars(part) & below:
            guard = c.logical_and(guard, part)
    return guard


def _inside(span: Range, extent: Expr) -> Range:
    """Return the part of a constant range that lies in a dimension: an upper bound may be too high."""
    low, size, end = tir.const_int(span.min), tir.const_int(span.extent), tir.const_int(extent)
    if low is None or size is None or end is None or (low >= 0 and low + size <= end):
        return span
    low, high = max(low, 0), min(low + size, end)
    return Range(c.const(low, span.min.dtype), c.const(high - low, span.extent.dtype)) if high > low else span


def nested_guard(block: tir.Block, buffer: tir.Buffer, writing: bool) -> Expr:
    """Return the condition under which nested blocks access `buffer`: any of their predicates.

    TRUE if the block also accesses it outside of nested blocks.
    """
    condition: Expr | None = None
    for realize in _nested(block, buffer):
        if realize is None:
            return TRUE
        regions = realize.block.writes if writing else realize.block.reads
        if any(r.buffer is buffer for r in regions):
            guard = substitute(realize.predicate, bindings(realize))
            condition = guard if condition is None else c.logical_or(condition, guard)
    return TRUE if condition is None else condition


def _nested(block: tir.Block, buffer: tir.Buffer) -> Iterator[tir.BlockRealize | None]:
    """Yield the blocks inside, outer ones first; None for an access of `buffer` outside of all of them."""
    stack: list[tuple[object, bool]] = [(s, True) for s in reversed(block.body)]
    while stack:
        node, direct = stack.pop()
        match node:
            case tir.BlockRealize():
                yield node
                stack += [(s, False) for s in reversed((*(node.block.init or ()), *node.block.body))]
                continue
            case tir.BufferLoad(buffer=used) | tir.BufferStore(buffer=used) if direct and used is buffer:
                yield None
            case tir.Var() if direct and node is buffer.data:
                yield None
            case tir.Buffer():
                continue
        stack += [(n, direct) for n in reversed(list(children(node)))]
