"""Operands of warpgroup products in shared memory, addressed by descriptors: loads, and checks for premature writes.

Source: PTX ISA, "Matrix Descriptor Format", "Strides", "Swizzling Modes".
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
_SPACE = 1 << 18  # bytes of shared memory that a 14-bit address in units of 16 bytes reaches


def product_of(node: tir.Call) -> Wgmma:
    """Return the shapes and types of a call's product. Raises CompileError E0749."""
    texts = [a.value if isinstance(a, tir.StringImm) else "" for a in node.args[:4]]
    product = Wgmma.of(*texts)
    if product is None or len(node.args) != 13:
        raise CompileError(error("E0749", f"`T.{node.op.name[4:]}` of {' '.join(texts)} is not supported", node.span))
    return product


def loop(name: str, extent: int, body: Callable[[tir.Var], list[Stmt]]) -> Stmt:
    """Return a loop over a new variable, which is passed to `body`."""
    var = tir.Var(name, INT32)
    return tir.For(var, c.const(0), c.const(extent), ForKind.SERIAL, tuple(body(var)))


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """An operand of `rows` x `k` elements, whose descriptor is argument `at` of a product.

    `transposed` is its transpose flag. Each thread loads `per_thread` consecutive elements in row-major order.
    """

    node: tir.Call
    at: int
    transposed: Expr
    rows: int
    k: int
    dtype: DType
    base: tir.Var

    @staticmethod
    def of(node: tir.Call) -> list[Matrix]:
        """Return the operands of a product that are in shared memory. Raises CompileError E0749."""
        product = product_of(node)
        args = node.args
        a_in_shared = node.op == tir.Op("tir.ptx_wgmma_ss")
        operands = [(6, args[4], M, product.a)] * a_in_shared + [
            (7, args[5 if a_in_shared else 6], product.n, product.b)
        ]
        return [Matrix(node, at, t, rows, product.k, dtype_of(x), _base(node, args[at])) for at, t, rows, x in operands]

    @property
    def per_thread(self) -> int:
        return -(-self.rows * self.k // THREADS)

    def has(self, thread: Expr, number: Expr) -> Expr:
        """Return the condition that a thread has element `number`: the last threads may have fewer, or none."""
        return c.less(c.add(c.mul(thread, self.per_thread), number), self.rows * self.k)

    def elements(self, bits: Expr, dtype: DType, thread: Expr, use: Callable[[tir.Var, Expr], Stmt]) -> list[Stmt]:
        """Apply `use` to each element of a thread: its number, and its value as `dtype`, loaded by the descriptor."""
        scope = self.base.pointer.scope if self.base.pointer is not None else "shared"
        memory = c.make_buffer("matrix", (_SPACE // dtype.bytes,), dtype, scope)
        descriptor, start = tir.Var("descriptor", _BITS), tir.Var("base", _BITS)
        kind = tir.Call(DType.of("uint8"), tir.Op("tir.type_annotation"), ())
        first = c.call("handle", "tvm_access_ptr", kind, self.base, 0, 0, 1)
        address = c.cast(_BITS, tir.Call(DType.of("uint32"), tir.Op("tir.ptx_shared_address"), (first,)))

        def load(e: tir.Var) -> list[Stmt]:
            number = c.add(c.mul(thread, self.per_thread), e)
            byte_address = _address(
                descriptor, c.floordiv(number, self.k), c.floormod(number, self.k), self.transposed, dtype
            )
            offset = c.cast(
                INT32, _op("bitwise_and", c.sub(c.cast(_BITS, byte_address), start), c.const(_SPACE - 1, _BITS))
            )
            value = tir.BufferLoad(dtype, memory, (c.floordiv(offset, dtype.bytes),), span=self.node.span)
            return [tir.IfThenElse(self.has(thread, e), (use(e, value),))]

        return [
            tir.DeclBuffer(memory, self.base), tir.Bind(descriptor, bits), tir.Bind(start, address),
            tir.AttrStmt(c.const(0), UNCOUNTED, 1, (loop("e", self.per_thread, load),)),
        ]  # fmt: skip


class InFlightReads:
    """Reads of one matrix by products in flight.

    They are repeated at the wait: the contents must be unchanged, and no thread may be writing them. A ring buffer
    holds the last `ROOM` products: descriptor, group number, and checksum of this thread's share. `_ends` holds the
    numbers of products retired and issued.
    """

    ROOM = 16

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._word = DType.of(f"uint{matrix.dtype.bits}")
        self._bits, self._group, self._sum, self._ends, self._total = (
            c.make_buffer(name, (size,), dtype, "local")
            for name, size, dtype in (("bits", self.ROOM, _BITS), ("group", self.ROOM, INT32),
                                      ("sum", self.ROOM, _WORD), ("ends", 2, INT32), ("total", 1, _WORD))
        )  # fmt: skip

    def allocate(self) -> list[Stmt]:
        allocations: list[Stmt] = [
            tir.AllocBuffer(b) for b in (self._bits, self._group, self._sum, self._ends, self._total)
        ]
        return [*allocations, *(c.store(self._ends, c.const(0), n) for n in range(2))]

    def _add(self, value: Expr) -> Stmt:
        return c.store(self._total, c.add(c.load(self._total, 0), c.cast(_WORD, value)), 0)

    def issue(self, share: tir.Buffer, bits: Expr, group: Expr, thread: Expr) -> list[Stmt]:
        """Record a product after loading this thread's share."""
        matrix = self._matrix
        words = c.make_buffer("words", (matrix.per_thread,), self._word, "local")
        low, high = c.load(self._ends, 0), c.load(self._ends, 1)
        slot = c.floormod(high, self.ROOM)
        full = c.equal(c.sub(high, low), self.ROOM)

        def add_element(e: tir.Var) -> list[Stmt]:
            return [tir.IfThenElse(matrix.has(thread, e), (self._add(c.load(words, e)),))]

        return [
            tir.DeclBuffer(words, share.data), c.store(self._total, c.const(0, _WORD), 0),
            loop("e", matrix.per_thread, add_element),
            tir.IfThenElse(full, (c.store(self._ends, c.add(low, 1), 0),)),
            c.store(self._bits, bits, slot), c.store(self._group, group, slot),
            c.store(self._sum, c.load(self._total, 0), slot), c.store(self._ends, c.add(high, 1), 1),
        ]  # fmt: skip

    def retire(self, limit: Expr, thread: Expr, poison: Stmt) -> Stmt:
        """Check the groups below `limit` at a wait: run `poison` if an operand has changed since it was read."""
        low = c.load(self._ends, 0)
        slot = c.floormod(low, self.ROOM)
        is_retired = tir.And(BOOL, c.less(low, c.load(self._ends, 1)), c.less(c.load(self._group, slot), limit))
        reread = self._matrix.elements(c.load(self._bits, slot), self._word, thread, lambda e, value: self._add(value))
        check = (
            c.store(self._total, c.const(0, _WORD), 0), *reread,
            tir.IfThenElse(c.not_equal(c.load(self._total, 0), c.load(self._sum, slot)), (poison,)),
            c.store(self._ends, c.add(low, 1), 0),
        )  # fmt: skip
        return loop("r", self.ROOM, lambda r: [tir.IfThenElse(is_retired, check)])


def _base(node: tir.Call, descriptor: Expr) -> tir.Var:
    """Return the memory that a descriptor expression points to."""
    for call in walk(descriptor):
        if isinstance(call, tir.Call) and call.op == tir.Op("tir.ptx_shared_address"):
            data = next((n for n in walk(call) if isinstance(n, tir.Var) and n.dtype.is_handle), None)
            if data is not None:
                return data
    message = "the descriptor of a matrix must be computed in the call that uses it"
    raise CompileError(error("E0749", message, node.span, help="pass `T.ptx_wgmma_descriptor(...)` directly"))


def _address(bits: Expr, row: Expr, k: Expr, transposed: Expr, dtype: DType) -> Expr:
    """Return the address of element (row, k) according to a descriptor.

    Bits 0 to 13, 16 to 29 and 32 to 45 are the start, the leading and the stride distance in units of 16 bytes, bits 62
    and 63 the swizzle mode.

    If k is contiguous, 8 rows of as many bytes as the swizzle is wide (16 for none) are one contiguous piece, and the
    stride leads to the next 8 rows; without a swizzle the leading distance leads to the next 16 bytes of a row. If the
    rows of A (columns of B) are contiguous, 8 steps along k of that width are one piece; the stride leads to the next
    8 and the leading distance to the next rows, or the other way round without a swizzle.
    """
    start, leading, stride = (_field(bits, at) for at in (0, 16, 32))
    mode = c.cast(INT32, _op("shift_right", bits, c.const(62, _BITS)))
    unswizzled = c.equal(mode, 0)
    width = tir.Select(INT32, unswizzled, c.const(16), _op("shift_right", c.const(256), mode))
    size = dtype.bytes
    chunk = 16 // size
    if tir.const_int(transposed):
        row_elements = c.floordiv(width, size)
        next_rows = tir.Select(INT32, unswizzled, stride, leading)
        next_sum = tir.Select(INT32, unswizzled, leading, stride)
        across = c.add(c.mul(c.floormod(row, row_elements), size), c.mul(c.floordiv(row, row_elements), next_rows))
        along = c.add(c.mul(c.floormod(k, 8), width), c.mul(c.floordiv(k, 8), next_sum))
    else:
        next_chunk = tir.Select(INT32, unswizzled, leading, c.const(16))
        across = c.add(c.mul(c.floormod(row, 8), width), c.mul(c.floordiv(row, 8), stride))
        along = c.add(c.mul(c.floormod(k, chunk), size), c.mul(c.floordiv(k, chunk), next_chunk))
    address = c.add(start, c.add(across, along))
    swizzle = _op("bitwise_and", _op("shift_right", address, c.const(3)), c.sub(width, 16))
    return _op("bitwise_xor", address, swizzle)


def _field(bits: Expr, at: int) -> Expr:
    """Decode a 14-bit field into bytes (int32)."""
    low = _op("bitwise_and", _op("shift_right", bits, c.const(at, _BITS)), c.const(0x3FFF, _BITS))
    return c.mul(c.cast(INT32, low), 16)


def _op(name: str, a: Expr, b: Expr) -> Expr:
    return tir.Call(a.dtype, tir.Op(f"tir.{name}"), (a, b))
