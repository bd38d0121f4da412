"""Expand matrix intrinsics without an instruction of their own into loads and stores.

These are `mma_fill`, `mma_store`, and `ptx_ldmatrix` of transposed bytes, which the instruction does not support.

A warp holds a matrix of 16 x 16 as two accumulators of `mma.sync` beside each other (`mma_layout`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.thread_scopes import ThreadMutator
from mlcc.passes.gpu.views import resolve_views
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

_AXIS = "threadIdx.x"


def expand_matrix_calls(func: tir.PrimFunc) -> tir.PrimFunc:
    """Expand these calls in `func` (flat loop code). Raises CompileError E0773."""
    return replace(func, body=_MatrixCallExpander().body(func.body))


def matrix_call_error(node: tir.Call, message: str, help: str | None = None) -> CompileError:
    """Return the error for an invalid use of a matrix intrinsic."""
    name = node.op.name.removeprefix("tir.")
    return CompileError(error("E0773", f"`T.{name}`: {message}", node.span, help=help))


class _MatrixCallExpander(ThreadMutator):
    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        match node.value:
            case tir.Call(op=tir.Op("tir.mma_fill"), args=(count, data, offset)) as call:
                return self._fill(call, count, data, offset)
            case tir.Call(op=tir.Op("tir.mma_store"), args=(_, _, _, _, _, _)) as call:
                return self._store(call)
            case tir.Call(op=tir.Op("tir.ptx_ldmatrix"), args=(trans, _, _, _, _, _, _)) as call if (
                tir.const_int(trans) and call.dtype.element.bits == 8
            ):
                return self._load_transposed_bytes(call)
        return super().stmt_evaluate(node)

    def _lane(self, node: tir.Call) -> Expr:
        var = self.thread(_AXIS)
        if var is None:
            help = "the threads of a warp execute it together"
            raise matrix_call_error(node, f"it is outside of the loop bound to `{_AXIS}`", help)
        return c.floormod(c.cast("int32", var), 32)

    def _fill(self, node: tir.Call, count: Expr, data: Expr, offset: Expr) -> list[Stmt]:
        size = tir.const_int(count)
        if size is None:
            raise matrix_call_error(node, "the number of elements is not constant")
        view = _view("fragment", node, data)
        zero = c.const(0, node.dtype.element)
        return [view, *(c.store(view.buffer, zero, c.add(offset, i)) for i in range(size))]

    def _store(self, node: tir.Call) -> list[Stmt]:
        m, n, target, data, offset, stride = node.args
        if (tir.const_int(m), tir.const_int(n)) != (16, 16):
            raise matrix_call_error(node, "only 16 x 16 matrices can be stored")
        lane = self._lane(node)
        fragment, matrix = _view("fragment", node, data), _view("matrix", node, target)
        stmts: list[Stmt] = [fragment, matrix]
        for number in range(8):
            row = c.add(c.floordiv(lane, 4), 8 * (number % 4 // 2))
            column = c.add(c.mul(c.floormod(lane, 4), 2), 8 * (number // 4) + number % 2)
            place = c.add(c.mul(c.cast(stride.dtype, row), stride), c.cast(stride.dtype, column))
            stmts.append(c.store(matrix.buffer, c.load(fragment.buffer, c.add(offset, number)), place))
        return stmts

    def _load_transposed_bytes(self, node: tir.Call) -> list[Stmt]:
        """Load a transposed 32 x 16 matrix B of bytes; the last argument is its row stride."""
        _, count, _, data, offset, source, stride = node.args
        if tir.const_int(count) != 4:
            raise matrix_call_error(node, "8-bit elements can only be transposed four matrices at a time")
        lane = self._lane(node)
        fragment, matrix = _view("fragment", node, data), _view("matrix", node, source)
        stmts: list[Stmt] = [fragment, matrix]
        for number in range(16):
            row = c.add(c.mul(c.floormod(lane, 4), 4), number % 8 // 4 * 16 + number % 4)
            column = c.add(c.floordiv(lane, 4), number // 8 * 8)
            place = c.add(c.mul(c.cast(stride.dtype, row), stride), c.cast(stride.dtype, column))
            stmts.append(c.store(fragment.buffer, c.load(matrix.buffer, place), c.add(offset, number)))
        return stmts


def _view(name: str, node: tir.Call, pointer: Expr) -> tir.DeclBuffer:
    """Declare a view of the memory at a pointer, of the call's type."""
    scope = "global"
    data = pointer.args[1] if isinstance(pointer, tir.Call) and len(pointer.args) == 5 else pointer
    if isinstance(data, tir.Var) and data.pointer is not None:
        scope = data.pointer.scope
    buffer = c.make_buffer(name, (c.const(1 << 30),), node.dtype.element, scope)
    return tir.DeclBuffer(buffer, pointer, span=node.span)


@dataclass(frozen=True)
class ExpandMatrixCalls(LoweringStep):
    """Expand matrix intrinsics without an instruction of their own into loads and stores.

    Before:  T.mma_fill(...); T.mma_store(...)
    After:   loads and stores of the elements that the thread holds
    """

    name: ClassVar[str] = "expand-matrix-calls"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return resolve_views(expand_matrix_calls(func))
