"""reindex: a copy of a buffer that is laid out by the axes of the block that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import from_range
from mlcc.arith.region_bound import lower_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import children, replace, walk
from mlcc.ir.tir import TRUE, Expr, IntImm, IterKind, Range
from mlcc.ir.visit import has_block, substitute, used_vars
from mlcc.passes.schedule.analysis.bindings import analyzer_of, bindings, loop_domain
from mlcc.passes.schedule.analysis.block_access import exact_region
from mlcc.passes.schedule.analysis.checks import scope_root
from mlcc.passes.schedule.analysis.region_cover import covers, writes_all
from mlcc.passes.schedule.analysis.scope import finished_before
from mlcc.passes.schedule.buffers import BufferArg, region_of
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.cache_stage import (
    Stage,
    copy_block,
    covers_relaxed_region,
    stage_in_loops,
    with_new_data,
)
from mlcc.passes.schedule.rewrite.retarget import Retarget, fixed_indexing
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def reindex(state: State, block: BlockRef, buffer: BufferArg) -> BlockRef:
    """Copy a buffer that a block reads, or writes, from or to a buffer that is indexed by the block's axes.

    Before:  C[vi, vj] += A[vj, vi + vk]
    After:   A_reindex[v0, v1, v2] = A[v1, v0 + v2]        # the block "A_reindex_reindex", which is returned
             C[vi, vj] += A_reindex[vi, vj, vk]

    The axes are those that the indices use. Refused (E0643) unless the block loads or stores the buffer at one set of
    indices, with no block inside it and nothing but the block in its loops; and if its scope is no pipeline (E0659).
    """
    tree, node = block.tree, block.block
    place = buffer.of(node)
    state.recorded["buffer"] = place.pair
    old, writing = place.buffer, place.access == "write"
    scope = scope_root(tree, node, require_stage_pipeline=True)
    indices = _simplified(node, _indices(node, old))
    _check_not_updated(node, old)
    used = {v for index in indices for v in used_vars(index)}
    axes = [axis for axis in node.iter_vars if axis.var in used]
    new = _reindexed(old, axes)
    anchor = _outermost_loop(tree, scope, node)
    if writing:
        _check_writes_all(tree, scope, node, old)
    _check_covers_axes(tree, scope, node, old, axes, new.shape, writing)
    _check_no_other_use(tree, anchor, node, old, writing)
    stage = _stage(axes, indices, old, new, writing)
    retarget = Retarget(
        old, new, applies_to=lambda b: b is node, indexing=fixed_indexing(tuple(a.var for a in axes)), stores=True
    )
    edit = Rebuild(tree)
    realize = tree.realize(node)
    edit.put(realize, retarget.visit(realize))
    (edit.after if writing else edit.before)(anchor, stage.nest)
    edit.allocate(scope, new)
    state.update(block.func_name, edit, reuse=retarget.reuse)
    return state.block_ref(block.func_name, stage.block)


def _indices(block: tir.Block, buffer: tir.Buffer) -> tuple[Expr, ...]:
    """Return the indices at which the block accesses `buffer`; refuses (E0643) accesses at several."""
    if has_block(block.body) or has_block(block.init or ()):
        raise Refusal(
            "E0643", f"block `{block.name}` contains other blocks, and only innermost blocks have known accesses", block
        )
    common: tuple[Expr, ...] | None = None
    for indices, guarded in accesses(block, buffer):
        if common is not None and not all(structural_equal(a, b) for a, b in zip(common, indices, strict=True)):
            raise Refusal(
                "E0643", f"block `{block.name}` accesses `{buffer.name}` at different indices:"
                f" {_access_text(buffer, common)} and {_access_text(buffer, indices)}", block,
            )  # fmt: skip
        if guarded and not in_bounds(block, buffer, indices):
            raise Refusal(
                "E0643", f"block `{block.name}` accesses {_access_text(buffer, indices)} under a condition, without"
                " which the access may be out of bounds", block,
            )  # fmt: skip
        common = indices
    if common is None:
        raise Refusal("E0643", f"block `{block.name}` neither loads nor stores `{buffer.name}`", block)
    inner = {n.var for n in walk((*block.body, *(block.init or ()))) if isinstance(n, (tir.For, tir.Bind, tir.Let))}
    for var in inner & {v for index in common for v in used_vars(index)}:
        raise Refusal(
            "E0643", f"block `{block.name}` accesses {_access_text(buffer, common)}, and `{var.name}` varies inside the"
            " block but is not one of its axes", block,
        )  # fmt: skip
    return common


def _access_text(buffer: tir.Buffer, indices: tuple[Expr, ...]) -> str:
    return f"`{buffer.name}[{', '.join(map(str, indices))}]`"


def accesses(block: tir.Block, buffer: tir.Buffer) -> Iterator[tuple[tuple[Expr, ...], bool]]:
    """Yield the indices of loads and stores, and if a condition guards them; refuse (E0643) uses of the pointer."""
    stack: list[tuple[Any, bool]] = [(s, False) for s in (*block.body, *(block.init or ()))][::-1]
    while stack:
        node, guarded = stack.pop()
        match node:
            case tir.Buffer():
                continue
            case tir.Var() if node is buffer.data:
                raise Refusal("E0643", f"block `{block.name}` uses `{buffer.name}` by its pointer", block)
            case tir.BufferLoad(buffer=used, indices=indices) | tir.BufferStore(buffer=used, indices=indices):
                if used is buffer:
                    yield indices, guarded
            case tir.IfThenElse() | tir.Call(op=tir.Op(name="tir.if_then_else")) | tir.While():
                guarded = True
        stack += [(n, guarded) for n in children(node)][::-1]


def in_bounds(block: tir.Block, buffer: tir.Buffer, indices: tuple[Expr, ...]) -> bool:
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    return all(
        analyzer.prove(c.greater_equal(index, IntImm(index.dtype, 0))) and analyzer.prove(c.less(index, extent))
        for index, extent in zip(indices, buffer.shape, strict=True)
    )


def _simplified(block: tir.Block, indices: tuple[Expr, ...]) -> list[Expr]:
    """Return the indices in canonical form; a constant index stays as written."""
    analyzer = Analyzer()
    for axis in block.iter_vars:
        analyzer.bind(axis.var, axis.dom)
    simplified = [analyzer.simplify(index) for index in indices]
    return [old if isinstance(new, IntImm) else new for old, new in zip(indices, simplified, strict=True)]


def _check_not_updated(block: tir.Block, buffer: tir.Buffer) -> None:
    """Refuse (E0642) a buffer that the block updates in place: the copy has only one direction."""
    written = region_of(block.writes, buffer, block) is not None
    if written and block.init is None and region_of(block.reads, buffer, block) is not None:
        raise Refusal(
            "E0642", f"block `{block.name}` both reads and writes `{buffer.name}`, and the copy would have only one"
            " direction", block,
        )  # fmt: skip


def _reindexed(buffer: tir.Buffer, axes: list[tir.IterVar]) -> tir.Buffer:
    shape = tuple(c.add(axis.dom.min, axis.dom.extent) for axis in axes)
    reindexed = replace(buffer, name=f"{buffer.name}_reindex", shape=shape, strides=(), axis_separators=())
    return with_new_data(reindexed, buffer.scope)


def _outermost_loop(tree: Tree, scope: tir.Block, block: tir.Block) -> tir.Stmt:
    """Return the statement of the scope's body around the block; refuse (E0643) loops with other statements."""
    top: tir.Stmt = tree.realize(block)
    for at in tree.ancestors(top):
        if at is scope:
            return top
        if not isinstance(at, tir.For) or (isinstance(top, tir.For) and len(at.body) != 1):
            what = f"the loop `{at.var.name}`" if isinstance(at, tir.For) else "a branch"
            raise Refusal("E0643", f"{what} around block `{block.name}` is not part of a plain nest of loops", at)
        top = at
    raise AssertionError("the scope holds the block")


def _check_no_other_use(tree: Tree, anchor: tir.Stmt, block: tir.Block, buffer: tir.Buffer, writing: bool) -> None:
    """Refuse (E0642) another block in the same loops for which the copy, outside of them, would come too late."""
    for realize in tree.child_realizes(anchor):
        other = realize.block
        regions = other.reads if writing else other.writes
        if other is not block and region_of(regions, buffer, other) is not None:
            verb, when = ("reads", "late") if writing else ("writes", "early")
            raise Refusal(
                "E0642", f"`{other.name}` {verb} `{buffer.name}` in the same loops as `{block.name}`: a copy outside of"
                f" them comes too {when}", (block, other),
            )  # fmt: skip


def _check_writes_all(tree: Tree, scope: tir.Block, block: tir.Block, buffer: tir.Buffer) -> None:
    """Refuse (E0642) a block that leaves out some of what its axes reach: the copy would write garbage there."""
    region = region_of(block.writes, buffer, block)
    if region is not None and not covers_relaxed_region(tree, block, exact_region(block, region, writing=True), scope):
        raise Refusal(
            "E0642", f"block `{block.name}` may leave out some of `{buffer.name}`, so the copy would write garbage"
            " there", block,
        )  # fmt: skip


def _check_covers_axes(
    tree: Tree, scope: tir.Block, block: tir.Block, buffer: tir.Buffer, axes: list[tir.IterVar],
    shape: tuple[Expr, ...], writing: bool,
) -> None:  # fmt: skip
    """Refuse (E0642) a block of which the loops of the scope run a part, as they do in the parts of a partitioned loop.

    The copy is for the whole axes: garbage would be written, or read what is not written before the loops around.
    """
    realize, analyzer = tree.realize(block), analyzer_of(tree)
    values = bindings(realize)
    domain = loop_domain(tree, tree.parent(realize), scope)
    run = lower_bound(
        [Range(values[a.var], c.const(1, a.var.dtype)) for a in axes], domain, realize.predicate, analyzer
    )
    if not axes or run is not None and covers(shape, run, [from_range(axis.dom) for axis in axes], analyzer):
        return
    around = {id(at) for at in tree.ancestors(realize)}
    others = [r.block for r in tree.realizes if id(r) not in around and r is not realize]
    writers = [other for other in others if any(region.buffer is buffer for region in other.writes)]
    before = finished_before(tree, next(iter(tree.all_loops_above(scope)), realize), writers)
    root = tree.root
    assert root is not None
    if not writing and (not writers or any(w in before and writes_all(tree, w, buffer, root) for w in writers)):
        return
    what = "write garbage" if writing else f"read what is not yet in `{buffer.name}`"
    raise Refusal(
        "E0642",
        f"the loops in `{scope.name}` run only a part of block `{block.name}`, and the copy would {what}",
        block,
    )


def _stage(axes: list[tir.IterVar], indices: list[Expr], old: tir.Buffer, new: tir.Buffer, writing: bool) -> Stage:
    own = [tir.Var(f"v{n}", axis.var.dtype) for n, axis in enumerate(axes)]
    values = {axis.var: var for axis, var in zip(axes, own, strict=True)}
    theirs = [substitute(index, values) for index in indices]
    source, target = (new, old) if writing else (old, new)
    sides: tuple[list[Expr], list[Expr]] = (list(own), theirs) if writing else (theirs, list(own))
    doms = [axis.dom for axis in axes]
    iters = [tir.IterVar(var, dom, IterKind.SPATIAL) for var, dom in zip(own, doms, strict=True)]
    block = copy_block(f"{target.name}_reindex", iters, (source, sides[0]), (target, sides[1]))
    loops = [(tir.Var(f"ax{n}", axis.var.dtype), axis.dom) for n, axis in enumerate(axes)]
    return stage_in_loops(loops, tir.BlockRealize(tuple(var for var, _ in loops), TRUE, block))
