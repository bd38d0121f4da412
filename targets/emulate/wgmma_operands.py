"""Matrices in shared memory that products of warpgroups read, by the bits of their descriptors (PTX ISA, "Matrix
Descriptor Format", "Strides", "Swizzling Modes"): what each thread loads of them, and what it finds there later on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT32, DType
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.wgmma_layout import THREADS, M, Wgmma, dtype_of
from mlcc.targets.emulate.checks import UNCOUNTED

_BITS, _WORD = DType.of("uint64"), DType.of("uint32")
_SPACE = 1 << 18  # bytes of shared memory that an address of 14 bits and 4 more reaches


def product_of(node: tir.Call) -> Wgmma:
    """Return the shapes and types of a call's product. Raises CompileError E0749."""
    texts = [a.value if isinstance(a, tir.StringImm) else "" for a in node.args[:4]]
    product = Wgmma.of(*texts)
    if product is None or len(node.args) != 13:
        raise CompileError(error("E0749", f"`T.{node.op.name[4:]}` of {' '.join(texts)} is not known", node.span))
    return product


def loop(name: str, extent: int, body: Callable[[tir.Var], list[Stmt]]) -> Stmt:
    """A loop over a new variable, which `body` gets."""
    var = tir.Var(name, INT32)
    return tir.For(var, c.const(0), c.const(extent), ForKind.SERIAL, tuple(body(var)))


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """A matrix of `rows`, each of `k` elements of a sum, whose descriptor is argument `at` of a product; `turned` is
    the flag for how it lies. By rows, a thread has as many elements as there are for each, one after another."""

    node: tir.Call
    at: int
    turned: Expr
    rows: int
    k: int
    dtype: DType
    base: tir.Var

    @staticmethod
    def of(node: tir.Call) -> list[Matrix]:
        """Return the operands of a product that are in shared memory. Raises CompileError E0749."""
        product = product_of(node)
        args = node.args
        both = node.op == tir.Op("tir.ptx_wgmma_ss")
        wanted = [(6, args[4], M, product.a)] * both + [(7, args[5 if both else 6], product.n, product.b)]
        return [Matrix(node, at, t, rows, product.k, dtype_of(x), _base(node, args[at])) for at, t, rows, x in wanted]

    @property
    def each(self) -> int:
        return -(-self.rows * self.k // THREADS)

    def has(self, thread: Expr, number: Expr) -> Expr:
        """Return the condition that a thread has element `number`: the last threads may have fewer, or none."""
        return c.less(c.add(c.mul(thread, self.each), number), self.rows * self.k)

    def elements(self, bits: Expr, dtype: DType, thread: Expr, use: Callable[[tir.Var, Expr], Stmt]) -> list[Stmt]:
        """Apply `use` to each element of a thread: its number, and its value as `dtype`, read by a descriptor."""
        scope = self.base.pointer.scope if self.base.pointer is not None else "shared"
        given = c.make_buffer("matrix", (_SPACE // dtype.bytes,), dtype, scope)
        descriptor, start = tir.Var("descriptor", _BITS), tir.Var("base", _BITS)
        kind = tir.Call(DType.of("uint8"), tir.Op("tir.type_annotation"), ())
        first = c.call("handle", "tvm_access_ptr", kind, self.base, 0, 0, 1)
        address = c.cast(_BITS, tir.Call(DType.of("uint32"), tir.Op("tir.ptx_shared_address"), (first,)))

        def load(e: tir.Var) -> list[Stmt]:
            number = c.add(c.mul(thread, self.each), e)
            place = _address(descriptor, c.floordiv(number, self.k), c.floormod(number, self.k), self.turned, dtype)
            inside = c.cast(INT32, _op("bitwise_and", c.sub(c.cast(_BITS, place), start), c.const(_SPACE - 1, _BITS)))
            value = tir.BufferLoad(dtype, given, (c.floordiv(inside, dtype.bytes),), span=self.node.span)
            return [tir.IfThenElse(self.has(thread, e), (use(e, value),))]

        return [
            tir.DeclBuffer(given, self.base), tir.Bind(descriptor, bits), tir.Bind(start, address),
            tir.AttrStmt(c.const(0), UNCOUNTED, 1, (loop("e", self.each, load),)),
        ]  # fmt: skip


class Flight:
    """Reads of one matrix by products in flight. They are checked again at the wait: the contents must be unchanged,
    and no thread may be writing them. A ring buffer holds the last `ROOM` products: descriptor, number of the group,
    and checksum of this thread's share. `ends` are the numbers of products retired and issued."""

    ROOM = 16

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._word = DType.of(f"uint{matrix.dtype.bits}")
        self._bits, self._group, self._sum, self._ends, self._total = (
            c.make_buffer(name, (size,), dtype, "local")
            for name, size, dtype in (("bits", self.ROOM, _BITS), ("group", self.ROOM, INT32),
                                      ("sum", self.ROOM, _WORD), ("ends", 2, INT32), ("total", 1, _WORD))
        )  # fmt: skip

    def allocated(self) -> list[Stmt]:
        allocations: list[Stmt] = [
            tir.AllocBuffer(b) for b in (self._bits, self._group, self._sum, self._ends, self._total)
        ]
        return [*allocations, *(c.store(self._ends, c.const(0), n) for n in range(2))]

    def _add(self, value: Expr) -> Stmt:
        return c.store(self._total, c.add(c.load(self._total, 0), c.cast(_WORD, value)), 0)

    def begins(self, share: tir.Buffer, bits: Expr, group: Expr, thread: Expr) -> list[Stmt]:
        """Record a product after this thread's share was loaded."""
        of = self._matrix
        words = c.make_buffer("words", (of.each,), self._word, "local")
        low, high = c.load(self._ends, 0), c.load(self._ends, 1)
        slot = c.floormod(high, self.ROOM)
        full = c.equal(c.sub(high, low), self.ROOM)
        return [
            tir.DeclBuffer(words, share.data), c.store(self._total, c.const(0, _WORD), 0),
            loop("e", of.each, lambda e: [tir.IfThenElse(of.has(thread, e), (self._add(c.load(words, e)),))]),
            tir.IfThenElse(full, (c.store(self._ends, c.add(low, 1), 0),)),
            c.store(self._bits, bits, slot), c.store(self._group, group, slot),
            c.store(self._sum, c.load(self._total, 0), slot), c.store(self._ends, c.add(high, 1), 1),
        ]  # fmt: skip

    def ends(self, limit: Expr, thread: Expr, spoil: Stmt) -> Stmt:
        """Check at a wait for groups below `limit`: run `spoil` where an operand has changed since it was read."""
        low = c.load(self._ends, 0)
        slot = c.floormod(low, self.ROOM)
        over = tir.And(BOOL, c.less(low, c.load(self._ends, 1)), c.less(c.load(self._group, slot), limit))
        again = self._matrix.elements(c.load(self._bits, slot), self._word, thread, lambda e, value: self._add(value))
        look = (
            c.store(self._total, c.const(0, _WORD), 0), *again,
            tir.IfThenElse(c.not_equal(c.load(self._total, 0), c.load(self._sum, slot)), (spoil,)),
            c.store(self._ends, c.add(low, 1), 0),
        )  # fmt: skip
        return loop("r", self.ROOM, lambda r: [tir.IfThenElse(over, look)])


def _base(node: tir.Call, descriptor: Expr) -> tir.Var:
    """Return the memory that a descriptor points to: the operand whose address it takes."""
    for call in walk(descriptor):
        if isinstance(call, tir.Call) and call.op == tir.Op("tir.ptx_shared_address"):
            data = next((n for n in walk(call) if isinstance(n, tir.Var) and n.dtype.is_handle), None)
            if data is not None:
                return data
    message = "the descriptor of a matrix has to stand where it is used"
    raise CompileError(error("E0749", message, node.span, help="`T.ptx_wgmma_descriptor` in the call"))


def _address(bits: Expr, row: Expr, k: Expr, turned: Expr, dtype: DType) -> Expr:
    """Return the address of element (row, k) by a descriptor.

    Bits 0 to 13, 16 to 29 and 32 to 45 are the start, the leading and the stride distance in units of 16 bytes, bits 62
    and 63 the swizzle mode.

    If k is contiguous, 8 rows of as many bytes as the swizzle is wide (16 for none) are one contiguous piece, and the
    stride leads to the next 8 rows; without a swizzle the leading distance leads to the next 16 bytes of a row. If the
    rows of A (columns of B) are contiguous, 8 steps along k of that width are one piece; the stride leads to the next
    8 and the leading distance to the next rows, or the other way round without a swizzle.
    """
    start, leading, stride = (_field(bits, at) for at in (0, 16, 32))
    mode = c.cast(INT32, _op("shift_right", bits, c.const(62, _BITS)))
    plain = c.equal(mode, 0)
    width = tir.Select(INT32, plain, c.const(16), _op("shift_right", c.const(256), mode))
    size = dtype.bytes
    chunk = 16 // size
    if tir.const_int(turned):
        wide = c.floordiv(width, size)
        next_rows = tir.Select(INT32, plain, stride, leading)
        next_sum = tir.Select(INT32, plain, leading, stride)
        across = c.add(c.mul(c.floormod(row, wide), size), c.mul(c.floordiv(row, wide), next_rows))
        along = c.add(c.mul(c.floormod(k, 8), width), c.mul(c.floordiv(k, 8), next_sum))
    else:
        next_chunk = tir.Select(INT32, plain, leading, c.const(16))
        across = c.add(c.mul(c.floormod(row, 8), width), c.mul(c.floordiv(row, 8), stride))
        along = c.add(c.mul(c.floormod(k, chunk), size), c.mul(c.floordiv(k, chunk), next_chunk))
    place = c.add(start, c.add(across, along))
    exchange = _op("bitwise_and", _op("shift_right", place, c.const(3)), c.sub(width, 16))
    return _op("bitwise_xor", place, exchange)


def _field(bits: Expr, at: int) -> Expr:
    """14 bits, as bytes (int32)."""
    low = _op("bitwise_and", _op("shift_right", bits, c.const(at, _BITS)), c.const(0x3FFF, _BITS))
    return c.mul(c.cast(INT32, low), 16)


def _op(name: str, a: Expr, b: Expr) -> Expr:
    return tir.Call(a.dtype, tir.Op(f"tir.{name}"), (a, b))
