"""Lower fragments of `wmma.*` scopes to `mma.sync`: a 16 x 16 product of a warp is two products of 8 columns.

A fragment becomes registers of each thread, in the layout of `mma_layout`: matrix_a and the accumulator as they are,
matrix_b as two halves of 8 columns. A load of 16-bit elements from shared memory with rows aligned to 16 bytes is one
`ptx_ldmatrix`; other loads, and all stores, become loads and stores of elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, PointerType, Stmt
from mlcc.passes.gpu.matrix_calls import matrix_call_error
from mlcc.passes.gpu.thread_scopes import ThreadMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

_SIZE = 16
_ELEMENTS = _SIZE * _SIZE
_PER_THREAD = _ELEMENTS // 32  # of a matrix in a thread
_KINDS = {"float16": "fp16", "bfloat16": "bf16", "int8": "int8", "uint8": "uint8", "float32": "fp32", "int32": "int32"}


def lower_wmma(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat loop code without views) without `wmma.*` buffers. Raises CompileError E0773."""
    return replace(func, body=_WmmaLowering().body(func.body))


@dataclass(frozen=True, slots=True)
class _Fragments:
    operand: str  # matrix_a, matrix_b, accumulator
    buffer: tir.Buffer  # a thread's part


class _WmmaLowering(ThreadMutator):
    def __init__(self) -> None:
        super().__init__()
        self._known: dict[tir.Var, _Fragments] = {}
        self._layouts: dict[tir.Var, str] = {}
        self._analyzer = Analyzer()

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        return super().stmt_for(node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        buffer = node.buffer
        if not buffer.scope.startswith("wmma."):
            return node
        size = c.mul(c.floordiv(c.add(buffer.shape[0], _ELEMENTS - 1), _ELEMENTS), _PER_THREAD)
        data = tir.Var(buffer.data.name, buffer.data.dtype, PointerType(buffer.dtype, "local"), span=buffer.data.span)
        own = replace(buffer, data=data, shape=(size,))
        self._known[buffer.data] = _Fragments(buffer.scope.removeprefix("wmma."), own)
        return replace(node, buffer=own)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        match node.value:
            case tir.Call(op=tir.Op("tir.tvm_load_matrix_sync"), args=args) as call if len(args) == 8:
                return self._load(call)
            case tir.Call(op=tir.Op("tir.tvm_store_matrix_sync"), args=args) as call if len(args) == 8:
                return self._store(call)
            case tir.Call(op=tir.Op("tir.tvm_fill_fragment"), args=args) as call if len(args) == 6:
                return self._fill(call)
            case tir.Call(op=tir.Op("tir.tvm_mma_sync"), args=args) as call if len(args) == 8:
                return self._multiply(call)
        return super().stmt_evaluate(node)

    def _fragment(self, node: tir.Call, at: int, offset_at: int) -> tuple[_Fragments, Expr]:
        """Return the buffer of fragments that an argument names, and the fragment's offset in a thread's part."""
        data = node.args[at]
        fragments = self._known.get(data) if isinstance(data, tir.Var) else None
        if fragments is None:
            raise matrix_call_error(node, f"argument {at} is not a fragment", "its scope must be one of `wmma.*`")
        if offset_at == 4 and [tir.const_int(n) for n in node.args[1:4]] != [_SIZE] * 3:
            raise matrix_call_error(node, "fragments must have the shape 16 x 16 x 16")
        return fragments, self._analyzer.simplify(c.mul(node.args[offset_at], _PER_THREAD))

    def _lane(self, node: tir.Call) -> Expr:
        var = self.thread("threadIdx.x")
        if var is None:
            help = "the threads of a warp execute it together"
            raise matrix_call_error(node, "it is outside of the loop bound to `threadIdx.x`", help)
        return c.floormod(c.cast(INT32, var), 32)

    # ------------------------------------------------------------ loads and stores

    def _load(self, node: tir.Call) -> list[Stmt]:
        fragments, start = self._fragment(node, 0, 4)
        pointer, stride, layout = node.args[5:]
        columns = isinstance(layout, tir.StringImm) and layout.value == "col_major"
        lane = self._lane(node)
        transposed = (fragments.operand == "matrix_a") == columns  # rows in memory go along the sum
        dtype = fragments.buffer.dtype
        if fragments.operand != "accumulator" and dtype.bits == 16 and self._has_rows(pointer, stride):
            place = self._row(fragments.operand, lane, stride, transposed)
            args = (
                c.const(transposed),
                c.const(4),
                tir.StringImm(".b16"),
                fragments.buffer.data,
                start,
                pointer,
                place,
            )
            return [tir.Evaluate(tir.Call(dtype, tir.Op("tir.ptx_ldmatrix"), args, span=node.span), span=node.span)]
        view = _view(node, pointer, dtype)
        stmts: list[Stmt] = [view]
        for number in range(_PER_THREAD):
            row, column = _element(fragments.operand, dtype, lane, number)
            if columns:
                row, column = column, row
            stmts.append(c.store(fragments.buffer, c.load(view.buffer, _at(row, column, stride)), c.add(start, number)))
        return stmts

    def _row(self, operand: str, lane: Expr, stride: Expr, transposed: bool) -> Expr:
        """Return the offset of the row whose address a lane supplies (`ldmatrix`): row `lane % 8` of matrix `lane // 8`
        of four. The matrices are in the order of a thread's words: of A rows first, of B along k first."""
        line, first, second = c.floormod(lane, 8), c.floormod(c.floordiv(lane, 8), 2), c.floordiv(lane, 16)
        along, across = (second, first) if operand == "matrix_a" else (first, second)
        if transposed:
            return _at(c.add(c.mul(along, 8), line), c.mul(across, 8), stride)
        return _at(c.add(c.mul(across, 8), line), c.mul(along, 8), stride)

    def _has_rows(self, pointer: Expr, stride: Expr) -> bool:
        """Return True if the matrix is in shared memory and its rows are aligned to 16 bytes."""
        match pointer:
            case tir.Call(op=tir.Op("tir.tvm_access_ptr"), args=(_, tir.Var() as data, offset, _, _)):
                pass
            case _:
                return False
        if data.pointer is None or not data.pointer.scope.startswith("shared"):
            return False
        return all(self._analyzer.prove(c.equal(c.floormod(n, 8), 0)) for n in (offset, stride))

    def _store(self, node: tir.Call) -> list[Stmt]:
        fragments, start = self._fragment(node, 0, 4)
        pointer, stride, layout = node.args[5:]
        if fragments.operand != "accumulator":
            raise matrix_call_error(node, "only accumulators can be stored")
        view = _view(node, pointer, fragments.buffer.dtype)
        lane = self._lane(node)
        stmts: list[Stmt] = [view]
        for number in range(_PER_THREAD):
            row, column = _element(fragments.operand, fragments.buffer.dtype, lane, number)
            if isinstance(layout, tir.StringImm) and layout.value == "col_major":
                row, column = column, row
            stmts.append(c.store(view.buffer, c.load(fragments.buffer, c.add(start, number)), _at(row, column, stride)))
        return stmts

    # ------------------------------------------------------------ values

    def _fill(self, node: tir.Call) -> list[Stmt]:
        fragments, start = self._fragment(node, 0, 4)
        value = c.cast(fragments.buffer.dtype, self.expr(node.args[5]))
        return [c.store(fragments.buffer, value, c.add(start, number)) for number in range(_PER_THREAD)]

    def _multiply(self, node: tir.Call) -> list[Stmt]:
        (out, to), (a, from_a), (b, from_b), (acc, from_acc) = (self._fragment(node, n, n + 1) for n in (0, 2, 4, 6))
        dtype, kind = out.buffer.dtype, _KINDS.get(str(a.buffer.dtype))
        if kind is None or b.buffer.dtype is not a.buffer.dtype or str(dtype) not in _KINDS:
            raise matrix_call_error(node, f"no product of {a.buffer.dtype} and {b.buffer.dtype} in {dtype}")
        stmts: list[Stmt] = []
        if out.buffer is not acc.buffer or not self._analyzer.prove_equal(to, from_acc):
            stmts += [
                c.store(out.buffer, c.load(acc.buffer, c.add(from_acc, n)), c.add(to, n)) for n in range(_PER_THREAD)
            ]
        for half in range(2):
            texts = ("m16n8k16", "row", "col", kind, kind, _KINDS[str(dtype)])
            args = (
                *map(tir.StringImm, texts), a.buffer.data, from_a,
                b.buffer.data, c.add(from_b, half * _PER_THREAD // 2),
                out.buffer.data, c.add(to, half * _PER_THREAD // 2), c.const(False),
            )  # fmt: skip
            stmts.append(tir.Evaluate(tir.Call(dtype, tir.Op("tir.ptx_mma"), args, span=node.span), span=node.span))
        return stmts


def _element(operand: str, dtype: DType, lane: Expr, number: int) -> tuple[Expr, Expr]:
    """Return the row and column of a thread's element (PTX ISA, fragments of m16n8k16; the second half of columns
    last).
    """
    group, thread = c.floordiv(lane, 4), c.floormod(lane, 4)
    pack = 2 if dtype.bits == 16 else 4
    if operand == "accumulator":
        part, inner = divmod(number, 4)
        return c.add(group, 8 * (inner // 2)), c.add(c.mul(thread, 2), 8 * part + inner % 2)
    if operand == "matrix_a":
        word, inner = divmod(number, pack)
        return c.add(group, 8 * (word % 2)), c.add(c.mul(thread, pack), word // 2 * 4 * pack + inner)
    part, rest = divmod(number, 4)
    word, inner = divmod(rest, pack)
    return c.add(c.mul(thread, pack), word * 4 * pack + inner), c.add(group, 8 * part)


def _cast(like: Expr, value: Expr) -> Expr:
    return c.cast(like.dtype, value)


def _at(row: Expr, column: Expr, stride: Expr) -> Expr:
    return c.add(c.mul(stride, _cast(stride, row)), _cast(stride, column))


def _view(node: tir.Call, pointer: Expr, dtype: DType) -> tir.DeclBuffer:
    data_arg = pointer.args[1] if isinstance(pointer, tir.Call) and len(pointer.args) == 5 else pointer
    scope = data_arg.pointer.scope if isinstance(data_arg, tir.Var) and data_arg.pointer is not None else "global"
    return tir.DeclBuffer(c.make_buffer("matrix", (c.const(1 << 30),), dtype, scope), pointer, span=node.span)


@dataclass(frozen=True)
class LowerWmma(LoweringStep):
    """Lower fragments of `wmma.*` scopes to registers, and their products to `mma.sync`.

    Before:  T.tvm_mma_sync(...)
    After:   T.ptx_mma(...) twice, of 8 columns each
    """

    name: ClassVar[str] = "lower-wmma"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return lower_wmma(func)
