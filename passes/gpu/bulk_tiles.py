"""Form bulk copies: tiles that the copy engine (TMA) moves from global to shared memory.

A schedule asks for one by `sch.annotate(copy, "mlcc.bulk_copy", True)` on a block that copies,

    for i, j in T.grid(128, 64):
        S[i, j] = A[by * 128 + i, k * 64 + j]

which becomes, inside the compiler,

    T.mlcc_cp_async_bulk_tile(S.data, 0, T.tensor_map(...), ..., k * 64, by * 128)
    T.mlcc_cp_async_bulk_wait(...)

The loops around the block that hold nothing else are the tile: a box of the tensor, stored in shared memory in
row-major order (`permuted_layout` becomes the swizzle of the tensor map). Elements of the box outside the tensor are
read as zeros, so a condition with zero otherwise, as `pad_einsum` generates, becomes a limit on the extents of the map.
A pipeline moves the wait to the first use of the tile; `bulk_barriers` lowers both to instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.node import find, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.ir.visit import used_vars
from mlcc.passes.gpu.bulk_nests import BulkCopy, conjuncts
from mlcc.passes.gpu.form_kernels import map_kernels
from mlcc.passes.gpu.swizzle import Permutation
from mlcc.passes.gpu.tensor_map import MapForm, TensorMap
from mlcc.passes.lowering.effects import memory_accesses
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.pipeline_parts import BULK_COPY
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS
from mlcc.runtime.launch.tensor_map import MAX_BOX, MAX_DIMS

TILE, WAIT = "tir.mlcc_cp_async_bulk_tile", "tir.mlcc_cp_async_bulk_wait"
# arguments of a tile: pointer, offset, map, key, slot, slots, boxes, the axis along which they lie in the tensor, the
# elements of shared memory that they are apart, corner...; of a wait: key, slot
KEY, SLOT, SLOTS, BOXES, AXIS, BOX_STRIDE, CORNER = 3, 4, 5, 6, 7, 8, 9
BOX_ALIGNMENT = 128  # of a box in shared memory
_VOID = DType.of("void")


def bulk_tiles(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (loop code with formed kernels, before flattening) with annotated copies turned into bulk copies.
    Raises CompileError E0778 for a copy that is not a box.
    """
    if not any(isinstance(n, tir.AttrStmt) and n.key == BULK_COPY for s in func.body for n in walk(s)):
        return func
    keys = 0

    def change(loops: Sequence[tir.For], body: Body) -> Body:
        nonlocal keys
        tiles = _BulkCopyFormer(body, {x.var for x in loops}, keys)
        tiled = tiles.body(body)
        keys = tiles.keys
        return _TileAligner(tiles.targets).body(tiled)

    return map_kernels(func, change)


def is_call(stmt: object, name: str) -> bool:
    """Return True if a statement is a call of the operator `name`."""
    return isinstance(stmt, tir.Evaluate) and isinstance(stmt.value, tir.Call) and stmt.value.op == tir.Op(name)


def bulk_wait(key: Expr, slot: Expr, span: object = None) -> Stmt:
    """Return a statement that waits until the tile of the bulk copy `key` has arrived."""
    return tir.Evaluate(tir.Call(_VOID, tir.Op(WAIT), (key, slot), span=span), span=span)  # type: ignore[arg-type]


class _TileAligner(TirMutator):
    """Align the shared memory of tiles as the copy engine requires."""

    def __init__(self, targets: set[tir.Buffer]) -> None:
        self._buffers: dict[tir.Buffer, tir.Buffer] = {
            b: replace(b, alignment=max(b.alignment, BOX_ALIGNMENT)) for b in targets
        }

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)


class _BulkCopyFormer(TirMutator):
    """Form the bulk copies of one kernel. `threads` are the variables of its thread axes."""

    def __init__(self, body: Body, threads: set[tir.Var], keys: int) -> None:
        self.keys = keys
        self.targets: set[tir.Buffer] = set()
        self._analyzer = Analyzer()
        self._swizzles: dict[tir.Buffer, Permutation] = {}
        self._views: set[tir.Var] = set()
        self._writes: dict[tir.Var, int] = {}
        self._kernel_vars = set(threads)  # variables that the kernel binds
        self._divergent: set[tir.Var] = {v for v in threads if v.name.startswith("threadIdx")}  # divergent variables
        self._divergent_scopes = 0  # enclosing scopes that not all threads execute
        for node in (n for s in body for n in walk(s)):
            match node:
                case tir.AllocBuffer(buffer=buffer, annotations=notes):
                    plan = Permutation.of(notes)
                    if plan is not None:
                        self._swizzles[buffer] = plan
                case tir.DeclBuffer(buffer=buffer):
                    self._views.add(buffer.data)
                case tir.For(var=var) | tir.Bind(var=var) | tir.Let(var=var):
                    self._kernel_vars.add(var)
        for touch in (t for s in body for t in memory_accesses(s)):
            if touch.writes:
                self._writes[touch.data] = self._writes.get(touch.data, 0) + 1

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        copy = BulkCopy.of(node)
        if copy is not None:
            return self._form_copy(copy)
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        if node.kind is ForKind.THREAD_BINDING:  # virtual threads: several in the code of one
            self._divergent.add(node.var)
        return self._scope(node, node.extent, super().stmt_for)

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        return self._scope(node, node.condition, super().stmt_if)

    def stmt_while(self, node: tir.While) -> Stmt | list[Stmt]:
        return self._scope(node, node.condition, super().stmt_while)

    def stmt_bind(self, node: tir.Bind) -> Stmt | list[Stmt]:
        if self._is_divergent(node.value):
            self._divergent.add(node.var)
        return node

    def _scope(self, node: Any, condition: Expr, inside: Callable[[Any], Stmt | list[Stmt]]) -> Stmt | list[Stmt]:
        divergent = self._is_divergent(condition)
        self._divergent_scopes += divergent
        lowered = inside(node)
        self._divergent_scopes -= divergent
        return lowered

    def _is_divergent(self, value: Expr) -> bool:
        """Return True if a value may differ between the threads of a block."""
        local = (n for n in find(value, tir.BufferLoad) if not n.buffer.scope.startswith(("g", "s")))
        return bool(used_vars(value) & self._divergent) or any(True for _ in local)

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        copy = BulkCopy.of(node)
        return super().stmt_attr(node) if copy is None else self._form_copy(copy)

    # ------------------------------------------------------------ one copy

    def _form_copy(self, copy: BulkCopy) -> list[Stmt]:
        target, source = copy.store.buffer, copy.load.buffer
        if self._divergent_scopes:
            copy.refuse("not all threads reach it", "move it out of the condition, which differs between threads")
        if not target.scope.startswith("shared") or source.scope != "global":
            copy.refuse("it copies from global to shared memory", "annotate the block that fills the shared buffer")
        if source.data in self._views or target.data in self._views:
            copy.refuse("it accesses a view (`match_buffer`)")
        if source.data in self._writes:
            help = "the copy engine may read the buffer before or after that write"
            copy.refuse(f"the kernel also writes `{source.name}`", help)
        if self._writes.get(target.data, 0) != 1:
            copy.refuse(f"another statement also writes `{target.name}`")
        if source.dtype is not target.dtype or copy.load.dtype.lanes > 1 or source.dtype.lanes > 1:
            copy.refuse(f"it converts {source.dtype} to {target.dtype}", "copy first and convert where it is used")
        return self._tile_call(copy, self._match_box(copy))

    def _match_box(self, copy: BulkCopy) -> _Box:
        """Match the dimensions of the tile with those of the tensor; return their starts and sizes. Refuses any other
        copy.
        """
        target, source = copy.store.indices, copy.load.indices
        domains = {x.var: from_range(tir.Range(x.min, x.extent)) for x in copy.loops}
        starts: list[Expr] = list(target)
        counts = [1] * len(target)
        corner: list[Expr] = list(source)
        sizes = [1] * len(source)
        moving = [e for e, index in enumerate(source) if used_vars(index) & copy.vars]
        pieces: _SplitDimension | None = None
        for d, index in enumerate(target):
            if not used_vars(index) & copy.vars:
                continue
            low, counts[d] = self._tile_range(copy, index, domains)
            starts[d] = low
            whole = index
            match index:
                case tir.FloorDiv(lhs=whole, rhs=tir.IntImm(value=size)) if pieces is None:
                    pieces = _SplitDimension(d, whole, size, counts[d])
                    continue
                case tir.FloorMod(lhs=whole, rhs=tir.IntImm(value=size)) if pieces is not None and self._is_zero(
                    c.sub(whole, pieces.whole)
                ):
                    low, _ = self._tile_range(copy, whole, domains)
                    if size != pieces.size or counts[d] != size or not self._is_zero(c.floormod(low, size)):
                        copy.refuse(f"index {d} of `{copy.store.buffer.name}` goes with no other one")
                case _:
                    whole = index
            e = moving.pop(0) if moving else None
            offset = None if e is None else self._analyzer.simplify(c.sub(source[e], c.cast(source[e].dtype, whole)))
            if e is None or offset is None or used_vars(offset) & copy.vars:
                text = f"index {d} of `{copy.store.buffer.name}` does not run along a dimension of the tensor"
                copy.refuse(text, "a box lies in shared memory as it does in the tensor, dimension by dimension")
            corner[e] = self._analyzer.simplify(c.add(offset, c.cast(offset.dtype, low)))
            sizes[e] = counts[d]
            if whole is not index and pieces is not None:
                pieces.axis = e
        if moving:
            text = f"index {moving[0]} of `{copy.load.buffer.name}` runs along no dimension of the tile"
            copy.refuse(text, "a box lies in shared memory as it does in the tensor, dimension by dimension")
        if any(self._is_divergent(e) for e in (*starts, *corner)):
            copy.refuse(
                "its tile depends on the thread", "one thread asks for the tile of a block: bind none of its loops"
            )
        if pieces is not None and pieces.axis < 0:
            copy.refuse(f"index {pieces.dim} of `{copy.store.buffer.name}` goes with no other one")
        return _Box(starts, counts, corner, sizes, pieces)

    def _is_zero(self, value: Expr) -> bool:
        return tir.const_int(self._analyzer.simplify(value)) == 0

    def _tile_range(self, copy: BulkCopy, index: Expr, domains: Mapping[tir.Var, Interval]) -> tuple[Expr, int]:
        """Return the least value of an index within the tile, and the number of its values."""
        interval = eval_set(index, domains, self._analyzer)
        if interval.low is not None and interval.high is not None:
            count = tir.const_int(self._analyzer.simplify(c.add(c.sub(interval.high, interval.low), 1)))
            if count is not None and count > 0:
                return self._analyzer.simplify(interval.low), count
        copy.refuse(f"how far `{index}` reaches in the tile is not constant", "tiles have constant sizes")

    def _tile_call(self, copy: BulkCopy, box: _Box) -> list[Stmt]:
        target, source = copy.store.buffer, copy.load.buffer
        size = source.dtype.bytes
        shape = [tir.const_int(d) for d in target.shape]
        steps = [tir.const_int(s) for s in target.strides] if target.strides else None
        compact = [tir.const_int(s) for s in compact_strides(target.shape)]
        if None in shape or None in compact or (steps is not None and steps != compact):
            help = "leave `storage_align` out; `permuted_layout` spreads columns over the banks without padding"
            copy.refuse(f"rows of `{target.name}` do not follow each other", help)
        split_dim = box.pieces.dim if box.pieces is not None else -1
        first = next((d for d, n in enumerate(box.counts) if n > 1 and d != split_dim), len(shape) - 1)
        for d in range(first + 1, len(shape)):
            if box.counts[d] != shape[d] or d == split_dim:
                copy.refuse(
                    f"the tile fills {box.counts[d]} of {shape[d]} elements along dimension {d} of `{target.name}`"
                )
        rank = len(source.shape)
        if not 1 <= rank <= MAX_DIMS:
            copy.refuse(f"`{source.name}` has {rank} dimensions; up to {MAX_DIMS} are copied")
        offset: Expr = c.const(0, INT64)
        for start, stride in zip(box.starts, compact, strict=True):
            offset = c.add(offset, c.mul(c.cast(INT64, start), stride or 0))
        offset = self._analyzer.simplify(offset)
        axis = next((e for e, n in enumerate(box.sizes) if n > 1), rank - 1)
        parts = step = 1
        if box.pieces is not None:
            axis, parts, step = box.pieces.axis, box.pieces.count, compact[split_dim] or 0
        elif box.sizes[axis] > MAX_BOX:  # the outermost dimension, in pieces
            piece = max(n for n in range(1, MAX_BOX + 1) if box.sizes[axis] % n == 0)
            parts, box.sizes[axis] = box.sizes[axis] // piece, piece
            step = prod(box.sizes)
        strides = source.strides or compact_strides(source.shape)
        shift = 0 if source.elem_offset is None else tir.const_int(source.elem_offset)
        if tir.const_int(strides[-1]) != 1 or shift != 0:
            copy.refuse(f"`{source.name}` does not begin at its pointer, or its last index does not count neighbours")
        distances = tuple(c.mul(c.cast(INT64, s), size) for s in reversed(strides[:-1]))
        extents = tuple(reversed(self._extents(copy)))
        swizzle, sizes = self._swizzle(copy, box, size), tuple(reversed(box.sizes))
        tensor_map = TensorMap(source.data, MapForm(source.dtype, swizzle, sizes, (1,) * rank), extents, distances)
        problem = tensor_map.problem()
        if problem is not None:
            copy.refuse(problem)
        self._check_alignment(copy, offset, tensor_map, step if parts > 1 else 0)
        self.targets.add(target)
        key = c.const(self.keys, INT32)
        self.keys += 1
        zero = c.const(0, INT32)
        fixed = (c.const(n, INT32) for n in (1, parts, rank - 1 - axis, step))
        args = (
            target.data,
            offset,
            tensor_map.call(),
            key,
            zero,
            *fixed,
            *(c.cast(INT64, e) for e in reversed(box.corner)),
        )
        tile = tir.Call(target.dtype, tir.Op(TILE), args, span=copy.store.span)
        return [tir.Evaluate(tile, span=copy.store.span), bulk_wait(key, zero, copy.store.span)]

    def _swizzle(self, copy: BulkCopy, box: _Box, size: int) -> int:
        swizzle = self._swizzles.get(copy.store.buffer)
        if swizzle is None:
            return 0
        row = box.sizes[-1] * size
        if not swizzle.is_by_address or swizzle.row != row:
            help = f"give the buffer rows of {swizzle.width} bytes (`transform_layout`), one box for each"
            copy.refuse(f"a swizzle of {swizzle.width} bytes, and rows of {swizzle.row}", help)
        return swizzle.width

    def _extents(self, copy: BulkCopy) -> list[Expr]:
        """Return the extents of the tensor or, under a condition with zeros otherwise, of the part where the condition
        holds.
        """
        source = copy.load
        extents = [c.cast(INT64, d) for d in source.buffer.shape]
        for part in conjuncts(copy.condition):
            match part:
                case tir.LT(lhs=low, rhs=high) | tir.GT(lhs=high, rhs=low):
                    least = c.const(1, low.dtype)
                case tir.LE(lhs=low, rhs=high) | tir.GE(lhs=high, rhs=low):
                    least = c.const(0, low.dtype)
                case _:
                    copy.refuse(f"its condition `{part}` is none on the extents of the tensor")
            if not self._narrow_extent(source, extents, low, c.sub(high, least), copy):
                help = "zeros outside of the tensor come by themselves; other conditions belong where the tile is used"
                copy.refuse(f"its condition `{part}` is none on the extents of the tensor", help)
        return extents

    def _narrow_extent(
        self, source: tir.BufferLoad, extents: list[Expr], low: Expr, most: Expr, copy: BulkCopy
    ) -> bool:
        """Record `low <= most` as an extent, where `low` counts along a dimension. Return False if the condition says
        more than that.
        """
        if self._analyzer.prove(c.less_equal(low, most)):
            return True
        for e, index in enumerate(source.indices):
            index = c.cast(low.dtype, index)
            extent = self._analyzer.simplify(c.add(c.add(c.sub(index, low), most), 1))
            if not used_vars(extent) & (self._kernel_vars | copy.vars):
                extents[e] = self._analyzer.simplify(c.minimum(c.cast(INT64, extent), extents[e]))
                return True
            if tir.const_int(self._analyzer.simplify(c.sub(index, c.sub(most, low)))) == 0:
                return True  # not before the tensor's first element
        return False

    def _check_alignment(self, copy: BulkCopy, offset: Expr, tensor_map: TensorMap, step: int) -> None:
        """Check that boxes start at multiples of 128 bytes, or of the swizzle's period if there is one."""
        form = tensor_map.form
        unit = (8 * form.swizzle if form.swizzle else BOX_ALIGNMENT) // form.dtype.bytes
        if not self._is_zero(c.floormod(offset, unit)) or step % unit:
            text = f"a box would lie in `{copy.store.buffer.name}` at no multiple of {unit * form.dtype.bytes} bytes"
            copy.refuse(text, "make tiles, or what precedes them in the buffer, a multiple of that")


@dataclass(slots=True)
class _Box:
    """A box: `starts` and `counts` by dimension of shared memory, `corner` and `sizes` by dimension of the tensor."""

    starts: list[Expr]
    counts: list[int]
    corner: list[Expr]
    sizes: list[int]
    pieces: _SplitDimension | None


@dataclass(slots=True)
class _SplitDimension:
    """Dimension `axis` of the tensor in pieces of `size` elements, `count` of them along dimension `dim` of shared
    memory: the index there is `whole // size`, and that of a later dimension `whole % size`.
    """

    dim: int
    whole: Expr
    size: int
    count: int
    axis: int = -1


@dataclass(frozen=True)
class FormBulkCopies(LoweringStep):
    """Turn copies annotated with `mlcc.bulk_copy` into bulk copies of the copy engine (sm_90 and later).

    Before:  for i, j in T.grid(128, 64): S[i, j] = A[by * 128 + i, k * 64 + j]
    After:   one call that names the tile by a tensor map, and a wait for it
    """

    name: ClassVar[str] = "form-bulk-copies"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return bulk_tiles(func)
