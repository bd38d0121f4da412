"""Queries of blocks for the generic rules: data reuse to tile for, reductions to split, producers to inline."""

from __future__ import annotations

import math
from collections.abc import Collection

from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import IterKind
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.analysis.bindings import is_trivial_binding, loop_iter_kind
from mlcc.passes.schedule.analysis.conditions import reduction_block_violation
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.state import BlockRef, LoopRef
from mlcc.passes.schedule.tree import Tree

TILING = "meta_schedule.tiling_structure"
_SPATIAL_OR_REDUCE = (IterKind.SPATIAL, IterKind.REDUCE)


def block_of(sch: Schedule, block: BlockRV) -> BlockRef:
    """Return the current block of a handle."""
    return sch.state.find_block(block)


def loop_of(sch: Schedule, loop: LoopRV) -> LoopRef:
    """Return the current loop of a handle."""
    ref = sch.state.find_loop(loop)
    assert isinstance(ref, LoopRef), "the location is not a loop"
    return ref


def has_block(sch: Schedule, block: BlockRV) -> bool:
    """Return True if the block still exists."""
    try:
        sch.state.find_block(block)
    except Refusal:
        return False
    return True


def annotation(sch: Schedule, place: BlockRV | LoopRV, key: str) -> object:
    """Return the value of an annotation as int, float, str, list or dict, None if it is absent."""
    return python_value(sch.get(place).annotations.get(key))


def python_value(value: object) -> object:
    """Unwrap a value of an annotation from TensorIR nodes."""
    if isinstance(value, (tir.IntImm, tir.FloatImm, tir.StringImm)):
        return value.value
    if isinstance(value, (list, tuple)):
        return [python_value(v) for v in value]
    return value


def is_root(ref: BlockRef) -> bool:
    """Return True if the block is the root block of its function."""
    return ref.tree.scope(ref.block) is None


def is_spatial(block: tir.Block) -> bool:
    """Return True if all axes of the block are spatial."""
    return all(axis.kind is IterKind.SPATIAL for axis in block.iter_vars)


def is_spatial_func(tree: Tree) -> bool:
    """Return True if all axes of all blocks are spatial."""
    return all(is_spatial(realize.block) for realize in tree.realizes)


def has_been_tiled(block: tir.Block) -> bool:
    """Return True if multi-level tiling has been applied to the block."""
    return TILING in block.annotations


def needs_multi_level_tiling(ref: BlockRef) -> bool:
    """Return True for a reduction with data reuse: it reads buffers that not all of its spatial axes index."""
    block = ref.block
    if has_been_tiled(block) or len(block.writes) != 1 or not block.reads or is_spatial(block):
        return False
    if not is_trivial_binding(ref.tree, block):
        return False
    written = block.writes[0].buffer
    axes = [a.var for a in block.iter_vars if a.kind is IterKind.SPATIAL and not _is_unit(a.dom)]
    seen: set[tir.Buffer] = set()
    unused = 0
    for region in block.reads:
        if region.buffer in seen:
            return False
        seen.add(region.buffer)
        if region.buffer is written:
            continue
        if any(tir.const_int(r.extent) is None for r in region.region):
            return False
        used = used_vars(tuple(r.min for r in region.region))
        unused += sum(axis not in used for axis in axes)
    return unused >= 1


def _is_unit(dom: tir.Range) -> bool:
    return tir.const_int(dom.min) == 0 and tir.const_int(dom.extent) == 1


def needs_rfactor(ref: BlockRef, max_parallel_extent: int) -> bool:
    """Return True for a reduction, alone in its nest, whose spatial axes have too little parallelism."""
    tree, block = ref.tree, ref.block
    scope = tree.scope(block)
    if not block.writes or scope is None or reduction_block_violation(tree, block, scope) is not None:
        return False
    if not is_trivial_binding(tree, block) or has_been_tiled(block):
        return False
    loops = tree.loops_above(block)
    kinds = [loop_iter_kind(tree, loop) for loop in loops]
    if IterKind.REDUCE not in kinds or any(kind not in _SPATIAL_OR_REDUCE for kind in kinds):
        return False
    inner: list[tir.Stmt] = [*loops[1:], tree.realize(block)]
    if any(loop.body != (below,) for loop, below in zip(loops, inner, strict=True)):
        return False
    extents = [tir.const_int(loop.extent) for loop in loops]
    known = [e for e in extents if e is not None]
    if len(known) != len(loops) or -1 in known:
        return False
    space = math.prod(e for e, kind in zip(known, kinds, strict=True) if kind is IterKind.SPATIAL)
    reduced = math.prod(e for e, kind in zip(known, kinds, strict=True) if kind is IterKind.REDUCE)
    if needs_multi_level_tiling(ref):
        return not (space >= reduced or space > max_parallel_extent)
    return reduced > 1


def calls_any(node: tir.Stmt, ops: Collection[str]) -> bool:
    """Return True if the statement calls one of the operators."""
    return any(isinstance(n, tir.Call) and isinstance(n.op, tir.Op) and n.op.name in ops for n in walk(node))


def read_pattern(read: tir.BufferRegion, write: tir.BufferRegion) -> tuple[bool, bool]:
    """Classify a point-wise read of a block against its write: (injective, ordered).

    Injective: each index of the write occurs at most once in the read. Ordered: in the same order. Neither holds if an
    index is anything but an axis plus a constant.
    """
    places: dict[tir.Var, int] = {}
    for at, span in enumerate(write.region):
        if tir.const_int(span.extent) is None or not isinstance(span.min, tir.Var):
            return False, False
        places.setdefault(span.min, at)
    mapped: list[int] = []
    for span in read.region:
        if tir.const_int(span.extent) is None:
            return False, False
        if tir.const_int(span.min) is not None:
            continue
        var = _shifted(span.min)
        if var is None or var not in places:
            return False, False
        mapped.append(places[var])
    return len(set(mapped)) == len(mapped), mapped == sorted(mapped)


def _shifted(expr: tir.Expr) -> tir.Var | None:
    """The variable of `v`, `v + 1`, `v - 1`."""
    match expr:
        case tir.Var():
            return expr
        case tir.Add(lhs=tir.Var() as var, rhs=tir.IntImm()) | tir.Add(lhs=tir.IntImm(), rhs=tir.Var() as var):
            return var
        case tir.Sub(lhs=tir.Var() as var, rhs=tir.IntImm()):
            return var
    return None


def reduction_innermost(sch: Schedule, block: BlockRV) -> tuple[LoopRV, int]:
    """Reorder the reduction loops to the inside and fuse them; the fused loop, and how many spatial loops there are."""
    loops = sch.get_loops(block)
    kinds = [loop_iter_kind((ref := loop_of(sch, loop)).tree, ref.loop) for loop in loops]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind is IterKind.SPATIAL]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind is IterKind.REDUCE]
    if spatial + reduced != loops:
        sch.reorder(*spatial, *reduced)
    return (sch.fuse(*reduced) if len(reduced) > 1 else reduced[0]), len(spatial)
