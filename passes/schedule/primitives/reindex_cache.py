"""reindex_cache_read and reindex_cache_write: a cache for one block, at indices that the caller chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.arith.index_map import IndexMapError, map_indices, map_shape, non_surjective_inverse
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import TRUE, Expr, IterKind, Range
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.scope import scope_info
from mlcc.passes.schedule.buffers import BufferArg, region_of
from mlcc.passes.schedule.index_maps import IndexMapArg, index_dtype, resolve_sampled
from mlcc.passes.schedule.primitives.cache import check_no_prior_value
from mlcc.passes.schedule.primitives.reindex import accesses, in_bounds
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import (
    InsertionPoint,
    Stage,
    copy_block,
    dependents,
    driving_loops,
    insertion_point_after,
    only_writer,
    stage_in_loops,
    with_new_data,
)
from mlcc.passes.schedule.rewrite.retarget import Retarget, fixed_indexing
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.storage import check_scope
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def reindex_cache_read(
    state: State, block: BlockRef, read_buffer_index: BufferArg, storage_scope: str, index_map: IndexMapArg
) -> BlockRef:
    """Copy a buffer that a block reads to a cache that the block reads at other indices.

    `index_map` takes the block's axes to indices of the cache: `lambda i, j, k: (k, i)`.

    Before:  C[vi, vj] += A[vi, vk] * B[vk, vj]
    After:   A_shared[vk, vi] = A[vi, vk]        # the block "A_shared", which is returned
             C[vi, vj] += A_shared[vk, vi] * B[vk, vj]

    Refused unless the block reads one element at a time (E0643), at indices that use the same axes as those of the
    map, which must not take two elements to one (E0653); for an unknown scope (E0641); if several blocks write the
    buffer (E0640); if an index is computed only after the copy (E0642); and if the scope of the block is no pipeline
    (E0659).
    """
    check_scope(storage_scope)
    tree, node = block.tree, block.block
    place = read_buffer_index.of(node, "read")
    buffer = place.buffer
    scope = scope_root(tree, node, require_stage_pipeline=True)
    region = region_of(node.reads, buffer, node)
    assert region is not None
    if region_of(node.writes, buffer, node) is not None:
        raise Refusal("E0642", f"block `{node.name}` both reads and writes `{buffer.name}`", node)
    if any(guarded and not in_bounds(node, buffer, at) for at, guarded in accesses(node, buffer)):
        raise Refusal(
            "E0643", f"block `{node.name}` reads `{buffer.name}` under a condition, without which it may be outside of"
            " the buffer, and so would a copy", node,
        )  # fmt: skip
    writer = only_writer(tree, scope, buffer)
    spot = (
        InsertionPoint(scope, scope.body[0]) if writer is None else insertion_point_after(tree, scope, writer, [node])
    )
    state.recorded["read_buffer_index"] = place.index
    return _insert_reindexed(state, block, region, storage_scope, index_map, spot, writing=False)


@primitive()
def reindex_cache_write(
    state: State, block: BlockRef, write_buffer_index: BufferArg, storage_scope: str, index_map: IndexMapArg
) -> BlockRef:
    """Let a block write to a cache at other indices, and copy that to the buffer afterwards.

    `index_map` takes the block's axes to indices of the cache: `lambda i, j, k: (j, i)`.

    Before:  C[vi, vj] += A[vi, vk] * B[vk, vj]
    After:   C_local[vj, vi] += A[vi, vk] * B[vk, vj]
             C[vi, vj] = C_local[vj, vi]        # the block "C_local", which is returned

    Refused as `reindex_cache_read` is.
    """
    check_scope(storage_scope)
    tree, node = block.tree, block.block
    place = write_buffer_index.of(node, "write")
    buffer = place.buffer
    scope = scope_root(tree, node, require_stage_pipeline=True)
    region = region_of(node.writes, buffer, node)
    assert region is not None
    only_writer(tree, scope, buffer)
    check_no_prior_value(tree, node, buffer)
    spot = insertion_point_after(tree, scope, node, dependents(tree, scope, node))
    state.recorded["write_buffer_index"] = place.index
    return _insert_reindexed(state, block, region, storage_scope, index_map, spot, writing=True)


def _insert_reindexed(
    state: State,
    ref: BlockRef,
    region: tir.BufferRegion,
    storage: str,
    arg: IndexMapArg,
    spot: InsertionPoint,
    writing: bool,
) -> BlockRef:
    tree, block = ref.tree, ref.block
    index_map, state.recorded["index_map"] = resolve_sampled(ref, arg.of(len(block.iter_vars), index_dtype(block)))
    old = _element_indices(block, region, writing)
    axes = [axis.var for axis in block.iter_vars]
    try:
        new = map_indices(index_map, axes)
        shape = map_shape(index_map, [axis.dom.extent for axis in block.iter_vars])
    except IndexMapError as exc:
        raise Refusal("E0653", f"the index map does not fit block `{block.name}`: {exc}", block) from None
    used = _used_axes(block, region.buffer, old, new)
    _check_one_to_one(block, index_map, used)
    _check_indices_known(tree, block, (*old, *new), spot)
    cache = _cache(region.buffer, storage, shape)
    stage = _stage(tree, ref.realize, used, ElementCopy(region.buffer, old, cache, new, writing), spot)
    inside = {n for n in walk(block) if isinstance(n, tir.Block)} if writing else {block}
    retarget = Retarget(
        region.buffer, cache, applies_to=inside.__contains__, indexing=fixed_indexing(new), stores=writing
    )
    edit = Rebuild(tree)
    edit.put(ref.realize, retarget.visit(ref.realize))
    spot.insert(edit, stage)
    scope = tree.scope(block)
    assert scope is not None
    edit.allocate(scope, cache)
    state.update(ref.func_name, edit, reuse=retarget.reuse)
    return state.block_ref(ref.func_name, stage.block)


def _element_indices(block: tir.Block, region: tir.BufferRegion, writing: bool) -> tuple[Expr, ...]:
    """The indices of a region of one element; refuses (E0643) a larger one."""
    if any(tir.const_int(span.extent) != 1 for span in region.region):
        verb = "writes" if writing else "reads"
        raise Refusal(
            "E0643", f"block `{block.name}` {verb} more than one element of `{region.buffer.name}` at a time",
            block, f"`cache_{'write' if writing else 'read'}` accepts any region",
        )  # fmt: skip
    return tuple(span.min for span in region.region)


def _used_axes(block: tir.Block, buffer: tir.Buffer, old: Sequence[Expr], new: Sequence[Expr]) -> list[tir.IterVar]:
    """Return the axes in the indices; refuse (E0653) an axis that is only in the old ones or only in the new ones."""
    before = {v for index in old for v in used_vars(index)}
    after = {v for index in new for v in used_vars(index)}
    for axis in block.iter_vars:
        if (axis.var in before) != (axis.var in after):
            names = ", ".join(f"`{a.var.name}`" for a in block.iter_vars if a.var in before) or "none"
            where = "the index map leaves out" if axis.var in before else "the index map uses"
            raise Refusal(
                "E0653", f"{where} the axis `{axis.var.name}`, and `{buffer.name}[{', '.join(map(str, old))}]` "
                f"{'depends' if axis.var in before else 'does not depend'} on it", block,
                f"the map must use {names} of the axes of block `{block.name}`",
            )  # fmt: skip
    return [axis for axis in block.iter_vars if axis.var in before]


def _check_one_to_one(block: tir.Block, index_map: tir.IndexMap, used: list[tir.IterVar]) -> None:
    """Refuse (E0653) a map that may put two elements in one place."""
    kept = [var for var, axis in zip(index_map.indices, block.iter_vars, strict=True) if axis in used]
    plain = tir.IndexMap(tuple(kept), tuple(_without_constants(index) for index in index_map.result))
    ranges = [Range(c.const(0, a.dom.extent.dtype), a.dom.extent) for a in used]
    what = "the index map may put several elements of the buffer in the same place of the cache"
    try:
        back, _ = non_surjective_inverse(plain, ranges)
    except IndexMapError as exc:
        raise Refusal("E0653", f"{what}: {exc}", block) from None
    analyzer = Analyzer()
    for var, span in zip(kept, ranges, strict=True):
        analyzer.bind(var, span)
    recovered = map_indices(back, plain.result, analyzer)
    for var, value in zip(kept, recovered, strict=True):
        if not analyzer.prove_equal(value, var):
            raise Refusal("E0653", f"{what}: the indices do not determine `{var.name}`", block)


def _check_indices_known(tree: Tree, block: tir.Block, indices: Sequence[Expr], spot: InsertionPoint) -> None:
    """Refuse (E0642) indices that load a buffer which is written after the copy, or between it and `block`."""
    scope = tree.scope(block)
    assert scope is not None
    info = scope_info(tree, scope)
    behind = [r.block for r in tree.child_realizes(spot.before)] if spot.before is not None else []
    first = min(info.blocks.index(one) for one in (block, *behind))
    for load in (node for index in indices for node in walk(index) if isinstance(node, tir.BufferLoad)):
        for writer in info.writers.get(load.buffer, ()):
            if info.blocks.index(writer) >= first:
                raise Refusal(
                    "E0642", f"the copy would use the index `{load}` before `{writer.name}` writes it", (block, writer),
                    f'inline the index first: `sch.compute_inline("{writer.name}")`',
                )  # fmt: skip


def _without_constants(index: Expr) -> Expr:
    """Return the index without constant factors and terms, which distinguishes the same elements."""
    match index:
        case tir.Mul(lhs=rest, rhs=tir.IntImm(value=factor)) | tir.Mul(lhs=tir.IntImm(value=factor), rhs=rest) if (
            factor
        ):
            return _without_constants(rest)
        case (
            tir.Add(lhs=rest, rhs=tir.IntImm())
            | tir.Add(lhs=tir.IntImm(), rhs=rest)
            | tir.Sub(lhs=rest, rhs=tir.IntImm())
        ):
            return _without_constants(rest)
    return index


def _cache(buffer: tir.Buffer, storage: str, shape: tuple[Expr, ...]) -> tir.Buffer:
    cached = replace(buffer, name=f"{buffer.name}_{storage}", shape=shape, strides=(), axis_separators=())
    return with_new_data(cached, storage)


# ---------------------------------------------------------------- the stage


@dataclass(frozen=True, slots=True)
class ElementCopy:
    """One element, of a buffer and of its cache."""

    buffer: tir.Buffer
    old: tuple[Expr, ...]
    cache: tir.Buffer
    new: tuple[Expr, ...]
    writing: bool


def _stage(
    tree: Tree, realize: tir.BlockRealize, used: list[tir.IterVar], copy: ElementCopy, spot: InsertionPoint
) -> Stage:
    """Return the loops and axes of the block on which the indices depend, around the copy of one element."""
    taken = {id(axis) for axis in used}
    pairs = [(a, v) for a, v in zip(realize.block.iter_vars, realize.values, strict=True) if id(a) in taken]
    loops = driving_loops((v for _, v in pairs), _loops_below(tree, realize, spot.holder))
    fresh: dict[tir.Var, Expr] = {loop.var: tir.Var(loop.var.name, loop.var.dtype) for loop in loops}
    spans = [Range(substitute(loop.min, fresh), substitute(loop.extent, fresh)) for loop in loops]
    axes = []
    values = []
    for axis, value in pairs:
        var = tir.Var(axis.var.name, axis.var.dtype)
        values.append(substitute(value, fresh))
        fresh[axis.var] = var
        axes.append(tir.IterVar(var, axis.dom, IterKind.SPATIAL))
    old = [substitute(index, fresh) for index in copy.old]
    new = [substitute(index, fresh) for index in copy.new]
    sides = ((copy.cache, new), (copy.buffer, old)) if copy.writing else ((copy.buffer, old), (copy.cache, new))
    block = copy_block(copy.cache.name, axes, *sides)
    predicate = _guard(tree, realize, loops, [value for _, value in pairs], spot)
    inner = tir.BlockRealize(tuple(values), substitute(predicate, fresh), block)
    return stage_in_loops([(fresh[o.var], span) for o, span in zip(loops, spans, strict=True)], inner)  # type: ignore[misc]


def _loops_below(tree: Tree, realize: tir.BlockRealize, holder: tir.Stmt) -> list[tir.For]:
    """Return the loops between a block and `holder`, outermost first."""
    loops: list[tir.For] = []
    for at in tree.ancestors(realize):
        if at is holder:
            break
        if isinstance(at, tir.For):
            loops.append(at)
    return loops[::-1]


def _guard(
    tree: Tree, realize: tir.BlockRealize, loops: list[tir.For], values: Sequence[Expr], spot: InsertionPoint
) -> Expr:
    """Return the conjuncts of the predicate that hold for the copy: they use no loop that the copy lacks.

    `loops` are the copy's own. Refuses (E0643) a bound on what the copy's axes depend on and on loops that it has not.
    """
    others = {loop.var for loop in _loops_below(tree, realize, spot.holder)} - {loop.var for loop in loops}
    bound = used_vars(tuple(values))
    guard: Expr = TRUE
    for part in conjunct_operands(realize.predicate):
        used = used_vars(part)
        if used & bound and used & others:
            raise Refusal(
                "E0643", f"the predicate `{part}` of block `{realize.block.name}` relates loops of the copy to loops"
                " outside of it", realize,
            )  # fmt: skip
        if not used & others:
            guard = c.logical_and(guard, part)
    return guard
