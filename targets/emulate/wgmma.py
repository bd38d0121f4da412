"""Emulate warpgroup matrix products (wgmma) from their descriptors: a wrong encoding gives wrong results here, too.

Source: PTX ISA, "Matrix Descriptor Format", "Strides", "Swizzling Modes".

Every thread loads its share of the operands, element by element from the addresses in the descriptors, so that checks
see the loads; then the group multiplies. Sums accumulate in `pending`, a copy of the accumulator: registers are copied
to it at a fence, and back at the end of a wait. Reading sums before the wait, or setting registers after the fence,
therefore gives wrong results. With checks, the operands are read again at the wait: a premature write is reported as a
race, or poisons the sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.wgmma_layout import THREADS, M, dtype_of
from mlcc.targets.emulate.collectives import GROUPS, Gathered
from mlcc.targets.emulate.tensor_cores import fragment, operand
from mlcc.targets.emulate.wgmma_operands import InFlightReads, Matrix, loop, product_of


def _size(buffer: tir.Buffer) -> int:
    return tir.const_int(buffer.shape[0]) or 0


def _copy_elements(target: tir.Buffer, source: tir.Buffer) -> Stmt:
    return loop("e", _size(target), lambda e: [c.store(target, c.load(source, e), e)])


# ---------------------------------------------------------------- per thread


@dataclass(frozen=True, slots=True, eq=False)
class _Accumulator:
    """An accumulator with its `pending` sums, and the group (from 0) of the last product on it, -1 for none."""

    buffer: tir.Buffer
    pending: tir.Buffer
    last_group: tir.Buffer
    in_flight: list[InFlightReads]

    def poison(self) -> Stmt:
        dtype = self.buffer.dtype
        value = c.const(float("nan") if dtype.is_float else 1 << 30, dtype)
        return loop("e", _size(self.pending), lambda e: [c.store(self.pending, value, e)])


class Accumulators:
    """The accumulators of a kernel's products. `groups` counts the committed groups.

    `checking`: operands are read again when their products are waited for.
    """

    def __init__(self, products: Iterable[tir.Call], thread: Expr, checking: bool) -> None:
        self.groups = c.make_buffer("groups", (1,), INT32, "local")
        self.in_scope: list[tir.Var] = []  # accumulators allocated in enclosing scopes
        self._thread = c.floormod(thread, THREADS)
        self._products = list(products)
        self._checking = checking
        self._accumulators: dict[tir.Var, _Accumulator] = {}
        self._in_flight: dict[tuple[int, int], InFlightReads] = {}  # by product and argument

    def __bool__(self) -> bool:
        return bool(self._products)

    def allocate(self, node: tir.AllocBuffer) -> list[Stmt]:
        """Return an allocation, followed for an accumulator by those of its pending sums and bookkeeping."""
        buffer = node.buffer
        products = [p for p in self._products if p.args[8] is buffer.data]
        if not products:
            return [node]
        in_flight: list[InFlightReads] = []
        for product in products if self._checking else ():
            for matrix in Matrix.of(product):
                in_flight.append(InFlightReads(matrix))
                self._in_flight[id(product), matrix.at] = in_flight[-1]
        pending = c.make_buffer(f"{buffer.name}_later", tuple(buffer.shape), buffer.dtype, "local")
        accumulator = self._accumulators[buffer.data] = _Accumulator(
            buffer, pending, c.make_buffer("last", (1,), INT32, "local"), in_flight
        )
        self.in_scope.append(buffer.data)
        head = [
            node,
            tir.AllocBuffer(accumulator.pending),
            tir.AllocBuffer(accumulator.last_group),
            c.store(accumulator.last_group, c.const(-1), 0),
        ]
        return [*head, accumulator.poison(), *(s for flight in in_flight for s in flight.allocate())]

    def fence(self) -> list[Stmt]:
        """Copy registers to the pending sums, except for sums in flight."""
        accumulators = (self._accumulators[data] for data in self.in_scope)
        return [
            tir.IfThenElse(c.less(c.load(x.last_group, 0), 0), (_copy_elements(x.pending, x.buffer),))
            for x in accumulators
        ]

    def commit(self) -> list[Stmt]:
        return [c.store(self.groups, c.add(c.load(self.groups, 0), 1), 0)]

    def wait(self, count: Expr) -> list[Stmt]:
        """Retire all groups but the last `count`: copy their sums back to the registers."""
        stmts: list[Stmt] = []
        limit = c.sub(c.load(self.groups, 0), count)
        for x in (self._accumulators[data] for data in self.in_scope):
            stmts += [flight.retire(limit, self._thread, x.poison()) for flight in x.in_flight]
            is_retired = c.logical_and(
                c.greater_equal(c.load(x.last_group, 0), 0), c.less(c.load(x.last_group, 0), limit)
            )
            stmts.append(
                tir.IfThenElse(is_retired, (_copy_elements(x.buffer, x.pending), c.store(x.last_group, c.const(-1), 0)))
            )
        return stmts

    def product(self, node: tir.Call) -> list[Stmt]:
        """Emit a product: load this thread's share of the operands in shared memory, then multiply as a group."""
        data = node.args[8]
        if not isinstance(data, tir.Var) or data not in self._accumulators:
            raise CompileError(
                error("E0749", "the accumulator of `wgmma` must be a local buffer of its kernel", node.span)
            )
        accumulator = self._accumulators[data]
        args = list(node.args)
        stmts: list[Stmt] = []
        for matrix in Matrix.of(node):
            share = c.make_buffer("share", (matrix.per_thread,), matrix.dtype, "local")
            bits = node.args[matrix.at]
            stmts.append(tir.AllocBuffer(share))
            stmts += matrix.elements(
                bits,
                matrix.dtype,
                self._thread,
                lambda e, value, to=share: c.store(to, value, e),  # type: ignore[misc]
            )
            reads = self._in_flight.get((id(node), matrix.at))
            stmts += [] if reads is None else reads.issue(share, bits, c.load(self.groups, 0), self._thread)
            args[matrix.at] = share.data
        args[8] = accumulator.pending.data
        call = tir.Call(node.dtype, node.op, tuple(args), span=node.span)
        return [*stmts, tir.Evaluate(call, span=node.span), c.store(accumulator.last_group, c.load(self.groups, 0), 0)]


# ---------------------------------------------------------------- per warpgroup


def _multiply(g: Gathered, first: Expr) -> list[Stmt]:
    """Accumulate products in float32 (int32), in the order of k, and round once to the accumulator's type."""
    product = product_of(g.call)
    in_registers = g.call.op == tir.Op("tir.ptx_wgmma_rs")
    a_dtype, b_dtype, dtype = (dtype_of(t) for t in (product.a, product.b, product.accumulator))
    wide = DType.of("int32" if dtype.is_int else "float32")
    n, k = product.n, product.k
    left = c.make_buffer("left", (M * k,), wide, "local")
    right = c.make_buffer("right", (n * k,), wide, "local")
    total = c.make_buffer("total", (1,), wide, "local")
    signs = [c.cast(wide, a) for a in g.call.args[11:13]]

    def fill(to: tir.Buffer, rows: int, at: int, kind: str, source: DType, sign: Expr) -> Stmt:
        each = -(-rows * k // THREADS)

        def element(e: tir.Var) -> list[Stmt]:
            if at == 4:
                thread, number = product.place_a(c.floordiv(e, k), c.floormod(e, k))
                decl, given = fragment(g, 4, c.add(first, thread), source, product.a_count)
            else:
                number = c.floormod(e, each)
                pointer = g.arg(at, c.add(first, c.floordiv(e, each)))
                given = c.make_buffer("shares", (each,), source, "local")
                decl = tir.DeclBuffer(given, pointer)
            value = c.mul(operand(c.load(given, number), wide, kind), sign)
            return [decl, c.store(to, value, e)]

        return loop("e", rows * k, element)

    def row(i: tir.Var) -> list[Stmt]:
        return [loop("j", n, lambda j: element(i, j))]

    def element(i: tir.Var, j: tir.Var) -> list[Stmt]:
        thread, number = product.place_c(i, j)
        decl, sums = fragment(g, 8, c.add(first, thread), dtype, product.sums)
        start = tir.Call(
            wide, tir.Op("tir.if_then_else"), (g.arg(10, first), c.cast(wide, c.load(sums, number)), c.const(0, wide))
        )

        def step(x: tir.Var) -> list[Stmt]:
            factors = c.load(left, c.add(c.mul(i, k), x)), c.load(right, c.add(c.mul(j, k), x))
            return [c.store(total, c.add(c.load(total, 0), c.mul(*factors)), 0)]

        return [decl, c.store(total, start, 0), loop("k", k, step),
                c.store(sums, c.cast(dtype, c.load(total, 0)), number)]  # fmt: skip

    body: tuple[Stmt, ...] = (
        tir.AllocBuffer(left), tir.AllocBuffer(right), tir.AllocBuffer(total),
        fill(left, M, 4 if in_registers else 6, product.a, a_dtype, signs[0]),
        fill(right, n, 7, product.b, b_dtype, signs[1]), loop("i", M, row),
    )  # fmt: skip
    return [tir.IfThenElse(g.is_active(c.add(first, THREADS - 1)), body)]


GROUPS.update({"tir.ptx_wgmma_ss": (THREADS, _multiply), "tir.ptx_wgmma_rs": (THREADS, _multiply)})
