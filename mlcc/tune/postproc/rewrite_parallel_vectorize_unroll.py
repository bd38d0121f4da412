"""Carry out the annotations of `ParallelizeVectorizeUnroll`: parallelize, vectorize and unroll loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.tir import ForKind, IterKind
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import bindings, loop_iter_kind
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.state import BlockRef
from mlcc.passes.schedule.tree import Tree
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.schedulable import functions_with_blocks, root_block
from mlcc.tune.schedule_rule.analysis import block_of, is_spatial, python_value

_KEYS = ("parallel", "vectorize", "unroll_explicit", "unroll_implicit")


@dataclass(frozen=True, slots=True)
class _Annotations:
    """The values of the annotations, None for an absent one."""

    parallel: int | None
    vectorize: int | None
    unroll_explicit: int | None
    unroll_implicit: int | None

    @property
    def unroll(self) -> int:
        return max(self.unroll_explicit or 0, self.unroll_implicit or 0)


class RewriteParallelVectorizeUnroll(Postproc):
    """Parallelizes outer loops, vectorizes inner ones and unrolls. TVM: `RewriteParallelVectorizeUnroll`.

    The root block's annotations set the limits; each block's loop nest must allow it.
    """

    def apply(self, sch: Schedule) -> bool:
        for name in functions_with_blocks(sch):
            marks = _annotations(root_block(sch, name))
            if marks is not None:
                self._function(sch, name, marks)
        return True

    def _function(self, sch: Schedule, name: str, marks: _Annotations) -> None:
        root = sch.get_block(root_block(sch, name).name, name)
        for key in _KEYS:
            if getattr(marks, key) is not None:
                sch.unannotate(root, f"meta_schedule.{key}")
        for block in sch.get_child_blocks(root):
            loops = sch.get_loops(block)
            if loops:
                self._block(sch, block, loops, marks)

    def _block(self, sch: Schedule, block: BlockRV, loops: list[LoopRV], marks: _Annotations) -> None:
        outer, inner = _fusion_depths(block_of(sch, block), marks)
        first = loops[0]
        if outer == inner == len(loops):
            first, lanes = sch.split(sch.fuse(*loops), factors=[None, marks.vectorize])
            sch.parallel(first)
            sch.vectorize(lanes)
        else:
            if outer > 0:
                first = sch.fuse(*loops[:outer])
                sch.parallel(first)
                loops = [first] * outer + loops[outer:]
            if inner > 0:
                fused = sch.fuse(*loops[-inner:])
                sch.vectorize(fused)
                first = fused if inner == len(loops) else first
        if marks.unroll > 0 and not is_spatial(block_of(sch, block).block):
            sch.annotate(first, "pragma_auto_unroll_max_step", marks.unroll)
            sch.annotate(first, "pragma_unroll_explicit", int(marks.unroll_explicit is not None))


def _annotations(root: tir.Block) -> _Annotations | None:
    values = {key: python_value(root.annotations.get(f"meta_schedule.{key}")) for key in _KEYS}
    marks = _Annotations(**{key: value if isinstance(value, int) else None for key, value in values.items()})
    return None if marks == _Annotations(None, None, None, None) else marks


@dataclass(frozen=True, slots=True)
class _LoopInfo:
    """Properties of a loop: `extent` is None if not constant.

    `free`: no thread binding and no annotations; `alone`: its body is a single statement.
    """

    extent: int | None
    spatial: bool
    free: bool
    alone: bool


def _fusion_depths(ref: BlockRef, marks: _Annotations) -> tuple[int, int]:
    """Return the number of outer loops to fuse and parallelize, and of inner loops to fuse and vectorize; -1: none."""
    nest = ref.tree.loops_above(ref.block)
    loops = [_loop_info(ref.tree, loop) for loop in nest]
    limit = _contiguous_depth(ref, nest)
    outer = -1 if marks.parallel is None else _parallel_depth(loops, marks.parallel)
    inner = -1 if marks.vectorize is None else _vector_depth(loops, marks.vectorize, limit)
    if outer != -1 and inner != -1:
        rewritable = all(x.free and x.spatial and x.alone and x.extent is not None for x in loops)
        if rewritable and limit == len(loops):
            return len(loops), len(loops)
        outer = min(outer, len(loops) - inner)
    return outer, inner


def _loop_info(tree: Tree, loop: tir.For) -> _LoopInfo:
    free = loop.kind is not ForKind.THREAD_BINDING and not loop.annotations
    spatial = loop_iter_kind(tree, loop) is IterKind.SPATIAL
    return _LoopInfo(tir.const_int(loop.extent), spatial, free, len(loop.body) == 1)


def _parallel_depth(loops: Sequence[_LoopInfo], limit: int) -> int:
    count, product = 0, 1
    for loop in loops:
        if not loop.spatial or not loop.free or loop.extent is None:
            break
        count += 1
        product *= loop.extent
        if product > limit or not loop.alone:
            break
    return -1 if product == 1 else count


def _vector_depth(loops: Sequence[_LoopInfo], limit: int, contiguous: int) -> int:
    count, product = 0, 1
    for loop in reversed(loops):
        if count >= contiguous or not (loop.spatial and loop.free and loop.alone) or loop.extent is None:
            break
        product *= loop.extent
        if product > limit:
            break
        count += 1
    return -1 if product == 1 else count


# ---------------------------------------------------------------- contiguity


def _contiguous_depth(ref: BlockRef, nest: Sequence[tir.For]) -> int:
    """Return the number of inner loops whose fusion accesses every buffer of the block contiguously."""
    values = bindings(ref.realize)
    analyzer = Analyzer()
    limit = 1 << 31
    for region in (*ref.block.reads, *ref.block.writes):
        indices = [analyzer.simplify(substitute(span.min, values)) for span in region.region]
        strides = [_stride(loop.var, indices, region.buffer) for loop in nest]
        if None in strides:
            return 0
        limit = min(limit, _contiguous_loops([s or 0 for s in strides], nest))
    return limit


def _contiguous_loops(strides: Sequence[int], nest: Sequence[tir.For]) -> int:
    count, last = 0, -1
    for at in reversed(range(len(strides))):
        if strides[at] == 0:
            count += 1
        elif last == -1:
            if strides[at] != 1 and count:
                break
            count, last = count + 1, at
        else:
            extent = tir.const_int(nest[last].extent)
            if extent is None or strides[at] != strides[last] * extent:
                break
            count, last = count + 1, at
    return count


def _stride(var: tir.Var, indices: Sequence[tir.Expr], buffer: tir.Buffer) -> int | None:
    """Return the access's stride along the loop in elements, 0 if invariant; None if a trailing extent is symbolic."""
    behind = 1
    for index, size in zip(reversed(indices), reversed(buffer.shape), strict=True):
        coefficient = _coefficient(index, var)
        if coefficient:
            return coefficient * behind
        extent = tir.const_int(size)
        if extent is None:
            return None
        behind *= extent
    return 0


def _coefficient(expr: tir.Expr, var: tir.Var) -> int | None:
    """Return the variable's coefficient in an expression of sums and products with constants; None if there is none."""
    match expr:
        case tir.Var():
            return 1 if expr is var else None
        case tir.Mul(lhs=tir.IntImm(value=factor), rhs=other) | tir.Mul(lhs=other, rhs=tir.IntImm(value=factor)):
            coefficient = _coefficient(other, var)
            return None if coefficient is None else coefficient * factor
        case tir.Add(lhs=a, rhs=b):
            both = [c for c in (_coefficient(a, var), _coefficient(b, var)) if c is not None]
            return min(both, default=None)
    return None
