"""Narrow the integer arithmetic of kernels to 32 bits where it cannot overflow: GPUs compute 64 bits in two parts.

Loops and indices have the int64 of the graph level. Values that launch extents, constant sizes and conditions do not
bound stay as they are, but a thread position is divided by any size in 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, INT64
from mlcc.ir.node import holds
from mlcc.ir.node import replace as changed
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.device import DeviceKernel, is_kernel, with_thread_code
from mlcc.passes.lowering.divisions import count_divisions
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT, KERNELS

_LEAST, _GREATEST = -(2**31), 2**31 - 1
_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)
_OPERATORS = (tir.Add, tir.Sub, tir.Mul, *_DIVISIONS, tir.Min, tir.Max)


def narrow_indices(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat loop code) with indices narrowed, for the passes that analyze indices."""
    return changed(func, body=_IndexNarrower().body(func.body))


def narrow_kernel(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return a kernel with indices narrowed, given the bounds of its thread axes and non-negative buffer sizes."""
    kernel = DeviceKernel.of("", func)
    narrowing = _IndexNarrower()
    for axis, var in kernel.axes.items():
        extent = tir.const_int(kernel.extents[axis])
        narrowing.analyzer.bind_bound(var, 0, _GREATEST - 1 if extent is None else max(extent - 1, 0))
    for var in kernel.dimensions:
        narrowing.analyzer.bind_bound(var, 0, INF)
    return with_thread_code(func, narrowing.body(kernel.body))


class _IndexNarrower(TirMutator):
    """Narrow int64 expressions that fit to `Cast(int64, e)` with `e` in int32; a consumer of int32 drops the cast."""

    def __init__(self) -> None:
        self.analyzer = Analyzer()
        self._vars: dict[tir.Var, tir.Var] = {}  # of int64, to theirs of int32

    def _fits(self, node: Expr) -> bool:
        bound = self.analyzer.bound(node)
        return bound.min >= _LEAST and bound.max <= _GREATEST

    # ------------------------------------------------------------ variables

    def var(self, node: tir.Var) -> Expr:
        narrow = self._vars.get(node)
        return node if narrow is None else tir.Cast(INT64, narrow)

    def _narrow_var(self, var: tir.Var) -> tir.Var:
        self._vars[var] = narrow = tir.Var(var.name, INT32)
        bound = self.analyzer.bound(var)
        self.analyzer.bind_bound(narrow, bound.min, bound.max)
        return narrow

    def stmt_bind(self, node: tir.Bind) -> Stmt | list[Stmt]:
        value = self.expr(node.value)
        var = node.var
        if var.dtype.is_int and var.dtype.lanes == 1:
            self._bind_range(var, value)
        narrow = _narrow(value) if var.dtype is INT64 else None
        if narrow is None or not isinstance(value, tir.Cast):
            return node if value is node.value else changed(node, value=value)
        return tir.Bind(self._narrow_var(var), narrow, span=node.span)

    def _bind_range(self, var: tir.Var, value: Expr) -> None:
        if holds(value, tir.Select, tir.Call, tir.BufferLoad):
            bound = self.analyzer.bound(value)  # choices between choices would double with each name, written out
            self.analyzer.bind_bound(var, bound.min, bound.max)
        else:
            self.analyzer.bind(var, value)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        start, extent = self.expr(node.min), self.expr(node.extent)
        step = None if node.step is None else self.expr(node.step)
        by_one = step is None or tir.const_int(step) == 1
        if by_one and node.var.dtype.is_int:
            self.analyzer.bind(node.var, tir.Range(start, extent))
        low, count = _narrow(start), _narrow(extent)
        if not by_one or node.var.dtype is not INT64 or low is None or count is None or not self._fits(node.var):
            body = self.body(node.body)
            return changed(node, min=start, extent=extent, step=step, body=body)
        var = self._narrow_var(node.var)
        return changed(node, var=var, min=low, extent=count, step=None, body=self.body(node.body))

    # ------------------------------------------------------------ expressions

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        lhs, rhs = self.expr(node.lhs), self.expr(node.rhs)
        if lhs.dtype is INT64:
            a, b = _narrow(lhs), _narrow(rhs)
            if a is not None and b is not None:
                if isinstance(node, tir.CompareOp):
                    return type(node)(node.dtype, a, b, span=node.span)
                if isinstance(node, _OPERATORS) and self._fits(type(node)(INT64, lhs, rhs)):
                    return tir.Cast(INT64, type(node)(INT32, a, b))
            if a is not None and isinstance(node, _DIVISIONS) and self._is_small_nonnegative(a):
                divisor = self._clamp_divisor(rhs)
                if divisor is not None:
                    return tir.Cast(INT64, type(node)(INT32, a, divisor))
        return node if lhs is node.lhs and rhs is node.rhs else type(node)(node.dtype, lhs, rhs, span=node.span)

    def _is_small_nonnegative(self, node: Expr) -> bool:
        bound = self.analyzer.bound(node)
        return bound.min >= 0 and bound.max < _GREATEST

    def _clamp_divisor(self, divisor: Expr) -> Expr | None:
        """Return a divisor of unknown size clamped to int32, for a dividend below the greatest int32: where the divisor
        exceeds that, quotient and remainder are the same.
        """
        if self.analyzer.bound(divisor).min < 0:
            return None
        return tir.Cast(INT32, tir.Min(INT64, divisor, c.const(_GREATEST, INT64)))

    def expr_cast(self, node: tir.Cast) -> Expr:
        value = self.expr(node.value)
        if node.dtype is INT64 and isinstance(value, tir.IntImm):
            return tir.IntImm(INT64, value.value)
        narrow = _narrow(value) if node.dtype is INT32 and value.dtype is INT64 else None
        if narrow is not None:
            return narrow
        return node if value is node.value else tir.Cast(node.dtype, value, span=node.span)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        indices = self._narrow_indices(node.indices)
        return node if indices is node.indices else tir.BufferLoad(node.dtype, node.buffer, indices, span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        value, indices = self.expr(node.value), self._narrow_indices(node.indices)
        if value is node.value and indices is node.indices:
            return node
        return tir.BufferStore(node.buffer, value, indices, span=node.span)

    def _narrow_indices(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        narrowed = tuple(self._narrow_index(self.expr(i)) for i in indices)
        return indices if all(a is b for a, b in zip(narrowed, indices, strict=True)) else narrowed

    def _narrow_index(self, node: Expr) -> Expr:
        """Narrow an index to int32 if it fits, and simplify it; also the base of a ramp."""
        if isinstance(node, tir.Ramp) and node.base.dtype is INT64:
            base, stride = _narrow(node.base), _narrow(node.stride)
            if base is None or stride is None:
                return node
            return tir.Ramp(INT32.with_lanes(node.lanes), base, stride, node.lanes, span=node.span)
        narrowed = (_narrow(node) or node) if node.dtype is INT64 else node
        return self.analyzer.simplify(narrowed) if count_divisions(narrowed) else narrowed


def _narrow(node: Expr) -> Expr | None:
    """Return the int32 form of an int64 expression, or None."""
    match node:
        case tir.IntImm(value=value) if _LEAST <= value <= _GREATEST:
            return c.const(value, INT32)
        case tir.Cast(value=value) if value.dtype is INT32:
            return value
        case tir.Cast(value=value) if value.dtype.is_int and value.dtype.lanes == 1 and value.dtype.bits < 32:
            return tir.Cast(INT32, value)
    return None


@dataclass(frozen=True)
class NarrowIndices(LoweringStep):
    """Compute in 32 bits what cannot exceed the range of int32 (TVM: NarrowDataType).

    Before:  for i in range(T.int64(8)): A[i * T.int64(4)]
    After:   for i in range(8): A[i * 4]
    """

    name: ClassVar[str] = "narrow-indices"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return narrow_indices(func)


@dataclass(frozen=True)
class NarrowKernels(LoweringStep):
    """Compute in 32 bits what a kernel's launch extents or the sizes of its buffers bound.

    Before:  n: T.int64; blockIdx_x = T.launch_thread("blockIdx.x", 8); A[T.Cast("int64", blockIdx_x) * T.int64(4)]
    After:   A[blockIdx_x * 4]
    """

    name: ClassVar[str] = "narrow-kernels"
    takes: ClassVar[str] = KERNELS
    gives: ClassVar[str] = KERNELS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return narrow_kernel(func) if is_kernel(func) else func
