"""Swizzle shared memory: permute 16-byte pieces within rows, so that accesses to a column avoid bank conflicts.

Blocks request it by the annotation `permuted_layout` (TVM's name). A row is the extent of the last dimension. With
width 128, piece `p` of row `r` is stored at `p ^ r % 8` within each eight pieces; with 64 at `p ^ r // 2 % 4` within
four; with 32 at `p ^ r // 4 % 2` within two. Where a row is as long as the width, this is the 128, 64 or 32 byte
swizzle of the PTX ISA ("Shared Memory Matrix Layout", "Swizzling Modes"), which is a function of the address; buffers
are aligned to 1024 bytes for it. The value of the annotation is the width, or 1 (or a string, as in TVM) for the
greatest width that divides the length of a row.

`plan_swizzle` records the permutation while buffers still have dimensions. `swizzle_shared` permutes flat indices,
after barriers, vectors and asynchronous copies are generated: up to then indices are unpermuted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.proofs import linear_terms
from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import Node, find, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.allocate import PERMUTED
from mlcc.passes.lowering.match_buffer import compact_strides
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT, LOOPS

WIDTHS = (128, 64, 32)
PIECE = 16  # bytes that stay together
ALIGNMENT = 1024
SWIZZLE = "mlcc.swizzle"  # of an allocation: width, row and size of its `Permutation`
# intrinsics that access at most a piece of shared memory: positions of the pointer and the offset
_PIECES = {"ptx_ldmatrix": ((5, 6),), "ptx_cp_async": ((0, 1),)}
# intrinsics that apply the swizzle themselves: they get the unpermuted address
BY_ADDRESS = frozenset({"ptx_shared_address", "mlcc_cp_async_bulk_tile"})


@dataclass(frozen=True, slots=True)
class Permutation:
    """A swizzle: the permutation of the pieces of a buffer with elements of `size` bytes in rows of `row` bytes."""

    width: int
    row: int
    size: int

    @staticmethod
    def of(annotations: Mapping[str, object]) -> Permutation | None:
        """Read the permutation that `plan-swizzle` recorded at an allocation; None if there is none."""
        noted = annotations.get(SWIZZLE)
        if not isinstance(noted, tuple) or len(noted) != 3:
            return None
        width, row, size = (tir.const_int(n) if isinstance(n, tir.Expr) else n for n in noted)
        return Permutation(width, row, size)  # type: ignore[arg-type]

    @property
    def is_by_address(self) -> bool:
        """True if this is the hardware swizzle, a function of the address: rows are as wide as the swizzle."""
        return self.width == self.row

    @property
    def _run_length(self) -> int:
        """The number of consecutive elements whose pieces are exchanged in the same way."""
        return self.row * (WIDTHS[0] // self.width) // self.size

    @property
    def period(self) -> int:
        """The period of the permutation, in elements."""
        return self._run_length * (self.width // PIECE)

    def apply(self, index: Expr, analyzer: Analyzer) -> Expr:
        """Return the permuted index of an element. A vector that is one piece stays contiguous; otherwise each lane is
        permuted. Terms that are multiples of the period are left out of the permutation."""
        if isinstance(index, tir.Ramp):
            if self._is_one_piece(index, analyzer):
                start = self.apply(index.base, analyzer)
                return tir.Ramp(index.dtype, start, index.stride, index.lanes, span=index.span)
            return self._xor_swizzle(index)
        if index.dtype.lanes > 1:
            return self._xor_swizzle(index)
        inside: Expr = c.const(0, index.dtype)
        outside: Expr = inside
        for term, factor in linear_terms(analyzer.simplify(index)):
            part = c.mul(term, factor)
            coeff, base = analyzer.modular_set(part)
            if coeff % self.period == 0 and base % self.period == 0:
                outside = c.add(outside, part)
            elif coeff == 0:
                outside = c.add(outside, base - base % self.period)
                inside = c.add(inside, base % self.period)
            else:
                inside = c.add(inside, part)
        return c.add(outside, self._xor_swizzle(inside))

    def _is_one_piece(self, index: tir.Ramp, analyzer: Analyzer) -> bool:
        lanes = index.lanes
        if tir.const_int(index.stride) != 1 or lanes * self.size > PIECE or PIECE // self.size % lanes:
            return False
        return analyzer.prove(c.equal(c.floormod(index.base, lanes), 0))

    def _xor_swizzle(self, index: Expr) -> Expr:
        """Return `index ^ index // run_length % pieces * (elements of a piece)`, by bit operations if possible."""
        dtype = index.dtype
        pieces, elements, run_length = self.width // PIECE, PIECE // self.size, self._run_length
        if run_length & (run_length - 1):
            number = _op("bitwise_and", c.floordiv(index, _constant(run_length, dtype)), _constant(pieces - 1, dtype))
            moved = c.mul(number, _constant(elements, dtype))
        else:
            shift = (run_length // elements).bit_length() - 1
            moved = _op("shift_right", index, _constant(shift, dtype))
            moved = _op("bitwise_and", moved, _constant((pieces - 1) * elements, dtype))
        known = tir.const_int(index)
        if known is not None:
            return c.const(known ^ (known // run_length % pieces * elements), dtype)
        return _op("bitwise_xor", index, moved)


def _constant(value: int, dtype: DType) -> Expr:
    one = c.const(value, dtype.element)
    return one if dtype.lanes == 1 else tir.Broadcast(dtype, one, dtype.lanes)


def _op(name: str, a: Expr, b: Expr) -> Expr:
    return tir.Call(a.dtype, tir.Op(f"tir.{name}"), (a, b))


# ---------------------------------------------------------------- planning


def plan_swizzle(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (loop code before flattening) with a `Permutation` recorded at swizzled allocations. Raises
    CompileError E0774.
    """
    allocations = [n for s in func.body for n in find(s, tir.AllocBuffer) if PERMUTED in n.annotations]
    if not allocations:
        return func
    return replace(func, body=_SwizzlePlanner({n.buffer: _plan(n) for n in allocations}).body(func.body))


def _error(buffer: tir.Buffer, message: str, node: Node | None = None, help: str | None = None) -> CompileError:
    span = (node.span if node is not None else None) or buffer.span
    return CompileError(error("E0774", f"`{buffer.name}` with `{PERMUTED}`: {message}", span, help=help))


def _plan(node: tir.AllocBuffer) -> Permutation | None:
    buffer = node.buffer
    widths = {_width(value, buffer) for value in node.annotations[PERMUTED]} - {None}
    if not widths:
        return None
    if len(widths - {1}) > 1:
        raise _error(buffer, f"blocks ask for different widths, {sorted(widths - {1})}")  # type: ignore[type-var]
    size = buffer.dtype.bytes * buffer.dtype.lanes
    length = tir.const_int(buffer.shape[-1]) if buffer.shape else None
    if length is None or PIECE % size:
        raise _error(buffer, "rows need a constant length and elements whose size divides 16 bytes")
    strides = [tir.const_int(x) for x in buffer.strides or compact_strides(buffer.shape)]
    if strides != [tir.const_int(x) for x in compact_strides(buffer.shape)]:
        help = "a swizzled buffer needs no padding: remove `storage_align`"
        raise _error(buffer, "its rows are padded", help=help)
    row = length * size
    width = max(widths)  # type: ignore[type-var]
    if width == 1:
        width = next((w for w in WIDTHS if row % w == 0), 0)
    assert width is not None
    if not width or row % width:
        help = (
            "the last dimension must span a multiple of 128, 64 or 32 bytes (`transform_layout` can change the shape)"
        )
        raise _error(buffer, f"rows of {row} bytes are not a multiple of {width or WIDTHS[-1]} bytes", help=help)
    return Permutation(width, width if len(buffer.shape) == 1 else row, size)


def _width(value: object, buffer: tir.Buffer) -> int | None:
    """Read the width from an annotation: 1 for any, None for no swizzle."""
    if isinstance(value, (str, tir.StringImm)):
        return 1
    known = tir.const_int(value) if isinstance(value, tir.Expr) else value
    if known in (0, False):
        return None
    if known in (1, *WIDTHS):
        return int(known)
    help = f"widths are {', '.join(map(str, WIDTHS))} bytes, or 1 for any"
    raise _error(buffer, f"{known} is not a width", help=help)


class _SwizzlePlanner(TirMutator):
    def __init__(self, plans: Mapping[tir.Buffer, Permutation | None]) -> None:
        self._plans = plans
        self._buffers: dict[tir.Buffer, tir.Buffer] = {
            b: replace(b, alignment=max(b.alignment, ALIGNMENT)) for b, plan in plans.items() if plan
        }

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        if node.buffer not in self._plans:
            return node
        plan = self._plans[node.buffer]
        rest = node.annotations.without(PERMUTED)
        notes = rest if plan is None else rest.with_item(SWIZZLE, (plan.width, plan.row, plan.size))
        return tir.AllocBuffer(self.buffer(node.buffer), notes, span=node.span)


# ---------------------------------------------------------------- rewriting of indices


def swizzled_buffers(body: tuple[Stmt, ...]) -> dict[tir.Var, tuple[tir.Buffer, Permutation]]:
    """Return the swizzled buffers with their permutations, by data variable."""
    allocations = (n for s in body for n in find(s, tir.AllocBuffer))
    planned = ((n.buffer, Permutation.of(n.annotations)) for n in allocations)
    return {buffer.data: (buffer, plan) for buffer, plan in planned if plan is not None}


def swizzle_shared(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat loop code without views) with indices into swizzled buffers permuted. Raises CompileError
    E0774 if a pointer to such a buffer is used otherwise.
    """
    permuted = swizzled_buffers(func.body)
    return replace(func, body=_IndexSwizzler(permuted).body(func.body)) if permuted else func


class _IndexSwizzler(TirMutator):
    def __init__(self, known: Mapping[tir.Var, tuple[tir.Buffer, Permutation]]) -> None:
        self._known = known
        self._analyzer = Analyzer()

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        return super().stmt_for(node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        return replace(node, annotations=node.annotations.without(SWIZZLE))

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        entry = self._known.get(node.buffer.data)
        if entry is None:
            return super().expr_load(node)
        index = entry[1].apply(self.expr(node.indices[0]), self._analyzer)
        return tir.BufferLoad(node.dtype, node.buffer, (index,), span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        entry = self._known.get(node.buffer.data)
        if entry is None:
            return super().stmt_store(node)
        index = entry[1].apply(self.expr(node.indices[0]), self._analyzer)
        return tir.BufferStore(node.buffer, self.expr(node.value), (index,), span=node.span)

    def expr_var(self, node: tir.Var) -> Expr:
        if node in self._known:
            raise self._address_taken(node, node)
        return node

    def _address_taken(self, data: tir.Var, node: Node) -> CompileError:
        help = "access it by index, by `ldmatrix`, or by asynchronous copies only"
        return _error(self._known[data][0], "its address is taken", node, help)

    def expr_call(self, node: tir.Call) -> Expr:
        name = node.op.name.removeprefix("tir.") if isinstance(node.op, tir.Op) else ""
        if name in BY_ADDRESS:
            return node
        args = list(node.args)
        pieces = _PIECES.get(name, ())
        for at, offset_at in pieces:
            swizzled = self._swizzled_pointer(node, at, offset_at) if offset_at < len(args) else None
            if swizzled is not None:
                args[at], args[offset_at] = swizzled
        done = {at for at, _ in pieces}
        changed = tuple(a if n in done else self.expr(a) for n, a in enumerate(args))
        return replace(node, args=changed)

    def _swizzled_pointer(self, node: tir.Call, at: int, offset_at: int) -> tuple[Expr, Expr] | None:
        """Return the pointer and the permuted offset, in elements, of an access to one piece; None for other memory."""
        pointer, offset = node.args[at], self.expr(node.args[offset_at])
        match pointer:
            case tir.Var():
                data = pointer
            case tir.Call(op=tir.Op(name="tir.tvm_access_ptr"), args=(kind, tir.Var() as data, start, _, _)):
                if data in self._known and kind.dtype is not self._known[data][0].dtype:
                    raise self._address_taken(data, node)
                offset = c.add(c.cast(offset.dtype, self.expr(start)), offset)
            case _:
                return None
        if data not in self._known:
            return None
        buffer, permutation = self._known[data]
        if node.dtype.element is not buffer.dtype.element:
            raise self._address_taken(data, node)
        return data, permutation.apply(offset, self._analyzer)


@dataclass(frozen=True)
class PlanSwizzle(LoweringStep):
    """Record the swizzle that `permuted_layout` asks for at allocations in shared memory.

    Before:  S = T.alloc_buffer((64, 64), "float16", scope="shared"), written under {"permuted_layout": 1}
    After:   the allocation says which pieces of a row change places
    """

    name: ClassVar[str] = "plan-swizzle"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return plan_swizzle(func)


@dataclass(frozen=True)
class SwizzleShared(LoweringStep):
    """Permute indices into swizzled shared memory, so that fewer accesses conflict in a bank.

    Before:  S[i * 64 + j]
    After:   S[i * 64 + (j // 8 ^ i % 8) * 8 + j % 8]
    """

    name: ClassVar[str] = "swizzle-shared"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return swizzle_shared(func)
