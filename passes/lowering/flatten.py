"""Flatten buffers: shapes, strides and offsets become index arithmetic over one-dimensional buffers.

Index arithmetic is done in int32 where no element lies beyond it, else in int64; for CPUs, whose addresses have 64
bits, indices that are int64 stay so. A parameter's flat view is declared at the start of the body (unless the parameter
is flat already), so that the function's interface stays as it is. Calls of functions that need to know more of a buffer
than its data get it described as a tensor (`tvm_stack_make_array`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.calls import pack_buffer
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.intrinsics import called
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.divisions import count_divisions, linearized_index
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.symbols import symbols_of
from mlcc.passes.manage.stages import FLAT, LOOPS


def flatten_buffers(
    func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], narrow_indices: bool = True
) -> tir.PrimFunc:
    """Return `func` with one index per access. `functions` are the PrimFuncs of the module. Raises CompileError.

    `narrow_indices`: int64 indices of buffers that int32 can index become int32.
    """
    flattener = _Flattener(functions, frozenset(symbols_of(func)), narrow_indices)
    params = [b for b in func.buffers if b is not None]
    flattener.by_data.update({b.data: b for b in reversed(params)})
    body = flattener.body(func.body)
    used = [(flattener.flat[b], b) for b in params if flattener.flat.get(b, b) is not b]
    head = tuple(tir.DeclBuffer(flat, buffer.data) for flat, buffer in used)
    return replace(func, body=(*head, *body))


_MAX_BOUNDED_SIZE = 1 << 12  # elements of memory that is allocated by a bound of its size


def _is_zero(offset: Expr | None) -> bool:
    return offset is None or tir.const_int(offset) == 0


def index_type(buffer: tir.Buffer) -> DType:
    """Return int32 if all element indices and intermediate sums fit in it, else int64."""
    strides = buffer.strides or compact_strides(buffer.shape)
    if not _is_zero(buffer.elem_offset):
        return INT64
    reach = 1
    for dim, step in zip(buffer.shape, strides, strict=True):
        n, s = tir.const_int(dim), tir.const_int(step)
        if n is None or s is None:
            return INT64
        reach += abs(n * s)
    return INT32 if reach < 2**31 else INT64


def _add_indices(a: Expr, b: Expr) -> Expr:
    """Return a + b; the sum with a ramp is a ramp."""
    match a, b:
        case tir.Ramp(), tir.Ramp() if a.lanes == b.lanes:
            return tir.Ramp(a.dtype, c.add(a.base, b.base), c.add(a.stride, b.stride), a.lanes)
        case tir.Ramp(), tir.Broadcast(value=v) if v.dtype.lanes == 1:
            return tir.Ramp(a.dtype, c.add(a.base, v), a.stride, a.lanes)
        case tir.Broadcast(value=v), tir.Ramp() if v.dtype.lanes == 1:
            return tir.Ramp(b.dtype, c.add(v, b.base), b.stride, b.lanes)
        case tir.Ramp(), _ if b.dtype.lanes == 1:
            return tir.Ramp(a.dtype, c.add(a.base, b), a.stride, a.lanes)
        case _, tir.Ramp() if a.dtype.lanes == 1:
            return tir.Ramp(b.dtype, c.add(a, b.base), b.stride, b.lanes)
    return c.add(a, b)


def shifted_index(index: Expr, offset: Expr) -> Expr:
    """Return index + offset, a scalar, in the wider of their types; ramps stay ramps."""
    wider = offset.dtype if offset.dtype.bits > index.dtype.bits else index.dtype.element
    return _add_indices(_cast_index(wider, index), c.cast(wider, offset))


def _scale_index(index: Expr, step: Expr) -> Expr:
    if isinstance(index, tir.Ramp):
        return tir.Ramp(index.dtype, c.mul(index.base, step), c.mul(index.stride, step), index.lanes)
    return c.mul(index, step)


def _cast_index(dtype: DType, index: Expr) -> Expr:
    if isinstance(index, tir.Ramp) and index.dtype.element is not dtype:
        base, stride = c.cast(dtype, index.base), c.cast(dtype, index.stride)
        return tir.Ramp(dtype.with_lanes(index.lanes), base, stride, index.lanes)
    return c.cast(dtype.with_lanes(index.dtype.lanes), index)


class _Flattener(TirMutator):
    def __init__(
        self, functions: Mapping[str, tir.PrimFunc], sizes: frozenset[tir.Var], narrow_indices: bool
    ) -> None:  # fmt: skip
        self._functions = functions
        self._narrow = narrow_indices
        self._sizes = sizes
        self.flat: dict[tir.Buffer, tir.Buffer] = {}
        self.by_data: dict[tir.Var, tir.Buffer] = {}
        self._analyzer = Analyzer()
        self._known: dict[tir.Var, Expr] = {}  # sizes where the code runs for one value alone

    def var(self, node: tir.Var) -> Expr:
        return self._known.get(node, node)

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        match node.condition:
            case tir.EQ(lhs=tir.Var() as size, rhs=tir.IntImm() as value) if size in self._sizes:
                before, self._known = self._known, {**self._known, size: value}
                then = self.body(node.then_body)
                self._known = before
            case tir.LT(lhs=tir.Var() as size, rhs=tir.IntImm()) if size in self._sizes:
                with self._analyzer.constraint(node.condition):
                    then = self.body(node.then_body)
            case _:
                return super().stmt_if(node)
        return replace(node, then_body=then, else_body=None if node.else_body is None else self.body(node.else_body))

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        """Allocate memory of unknown size by a small bound of it, if conditions around it give one."""
        data = node.buffer.data
        self.by_data[data] = node.buffer
        flat = self.buffer(node.buffer)
        (size,) = flat.shape
        if tir.const_int(size) is None:
            most = self._analyzer.bound(size).max
            if most <= _MAX_BOUNDED_SIZE:
                flat = self.flat[node.buffer] = replace(flat, shape=(c.const(int(most), size.dtype),))
        return replace(node, buffer=flat)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        return super().stmt_for(node)

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        flat = self.flat.get(node)
        if flat is None:
            flat = self.flat[node] = flat_buffer(node)
        return flat

    def buffer_binder(self, node: tir.Buffer) -> tir.Buffer:
        self.by_data[node.data] = node
        return self.buffer(node)

    def _index(self, buffer: tir.Buffer, indices: tuple[Expr, ...]) -> tuple[Expr]:
        indices = self.exprs(indices)
        if len(indices) != len(buffer.shape):
            message = f"`{buffer.name}` has {len(buffer.shape)} dimensions and is accessed with {len(indices)} indices"
            raise CompileError(error("E0708", message, buffer.span))
        if len(indices) == 1 and not buffer.strides and _is_zero(buffer.elem_offset):
            return (indices[0],)
        dtype = index_type(buffer)
        if not self._narrow and any(i.dtype.element is INT64 for i in indices):
            dtype = INT64
        strides = self.exprs(buffer.strides) or compact_strides(self.exprs(buffer.shape))
        joined = self._linearized(indices, strides, dtype) if indices else None
        if joined is not None:
            indices, strides = (joined,), (c.const(1, dtype),)
        total: Expr = c.const(0, dtype)
        if not _is_zero(buffer.elem_offset):
            assert buffer.elem_offset is not None
            total = c.cast(dtype, self.expr(buffer.elem_offset))
        for index, step in zip(indices, strides, strict=True):
            total = _add_indices(total, _scale_index(_cast_index(dtype, index), c.cast(dtype, step)))
        return (total,)

    def _linearized(self, indices: tuple[Expr, ...], strides: tuple[Expr, ...], enough: DType) -> Expr | None:
        """Return the linearized index if divisions cancel in it, else None. Sums fit the type `enough`."""
        dtype = indices[0].dtype
        if (
            dtype not in (enough, INT64)
            or any(i.dtype != dtype for i in indices)
            or not any(map(count_divisions, indices))
        ):
            return None
        return linearized_index(indices, strides, self._analyzer)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        indices = self._index(node.buffer, node.indices)
        return tir.BufferLoad(node.dtype, self.buffer(node.buffer), indices, span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt:
        indices, value = self._index(node.buffer, node.indices), self.expr(node.value)
        return tir.BufferStore(self.buffer(node.buffer), value, indices, span=node.span)

    # ------------------------------------------------------------ calls

    def expr_call(self, node: tir.Call) -> Expr:
        if isinstance(node.op, relax.GlobalVar):
            return self._lower_module_call(node, node.op.name, node.args, ())
        match node.args:
            case (tir.StringImm(value=name), *_) if called(node).extern and name in self._functions:
                return self._lower_module_call(node, name, node.args[1:], node.args[:1])
        args = self.exprs(node.args)
        if called(node).packed:
            args = tuple(self._as_tensor(a) for a in args)
        return node if args is node.args else replace(node, args=args)

    def _as_tensor(self, arg: Expr) -> Expr:
        """Return the data variable of a known buffer as a flat tensor of the whole buffer, for a packed function."""
        buffer = self.by_data.get(arg) if isinstance(arg, tir.Var) else None
        return arg if buffer is None else pack_buffer(self.buffer(buffer))

    def _lower_module_call(self, node: tir.Call, name: str, args: tuple[Expr, ...], head: tuple[Expr, ...]) -> Expr:
        """Return a call of a PrimFunc. A callee with symbolic sizes gets tensor descriptors, which carry them."""
        callee = self._functions.get(name)
        if callee is None or len(callee.params) != len(args):
            reason = "" if callee is None else f": it takes {len(callee.params)} arguments, not {len(args)}"
            raise CompileError(error("E0708", f"invalid call of `{name}`{reason}", node.span))
        symbolic = bool(symbols_of(callee))
        operands = list(self.exprs(args))
        for number, (parameter, arg) in enumerate(zip(callee.buffers, args, strict=True)):
            buffer = self.by_data.get(arg) if isinstance(arg, tir.Var) else None
            if parameter is not None and buffer is not None:
                operands[number] = self.expr(pack_buffer(buffer)) if symbolic else _first_address(buffer)
        return replace(node, args=(*head, *operands))


def _first_address(buffer: tir.Buffer) -> Expr:
    """Return the address of a buffer's first element."""
    if _is_zero(buffer.elem_offset):
        return buffer.data
    assert buffer.elem_offset is not None
    kind = tir.Call(buffer.dtype, tir.Op("tir.type_annotation"), ())
    return c.call("handle", "tvm_access_ptr", kind, buffer.data, buffer.elem_offset, 0, 3)


_MAX_BYTES = 1 << 62  # so that no sum of index products wraps


def _check_size(buffer: tir.Buffer) -> None:
    """Raise CompileError if the constant dimensions of a buffer exceed 64-bit addresses."""
    total = buffer.dtype.bytes * buffer.dtype.lanes
    for dim in buffer.shape:
        total *= max(tir.const_int(dim) or 1, 1)
    for dim, step in zip(buffer.shape, buffer.strides, strict=bool(buffer.strides)):
        n, s = tir.const_int(dim), tir.const_int(step)
        total = max(total, abs((n or 1) * (s or 1)))
    if total > _MAX_BYTES:
        message = f"the buffer `{buffer.name}` is too large"
        raise CompileError(error("E0704", message, buffer.span, "its elements cannot be addressed"))


def flat_buffer(buffer: tir.Buffer) -> tir.Buffer:
    """Return the one-dimensional buffer over the same memory, with as many elements as the layout spans."""
    _check_size(buffer)
    if len(buffer.shape) == 1 and not buffer.strides and _is_zero(buffer.elem_offset):
        return buffer
    dtype = index_type(buffer)
    size: Expr = c.const(1, dtype)
    if buffer.strides or not _is_zero(buffer.elem_offset):
        if not _is_zero(buffer.elem_offset):
            assert buffer.elem_offset is not None
            size = c.add(size, c.cast(dtype, buffer.elem_offset))
        for dim, step in zip(buffer.shape, buffer.strides or compact_strides(buffer.shape), strict=True):
            size = c.add(size, c.mul(c.sub(c.cast(dtype, dim), 1), c.cast(dtype, step)))
        for dim in buffer.shape:  # nothing at all where a dimension is 0
            if isinstance(dim, tir.IntImm):
                size = size if dim.value else c.const(0, dtype)
            else:
                size = tir.Select(dtype, c.equal(dim, 0), c.const(0, dtype), size)
    else:
        for dim in buffer.shape:
            size = c.mul(size, c.cast(dtype, dim))
    zero = c.const(0, dtype)
    return replace(buffer, shape=(size,), strides=(), elem_offset=zero, offset_factor=1, axis_separators=())


@dataclass(frozen=True)
class FlattenBuffers(LoweringStep):
    """Give every access one index: shapes, strides and offsets turn into arithmetic.

    Before:  C[i, j] = A[i, j]
    After:   C_1[i * 16 + j] = A_1[i * 16 + j]
    """

    name: ClassVar[str] = "flatten-buffers"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return flatten_buffers(func, functions, options.narrow_indices)
