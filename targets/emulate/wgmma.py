"""Emulate warpgroup products by decoding their descriptors, so that a wrong encoding gives wrong results here, too.

Source: PTX ISA, "Matrix Descriptor Format", "Strides", "Swizzling Modes".

Every thread loads its share of the operands, element by element from the addresses that descriptors give, so that
checks see the loads; then the group multiplies. Sums accumulate in a twin of the accumulator: registers are copied to
it at a fence, and back at the end of a wait. Sums that are read before the wait, and registers that are set after the
fence, therefore give wrong results. With checks, the operands are read again at the wait: a premature
write is reported as a race, or spoils the sums.
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
from mlcc.targets.emulate.tensor_cores import operand, part
from mlcc.targets.emulate.wgmma_operands import Flight, Matrix, loop, product_of


def _size(buffer: tir.Buffer) -> int:
    return tir.const_int(buffer.shape[0]) or 0


def _copy(to: tir.Buffer, given: tir.Buffer) -> Stmt:
    return loop("e", _size(to), lambda e: [c.store(to, c.load(given, e), e)])


# ---------------------------------------------------------------- code of one thread


@dataclass(frozen=True, slots=True, eq=False)
class _Sum:
    """An accumulator, its twin, and the number of the group (from 0) that has the last product on it, -1 for none."""

    buffer: tir.Buffer
    twin: tir.Buffer
    last: tir.Buffer
    flights: list[Flight]

    def unset(self) -> Stmt:
        dtype = self.buffer.dtype
        value = c.const(float("nan") if dtype.is_float else 1 << 30, dtype)
        return loop("e", _size(self.twin), lambda e: [c.store(self.twin, value, e)])


class Sums:
    """The accumulators of a kernel, by the products that it has. `groups` counts those that were closed. `checking`:
    what products read is looked at again when they are waited for."""

    def __init__(self, products: Iterable[tir.Call], thread: Expr, checking: bool) -> None:
        self.groups = c.make_buffer("groups", (1,), INT32, "local")
        self.inside: list[tir.Var] = []  # those allocated around where the code under way stands
        self._thread = c.floormod(thread, THREADS)
        self._products = list(products)
        self._checking = checking
        self._known: dict[tir.Var, _Sum] = {}
        self._flights: dict[tuple[int, int], Flight] = {}  # by the product, and the argument

    def __bool__(self) -> bool:
        return bool(self._products)

    def allocated(self, node: tir.AllocBuffer) -> list[Stmt]:
        """Return an allocation, and for an accumulator those of its twin and its bookkeeping."""
        buffer = node.buffer
        mine = [p for p in self._products if p.args[8] is buffer.data]
        if not mine:
            return [node]
        flights: list[Flight] = []
        for product in mine if self._checking else ():
            for matrix in Matrix.of(product):
                flights.append(Flight(matrix))
                self._flights[id(product), matrix.at] = flights[-1]
        twin = c.make_buffer(f"{buffer.name}_later", tuple(buffer.shape), buffer.dtype, "local")
        accumulator = self._known[buffer.data] = _Sum(
            buffer, twin, c.make_buffer("last", (1,), INT32, "local"), flights
        )
        self.inside.append(buffer.data)
        head = [
            node,
            tir.AllocBuffer(accumulator.twin),
            tir.AllocBuffer(accumulator.last),
            c.store(accumulator.last, c.const(-1), 0),
        ]
        return [*head, accumulator.unset(), *(s for flight in flights for s in flight.allocated())]

    def fence(self) -> list[Stmt]:
        """Copy registers to the twins that products accumulate in, except for sums in flight."""
        accumulators = (self._known[data] for data in self.inside)
        return [tir.IfThenElse(c.less(c.load(x.last, 0), 0), (_copy(x.twin, x.buffer),)) for x in accumulators]

    def commit(self) -> list[Stmt]:
        return [c.store(self.groups, c.add(c.load(self.groups, 0), 1), 0)]

    def wait(self, count: Expr) -> list[Stmt]:
        """Retire all groups but the last `count`: copy their sums back to the registers."""
        stmts: list[Stmt] = []
        limit = c.sub(c.load(self.groups, 0), count)
        for x in (self._known[data] for data in self.inside):
            stmts += [flight.ends(limit, self._thread, x.unset()) for flight in x.flights]
            over = c.logical_and(c.greater_equal(c.load(x.last, 0), 0), c.less(c.load(x.last, 0), limit))
            stmts.append(tir.IfThenElse(over, (_copy(x.buffer, x.twin), c.store(x.last, c.const(-1), 0))))
        return stmts

    def product(self, node: tir.Call) -> list[Stmt]:
        """Emit a product: load this thread's share of the operands in shared memory, then multiply as a group."""
        data = node.args[8]
        if not isinstance(data, tir.Var) or data not in self._known:
            raise CompileError(error("E0749", "the accumulator of `wgmma` is no local buffer of its kernel", node.span))
        known = self._known[data]
        args = list(node.args)
        stmts: list[Stmt] = []
        for matrix in Matrix.of(node):
            share = c.make_buffer("share", (matrix.each,), matrix.dtype, "local")
            bits = node.args[matrix.at]
            stmts.append(tir.AllocBuffer(share))
            stmts += matrix.elements(
                bits,
                matrix.dtype,
                self._thread,
                lambda e, value, to=share: c.store(to, value, e),  # type: ignore[misc]
            )
            flight = self._flights.get((id(node), matrix.at))
            stmts += [] if flight is None else flight.begins(share, bits, c.load(self.groups, 0), self._thread)
            args[matrix.at] = share.data
        args[8] = known.twin.data
        call = tir.Call(node.dtype, node.op, tuple(args), span=node.span)
        return [*stmts, tir.Evaluate(call, span=node.span), c.store(known.last, c.load(self.groups, 0), 0)]


# ---------------------------------------------------------------- code of the group


def _multiply(g: Gathered, first: Expr) -> list[Stmt]:
    """The sum of products in float32 (int32), in the order of k, rounded once to the accumulator's type."""
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
                decl, given = part(g, 4, c.add(first, thread), source, product.a_count)
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
        decl, sums = part(g, 8, c.add(first, thread), dtype, product.sums)
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
