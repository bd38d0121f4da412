"""The threads of a block, which the emulator runs one after the other in the order of their linear number."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel

WARP = 32
Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Threads:
    """The thread axes of a kernel's blocks.

    `extents` are the block's extents, x first: constants, or variables in `block` that a launch sets. `number` is the
    linear number of a thread, `count` the number of threads (int32).
    """

    axes: tuple[tir.Var, ...]
    extents: tuple[Expr, ...]
    number: tir.Var
    count: Expr
    block: tuple[tir.Var, ...]
    block_axes: tuple[tir.Var | None, ...]

    @staticmethod
    def of(kernel: DeviceKernel) -> Threads:
        """Return the threads of a kernel."""
        block = tuple(tir.Var(f"blockDim.{tag[-1]}", INT32) for tag in BLOCK)
        axes, extents = [], []
        count: Expr = tir.IntImm(INT32, 1)
        for tag, given in zip(BLOCK, block, strict=True):
            axes.append(kernel.axes.get(tag) or tir.Var(tag, INT32))
            known = tir.const_int(kernel.extents[tag]) if tag in kernel.extents else 1
            extents.append(given if known is None else tir.IntImm(INT32, known))
            count = c.mul(count, extents[-1])
        block_axes = tuple(kernel.axes.get(tag) for tag in GRID)
        return Threads(tuple(axes), tuple(extents), tir.Var("thread", INT32), count, block, block_axes)

    def each(self, body: Body) -> Stmt:
        """Return a loop that runs `body` for every thread."""
        (x, y, z), (nx, ny, _) = ((c.cast(INT32, a) for a in self.axes), self.extents)
        number = c.add(c.mul(c.add(c.mul(z, ny), y), nx), x)
        inner: Body = (tir.Bind(self.number, number), *body)
        for axis, extent in zip(self.axes, self.extents, strict=True):
            if tir.const_int(extent) == 1:
                inner = (tir.Bind(axis, c.const(0, axis.dtype)), *inner)
            else:
                inner = (tir.For(axis, c.const(0, axis.dtype), c.cast(axis.dtype, extent), ForKind.SERIAL, inner),)
        return inner[0] if len(inner) == 1 else tir.AttrStmt(c.const(0), "thread", c.const(0), inner)

    @property
    def lane(self) -> Expr:
        """The lane of the thread in its warp."""
        return c.floormod(self.number, WARP)

    @property
    def warps(self) -> Expr:
        """The number of warps of a block; the last one may be partial."""
        return c.floordiv(c.add(self.count, WARP - 1), WARP)
