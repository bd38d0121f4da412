"""Lay out a kernel's `shared.dyn` buffers in the dynamic shared memory of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import find

ALIGNMENT = 16  # bytes, of a buffer that does not ask for more than the default alignment
_DEFAULT_ALIGNMENT = 64


@dataclass(frozen=True, slots=True, eq=False)
class DynamicLayout:
    """The byte offset of each buffer, by its data variable, and the size of all together: int64 expressions."""

    offsets: Mapping[tir.Var, tir.Expr]
    size: tir.Expr


def alignment_of(buffer: tir.Buffer) -> int:
    """Return the alignment of a buffer's first element, in bytes."""
    return buffer.alignment if buffer.alignment > _DEFAULT_ALIGNMENT else ALIGNMENT


def dynamic_alignment(body: tuple[tir.Stmt, ...]) -> int:
    """Return the alignment that the dynamic shared memory of a block needs, in bytes."""
    buffers = (n.buffer for stmt in body for n in find(stmt, tir.AllocBuffer))
    return max((alignment_of(b) for b in buffers if b.scope == "shared.dyn"), default=ALIGNMENT)


def dynamic_layout(body: tuple[tir.Stmt, ...]) -> DynamicLayout:
    """Lay out the buffers in order of allocation, each at its alignment."""
    offsets: dict[tir.Var, tir.Expr] = {}
    end: tir.Expr = tir.IntImm(INT64, 0)
    for buffer in (n.buffer for n in find(body, tir.AllocBuffer) if n.buffer.scope == "shared.dyn"):
        start = _aligned(end, alignment_of(buffer))
        size: tir.Expr = tir.IntImm(INT64, buffer.dtype.bytes * buffer.dtype.lanes)
        for dim in buffer.shape:
            size = c.mul(size, c.cast(INT64, dim))
        offsets[buffer.data] = start
        end = c.add(start, size)
    return DynamicLayout(offsets, _aligned(end, ALIGNMENT))


def _aligned(size: tir.Expr, alignment: int) -> tir.Expr:
    return c.mul(c.floordiv(c.add(size, alignment - 1), alignment), alignment)
