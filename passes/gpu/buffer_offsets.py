"""Copy code with its buffers relocated to an offset in a larger allocation.

Code refers to memory in three ways, and all of them are rewritten: by index (loads and stores), by pointer
(`tvm_access_ptr` or the data variable alone), and, in tensor core intrinsics, by a data variable with an offset
argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import called, name_of
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.flatten import shifted_index
from mlcc.passes.lowering.folding import Copier
from mlcc.passes.lowering.mutator import Body


@dataclass(frozen=True, slots=True)
class OffsetBuffer:
    """The replacement of a buffer: its first element is at `offset` in the flat buffer `buffer`."""

    buffer: tir.Buffer
    offset: Expr


class OffsetCopier(Copier):
    """Copy code with variables replaced, fresh binders, and buffers (by data variable) relocated."""

    def __init__(
        self,
        values: dict[tir.Var, Expr],
        places: Mapping[tir.Var, OffsetBuffer],
        fragments: Mapping[tir.Var, int] | None = None,
    ) -> None:
        """`fragments` maps data variables to the number of elements of one fragment, see `fragment_sizes`."""
        super().__init__(values)
        self._places = places
        self._fragments = fragments or {}

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        place = self._places.get(node.buffer.data)
        if place is None:
            return super().expr_load(node)
        (index,) = self.exprs(node.indices)
        return tir.BufferLoad(node.dtype, place.buffer, (shifted_index(index, place.offset),), span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        place = self._places.get(node.buffer.data)
        if place is None:
            return super().stmt_store(node)
        (index,) = self.exprs(node.indices)
        return tir.BufferStore(
            place.buffer, self.expr(node.value), (shifted_index(index, place.offset),), span=node.span
        )

    def expr_var(self, node: tir.Var) -> Expr:
        place = self._places.get(node)
        return super().expr_var(node) if place is None else _pointer(place)

    def expr_call(self, node: tir.Call) -> Expr:
        if name_of(node) == "tvm_access_ptr":
            kind, data, offset, *rest = node.args
            place = self._places.get(data) if isinstance(data, tir.Var) else None
            if place is not None:
                start = c.div(place.offset, kind.dtype.lanes) if kind.dtype.lanes > 1 else place.offset
                args = (kind, place.buffer.data, _sum(self.expr(offset), start), *self.exprs(tuple(rest)))
                return replace(node, args=args)
        args = self.exprs(node.args)
        new_args = list(args)
        intrinsic = called(node)
        for at, offset_at in intrinsic.offsets:
            data_arg = node.args[at] if at < len(node.args) else None
            if isinstance(data_arg, tir.Var) and data_arg in self._places:
                place = self._places[data_arg]
                start = place.offset
                if intrinsic.fragments:
                    start = c.floordiv(start, self._fragments.get(data_arg, 256))
                new_args[at], new_args[offset_at] = place.buffer.data, _sum(new_args[offset_at], start)
        same = all(a is b for a, b in zip(args, new_args, strict=True))
        return replace(node, args=args if same else tuple(new_args))


def _sum(a: Expr, b: Expr) -> Expr:
    return c.add(a, c.cast(a.dtype, b))


def _pointer(place: OffsetBuffer) -> Expr:
    """Return a pointer to the first element of the buffer."""
    if tir.const_int(place.offset) == 0:
        return place.buffer.data
    kind = tir.Call(place.buffer.dtype, tir.Op("tir.type_annotation"), ())
    return c.call("handle", "tvm_access_ptr", kind, place.buffer.data, place.offset, 0, 3)


def fragment_sizes(body: Body) -> dict[tir.Var, int]:
    """Return the number of elements of one matrix in each buffer of fragments, by data variable."""
    counts: dict[tir.Var, int] = {}
    for stmt in body:
        for node in walk(stmt):
            match node:
                case tir.Call(
                    op=tir.Op(name="tir.tvm_load_matrix_sync" | "tir.tvm_store_matrix_sync" | "tir.tvm_fill_fragment"),
                    args=(tir.Var(pointer=tir.PointerType(scope=scope)) as data, m, n, k, *_),
                ):
                    sizes = [tir.const_int(x) or 1 for x in (m, n, k)]
                    left_out = {"wmma.matrix_a": 1, "wmma.matrix_b": 0}.get(scope, 2)
                    counts[data] = prod(sizes) // sizes[left_out]
    return counts


def replicated_buffer(buffer: tir.Buffer, copies: int) -> tuple[tir.Buffer, Expr]:
    """Return a flat buffer with room for `copies` copies, and the distance between two copies in elements.

    Each copy is aligned to 16 bytes, which vectors and matrices need, or to the buffer's own alignment if that exceeds
    the default of 64.
    """
    (size,) = buffer.shape
    bytes_each = buffer.dtype.bytes * buffer.dtype.lanes
    unit = max(1, (buffer.alignment if buffer.alignment > 64 else 16) // bytes_each)
    known = tir.const_int(size)
    distance: Expr = size
    if known is not None and known >= unit:
        distance = c.const(-(-known // unit) * unit, size.dtype)
    data = tir.Var(buffer.data.name, buffer.data.dtype, buffer.data.pointer, span=buffer.data.span)
    return replace(buffer, data=data, shape=(c.mul(distance, copies),)), distance
