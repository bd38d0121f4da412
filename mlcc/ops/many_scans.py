"""Prefix sums and products by many threads: blocks scan chunks of a row, then apply the total of the chunks before.

A block scans CHUNK elements, EACH of them a thread; the threads' totals are scanned in shared memory (Hillis and
Steele: each is added to the one 1, 2, 4, ... further on). A second kernel scans the totals of a row's blocks, a third
one adds them. Sums of floats are rounded in another order than a serial scan: in log2(n) steps, with less error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.many_sorts import Rows
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, raw
from mlcc.te.statements import THREADS, Cells

EACH = 4
CHUNK = THREADS * EACH
FEW = 64  # a thread goes through so many by itself

Join = Callable[[Scalar, Scalar], Any]


class Scan:
    """The statements that scan the rows `value(row, k)` and hand each result to `put(value, row, k)`."""

    def __init__(self, rows: Scalar, extent: Scalar, dtype: DType, start: Any, join: Join, exclusive: bool) -> None:
        self.rows, self.extent, self.join, self.exclusive = rows, extent, join, exclusive
        self.start = Scalar(construct.const(start, dtype))
        self.chunks = (extent + (CHUNK - 1)) // CHUNK
        self.totals = code.scratch("totals", (rows, self.chunks), dtype)
        self.lanes, self.heads = (code.scratch(n, (2, THREADS), dtype, "shared") for n in ("lanes", "heads"))
        self.carry = code.scratch("carry", (1,), dtype, "shared")
        self.sum, self.prefix, self.running = (
            code.scratch(n, (1,), dtype, "local") for n in ("sum", "prefix", "running")
        )

    @property
    def is_one(self) -> bool:
        """True if one thread block scans a whole row."""
        known = tir.const_int(self.extent.expr)
        return known is not None and known <= CHUNK

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        cells = [self.lanes, self.sum, self.prefix]
        cells += [] if self.is_one else [self.totals, self.heads, self.carry]
        cells += [self.running] if tir.const_int(self.extent.expr) is None else []
        return tuple(c.buffer for c in cells)

    def scan(self, value: Callable[[Scalar, Scalar], Scalar], put: Any, get: Callable[[Scalar, Scalar], Scalar]) -> Any:
        """`get(row, k)` is what was put there."""
        chunks = code.bound(self.rows * self.chunks, "blockIdx.x", lambda b: self._chunk(b, value, put))
        if self.is_one:
            return chunks
        heads = code.bound(self.rows, "blockIdx.x", self._heads)

        def add(i: Scalar) -> Any:
            row, k = i // self.extent, i % self.extent
            return put(Scalar(self._joined(self.totals[row, k // CHUNK], get(row, k))), row, k)

        blocks = (chunks, heads, code.threads(self.rows * self.extent, add))
        if tir.const_int(self.extent.expr) is not None:
            return blocks
        alone = code.threads(self.rows, lambda row: self._alone(row, value, put))
        return code.when(self.extent <= FEW, alone, blocks)  # which the host decides

    def _alone(self, row: Scalar, value: Callable[[Scalar, Scalar], Scalar], put: Any) -> Any:
        """A row by one thread."""

        def one(k: Scalar) -> Any:
            return self._step(self.running, row, k, value, put)

        return self.running.set(self.start, 0), code.loop(self.extent, one, "k")

    def _step(self, total: Cells, row: Scalar, k: Scalar, value: Callable[[Scalar, Scalar], Scalar], put: Any) -> Any:
        step, here = total.set(Scalar(self._joined(total[0], value(row, k))), 0), put(total[0], row, k)
        return (here, step) if self.exclusive else (step, here)

    def _joined(self, a: Scalar, b: Scalar) -> tir.Expr:
        return raw(self.join(a, b))

    def _threads(self, body: Callable[[Scalar], Any]) -> Any:
        return code.bound(THREADS, "threadIdx.x", body)

    def _steps(self, cells: Cells) -> Any:
        """Each of THREADS totals becomes that of all up to it; the result is where the start was, in half 0."""
        steps = []
        for step in range(THREADS.bit_length() - 1):
            half, by = step % 2, 1 << step

            def one(t: Scalar, half: int = half, by: int = by) -> Any:
                mine = cells[half, t]
                more = [cells.set(Scalar(self._joined(cells[half, t - by], mine)), 1 - half, t)]
                return code.when(t >= by, more, [cells.set(mine, 1 - half, t)])

            steps.append(self._threads(one))
        return steps

    def _before(self, cells: Cells, t: Scalar) -> Any:
        """The total of all threads before one."""
        return te.if_then_else(t > 0, cells[0, t - 1], self.start)

    def _chunk(self, block: Scalar, value: Callable[[Scalar, Scalar], Scalar], put: Any) -> Any:
        row, chunk = block // self.chunks, block % self.chunks

        def each(t: Scalar, body: Callable[[Scalar], Any]) -> Any:
            first = chunk * CHUNK + t * EACH
            return code.loop(EACH, lambda j: code.when(first + j < self.extent, body(first + j)), "j")

        def total(t: Scalar) -> Any:
            def add(k: Scalar) -> Any:
                return self.sum.set(Scalar(self._joined(self.sum[0], value(row, k))), 0)

            return self.sum.set(self.start, 0), each(t, add), self.lanes.set(self.sum[0], 0, t)

        def store(t: Scalar) -> Any:
            def one(k: Scalar) -> Any:
                return self._step(self.prefix, row, k, value, put)

            last = () if self.is_one else code.when(t < 1, self.totals.set(self.lanes[0, THREADS - 1], row, chunk))
            return self.prefix.set(self._before(self.lanes, t), 0), each(t, one), last

        return self._threads(total), self._steps(self.lanes), self._threads(store)

    def _heads(self, row: Scalar) -> Any:
        """The totals of a row's blocks become those of all blocks before."""

        def tile(number: Scalar) -> Any:
            def load(t: Scalar) -> Any:
                at = number * THREADS + t
                inside = te.if_then_else(at < self.chunks, self.totals[row, at], self.start)
                return self.heads.set(inside, 0, t)

            def store(t: Scalar) -> Any:
                at = number * THREADS + t
                total = Scalar(self._joined(self.carry[0], self._before(self.heads, t)))
                return code.when(at < self.chunks, self.totals.set(total, row, at))

            def keep(t: Scalar) -> Any:
                total = Scalar(self._joined(self.carry[0], self.heads[0, THREADS - 1]))
                return code.when(t < 1, self.carry.set(total, 0))

            return self._threads(load), self._steps(self.heads), self._threads(store), self._threads(keep)

        begin = self._threads(lambda t: code.when(t < 1, self.carry.set(self.start, 0)))
        return begin, code.loop((self.chunks + (THREADS - 1)) // THREADS, tile, "tile")


def lower_scan(name: str, start: int, join: Join) -> Callable[[relax.Call, te.Tensor], te.Tensor | None]:
    """The lowering of a running sum or product; it leaves rows that are known to be short to one thread each."""

    def lowering(call: relax.Call, x: te.Tensor) -> te.Tensor | None:
        wanted, along, info = call.attrs["dtype"], call.attrs["axis"], call.struct_info
        assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
        dtype = x.dtype if wanted is None else DType.of(wanted)
        rows = Rows(x, range(x.ndim) if along is None else [along % x.ndim])
        known = tir.const_int(rows.extent.expr)
        if known is not None and known <= FEW:
            return None
        scan = Scan(rows.count, rows.extent, dtype, start, join, call.attrs["exclusive"])

        def place(row: Scalar, k: Scalar) -> tuple[Any, ...]:
            return (k,) if along is None else rows.at(row, k)

        def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
            data, out = Cells(ins[0]), Cells(outs[0])
            return scan.scan(
                lambda row, k: data[rows.at(row, k)].astype(dtype),
                lambda value, row, k: out.set(value, *place(row, k)),
                lambda row, k: out[place(row, k)],
            )

        return te.extern(info.dims, [x], body, name, dtype, scratch=scan.buffers)  # type: ignore[no-any-return]

    return lowering
