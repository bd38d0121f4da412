"""Sink allocations into loops and shrink them to the region that is used there.

Each goes as deep into the loops as is legal (`allocation_depth`).

A dimension shrinks to the range of its indices over the inner loops, and indices count from the start of that range.
Conditions around accesses are ignored, so that a tile at an edge is as large as any other. A dimension whose indices
are not understood stays unchanged, and none grows: a tile of constant size stands in for one of symbolic size
only while it is small. The annotation `buffer_dim_align` becomes strides.

In kernels, memory of scope `shared` is what a block of threads uses, and `local` what a thread does, of buffers that
the text allocates for all of them; what it allocates inside of their loops is as large as it says. A small `global`
buffer that is a matter of one thread, or of one block, becomes theirs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import EVERYTHING, Interval, eval_set, from_range, union
from mlcc.arith.region_bound import upper_bound
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import EMPTY, Attrs, Node, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import substitute
from mlcc.passes.lowering.accesses import Access, AccessCollector, BufferUses, is_pure
from mlcc.passes.lowering.allocate import ALIGN, PERMUTED, place_allocations
from mlcc.passes.lowering.allocation_depth import allocation_depth, is_self_contained
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.thread_paths import is_thread_bound, kernel_depth, sink_thread_loops
from mlcc.passes.lowering.vector_legality import mentions
from mlcc.passes.manage.stages import LOOPS

_OF_WARPS = ("warp", "warpgroup", "wmma.matrix_a", "wmma.matrix_b", "wmma.accumulator")
_SCOPES = ("global", "local", "shared", "shared.dyn", *_OF_WARPS)
OUTSIDE_THREADS = (
    "outside_of_threads"  # of allocations in kernels that the text has outside of the threads' or blocks' loops
)
_SHARED = ("shared", "shared.dyn")
LOCAL_BYTES, SHARED_BYTES = 4 * 1024, 16 * 1024  # of a temporary that moves from global memory onto the chip
MAX_PADDING = 8  # elements by which rows of shared memory may exceed the used part
SMALL_BYTES = 16 * 1024  # of a tile that has a constant size where a dimension of the buffer may be smaller


def compact_buffers(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (loop code with buffers of any rank) with allocations sunk into loops and shrunk."""
    collector = AccessCollector()
    collector.body(func.body)
    layouts: dict[tir.Buffer, Layout] = {}
    places: dict[int, list[tir.Buffer]] = {}
    for uses in collector.uses.values():
        old = uses.allocation.buffer
        if uses.opaque or old.scope not in _SCOPES:
            continue
        view = _as_owner_sees(uses)
        inside = old.scope != "global" and any(map(is_thread_bound, uses.path))
        if inside and OUTSIDE_THREADS not in uses.allocation.annotations:
            strides = old.strides or _aligned_strides(old.shape, uses.allocation.annotations.get(ALIGN, ()))
            layouts[old] = Layout(replace(old, strides=strides), (None,) * len(old.shape))
            continue
        placement = _on_chip(uses, collector) or _place_allocation(view, collector)
        layouts[old], scope = placement
        if scope is not None:
            places.setdefault(scope, []).append(placement[0].buffer)
    if not layouts:
        return func
    notes = {
        uses.allocation.buffer.data: EMPTY.with_item(PERMUTED, uses.allocation.annotations[PERMUTED])
        for uses in collector.uses.values()
        if PERMUTED in uses.allocation.annotations
    }
    return replace(func, body=_LayoutMover(layouts, places, collector.values, notes).body(func.body))


def _as_owner_sees(uses: BufferUses) -> BufferUses:
    """Return the uses as seen by the owner of the memory: a block of threads, a warp, or each thread."""
    scope = uses.allocation.buffer.scope
    if scope in _SHARED:
        return sink_thread_loops(uses)
    return sink_thread_loops(uses, "threadIdx.x") if scope in _OF_WARPS else uses


@dataclass(frozen=True, slots=True)
class Layout:
    """A new buffer for an old one: the element at `indices` of the old one is at `indices - starts` of `buffer`."""

    buffer: tir.Buffer
    starts: tuple[Expr | None, ...]


def _place_allocation(uses: BufferUses, collector: AccessCollector) -> tuple[Layout, int | None]:
    """Return the layout of a buffer, and the number of the scope that its allocation sinks to (None: it stays)."""
    depth = allocation_depth(uses, collector.jumps, collector.loose)
    scope = uses.accesses[0].path[depth - 1][1] if depth > len(uses.path) else None
    return _layout(uses, depth, collector), scope


def _on_chip(uses: BufferUses, collector: AccessCollector) -> tuple[Layout, int | None] | None:
    """Return the placement of a small global temporary in local or shared memory; None if it cannot go there."""
    old, depth = uses.allocation.buffer, kernel_depth(uses)
    if old.scope != "global" or depth is None or depth <= len(uses.path) or collector.jumps:
        return None
    inside = dataclasses.replace(uses, path=uses.accesses[0].path[:depth])
    for scope, view, most in (("local", inside, LOCAL_BYTES), ("shared", sink_thread_loops(inside), SHARED_BYTES)):
        if not is_self_contained(view.accesses, len(view.path), collector.loose):
            continue
        layout, at = _place_allocation(view, collector)
        if _bytes(layout.buffer) <= most:
            buffer = c.make_buffer(old.name, layout.buffer.shape, old.dtype, scope)
            layout = Layout(replace(buffer, strides=layout.buffer.strides), layout.starts)
            return layout, inside.path[-1][1] if at is None else at
    return None


def _bytes(buffer: tir.Buffer) -> float:
    """Return the size of an allocation in bytes; infinite if it is unknown."""
    sizes = [tir.const_int(d) for d in (*buffer.shape[:1], *buffer.strides[:1])] if buffer.strides else [
        tir.const_int(d) for d in buffer.shape
    ]  # fmt: skip
    known = [s for s in sizes if s is not None]
    return prod(known) * buffer.dtype.bytes * buffer.dtype.lanes if len(known) == len(sizes) else math.inf


def _layout(uses: BufferUses, depth: int, collector: AccessCollector) -> Layout:
    """Return the compact layout of a buffer allocated at `depth`: the region used there, padded and aligned."""
    old = uses.allocation.buffer
    if old.strides or old.elem_offset is not None and tir.const_int(old.elem_offset) != 0 or not uses.accesses:
        return Layout(old, (None,) * len(old.shape))
    analyzer = Analyzer()
    outer = [s for s, _ in uses.accesses[0].path[:depth] if isinstance(s, tir.For)]
    for loop in outer:
        analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
    regions = [_region(uses, depth, axis, collector, analyzer) for axis in range(len(old.shape))]
    dims = [_extent(region, dim, analyzer) for region, dim in zip(regions, old.shape, strict=True)]
    sizes = [tir.const_int(dim) for dim, _ in dims]
    small = None not in sizes and prod(s or 0 for s in sizes) * old.dtype.bytes * old.dtype.lanes <= SMALL_BYTES
    if not small and not any(map(is_thread_bound, uses.path)):
        dims = [_clamp_extent(size, start, dim, analyzer) for (size, start), dim in zip(dims, old.shape, strict=True)]
    if old.scope in _SHARED:
        dims = [dims[0], *map(_keep_padding, dims[1:], old.shape[1:])] if dims else dims
    shape = tuple(size for size, _ in dims)
    strides = _aligned_strides(shape, uses.allocation.annotations.get(ALIGN, ()))
    return Layout(replace(old, shape=shape, strides=strides), tuple(start for _, start in dims))


def _region(uses: BufferUses, depth: int, axis: int, collector: AccessCollector, analyzer: Analyzer) -> Interval:
    """Return the union of the index intervals of one axis over the loops below `depth`."""
    hull: Interval | None = None
    tight = any(map(is_thread_bound, uses.path))  # memory on a chip is scarce
    for access in uses.accesses:
        index = access.indices[axis]
        domains = dict.fromkeys(collector.loose, EVERYTHING)
        for loop in access.loops(depth):
            forward = (tir.const_int(loop.step) or 1) > 0 if loop.step is not None else True
            known = forward and (loop.step is None or tir.const_int(loop.step) is not None)
            domains[loop.var] = from_range(tir.Range(loop.min, loop.extent)) if known else EVERYTHING
        part = eval_set(index, domains, analyzer)
        if tight and access.guards:
            part = _narrow_by_guards(part, index, access, depth, collector, analyzer)
        if part.low is None or part.high is None or not (is_pure(part.low) and is_pure(part.high)):
            return EVERYTHING  # depends on the contents of memory
        hull = part if hull is None else union(hull, part, analyzer)
        if hull.low is None or hull.high is None:
            return EVERYTHING
    return hull or EVERYTHING


def _narrow_by_guards(
    part: Interval, index: Expr, access: Access, depth: int, collector: AccessCollector, analyzer: Analyzer
) -> Interval:
    """Return the interval of an index under the guards of the access, if that is shorter by a constant; else `part`."""
    loops = access.loops(depth)
    if any(loop.step is not None for loop in loops) or mentions(index, collector.loose):
        return part
    domain = {loop.var: tir.Range(loop.min, loop.extent) for loop in loops}
    predicate: Expr = tir.TRUE
    for guard, _ in access.guards:
        if is_pure(guard) and mentions(guard, set(domain)):
            predicate = c.logical_and(predicate, guard)
    if tir.const_int(predicate) == 1 or index.dtype.lanes > 1:
        return part
    (narrowed,) = upper_bound([tir.Range(index, c.const(1, index.dtype))], domain, predicate, analyzer)
    lengths = [
        tir.const_int(_length(x, analyzer)) if x.low is not None and x.high is not None else None
        for x in (narrowed, part)
    ]
    return narrowed if lengths[0] is not None and (lengths[1] is None or lengths[0] < lengths[1]) else part


def _length(region: Interval, analyzer: Analyzer) -> Expr:
    assert region.low is not None and region.high is not None
    return analyzer.simplify(c.add(c.sub(region.high, region.low), 1))


def _extent(region: Interval, whole: Expr, analyzer: Analyzer) -> tuple[Expr, Expr | None]:
    """Return the extent and the start (None: 0) of one compacted dimension.

    They are the region's if its length has a constant bound, below the known extent; else those of the whole buffer.
    """
    if region.low is None or region.high is None or not (is_pure(region.low) and is_pure(region.high)):
        return whole, None
    length = _length(region, analyzer)
    most = analyzer.bound(length).max
    known = tir.const_int(whole)
    if most < ((1 << whole.dtype.bits - 1) - 1 if known is None else known):  # the greatest integer is not a bound
        return c.const(max(int(most), 0), whole.dtype), analyzer.simplify(region.low)
    return whole, None


def _keep_padding(dim: tuple[Expr, Expr | None], whole: Expr) -> tuple[Expr, Expr | None]:
    """Keep the padding of shared memory: rows that were made slightly longer than used, against bank conflicts."""
    size, start = dim
    used, declared = tir.const_int(size), tir.const_int(whole)
    if used is None or declared is None or tir.const_int(start if start is not None else 0) != 0:
        return dim
    return (whole, None) if used < declared <= used + MAX_PADDING else dim


def _clamp_extent(size: Expr, start: Expr | None, whole: Expr, analyzer: Analyzer) -> tuple[Expr, Expr | None]:
    """Limit a dimension to `whole`, for every value of the variables in it. A single index needs one element."""
    if start is None or isinstance(whole, tir.IntImm) or tir.const_int(size) == 1:
        return size, start
    if not analyzer.prove(c.greater_equal(start, 0)):  # an index may be as far from the start as there are elements
        return whole, None
    return c.minimum(size, whole), start


def _aligned_strides(shape: Sequence[Expr], alignments: Sequence[Sequence[int]]) -> tuple[Expr, ...]:
    """Return strides that equal offset modulo factor for each (axis, factor, offset) in `alignments`; () if compact."""
    rules = {axis: (factor, offset) for axis, factor, offset in alignments}
    if not rules:
        return ()
    strides: list[Expr] = []
    step: Expr = c.const(1, shape[-1].dtype)
    for axis in range(len(shape) - 1, -1, -1):
        if axis in rules:
            factor, offset = rules[axis]
            step = c.add(step, c.floormod(c.sub(offset, c.floormod(step, factor)), factor))
        strides.append(step)
        step = c.mul(step, shape[axis])
    return tuple(reversed(strides))


class _LayoutMover(TirMutator):
    """Replace buffers by their compact layouts, and place allocations in their new scopes.

    Scopes are numbered as `Collector` numbers them.
    """

    def __init__(
        self,
        layouts: Mapping[tir.Buffer, Layout],
        places: Mapping[int, list[tir.Buffer]],
        values: Mapping[tir.Var, Expr],
        notes: Mapping[tir.Var, Attrs],
    ) -> None:
        self._layouts = layouts
        self._notes = notes  # annotations kept on allocations, by data variable
        self._places = places
        self._moved = {b for buffers in places.values() for b in buffers}
        self._values = values
        self._scopes = 0
        self._analyzer = Analyzer()

    def _scope_body(self, body: Body) -> Body:
        self._scopes += 1
        here = self._places.get(self._scopes, ())
        return place_allocations(tuple(here), self.body(body), self._notes)

    def stmt_for(self, node: tir.For) -> Stmt:
        low, extent = self.expr(node.min), self.expr(node.extent)
        step = None if node.step is None else self.expr(node.step)
        if tir.const_int(step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(low, extent))
        return replace(node, min=low, extent=extent, step=step, body=self._scope_body(node.body))

    def stmt_if(self, node: tir.IfThenElse) -> Stmt:
        condition, then = self.expr(node.condition), self._scope_body(node.then_body)
        other = self._scope_body(node.else_body or ())
        return replace(node, condition=condition, then_body=then, else_body=None if node.else_body is None else other)

    def stmt_while(self, node: tir.While) -> Stmt:
        return replace(node, condition=self.expr(node.condition), body=self._scope_body(node.body))

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt:
        subject, value = (self.node(v) if isinstance(v, Node) else v for v in (node.subject, node.value))
        return replace(node, subject=subject, value=value, body=self._scope_body(node.body))

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        layout = self._layouts.get(node.buffer)
        if layout is None:
            return node
        if layout.buffer in self._moved:
            return []
        return tir.AllocBuffer(layout.buffer, self._notes.get(layout.buffer.data, EMPTY), span=node.span)

    def _indices(self, layout: Layout, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        shifted = []
        for index, start in zip(self.exprs(indices), layout.starts, strict=True):
            shifted.append(index if start is None else self._relative(index, start))
        return tuple(shifted)

    def _relative(self, index: Expr, start: Expr) -> Expr:
        """Return index - start, simplified."""
        if isinstance(index, tir.Ramp):
            return tir.Ramp(index.dtype, self._relative(index.base, start), index.stride, index.lanes)
        if self._values:
            index = substitute(index, self._values)
        return self._analyzer.simplify(c.sub(index, start))

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        layout = self._layouts.get(node.buffer)
        if layout is None:
            return super().expr_load(node)
        return tir.BufferLoad(node.dtype, layout.buffer, self._indices(layout, node.indices), span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        layout = self._layouts.get(node.buffer)
        if layout is None:
            return super().stmt_store(node)
        value = self.expr(node.value)
        return tir.BufferStore(layout.buffer, value, self._indices(layout, node.indices), span=node.span)


@dataclass(frozen=True)
class CompactBuffers(LoweringStep):
    """Allocate temporaries as deep in the loops as they are used, and only as large as what is used of them.

    Before:  t = T.alloc_buffer((64, 64)); for i in range(64): (t[i, :] is written, then read)
    After:   for i in range(64): t = T.alloc_buffer((1, 64)); ...
    """

    name: ClassVar[str] = "compact-buffers"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return compact_buffers(func)
