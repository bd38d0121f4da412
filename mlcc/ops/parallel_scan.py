"""Parallel prefix sums and products: blocks scan chunks of a row, then add the total of the preceding chunks.

A block scans CHUNK elements, EACH of them a thread; the threads' totals are scanned in shared memory (Hillis and
Steele: each is added to the one 1, 2, 4, ... further on). A second kernel scans the totals of a row's blocks, a third
one adds them. Floating-point sums associate differently from a serial scan, in log2(n) steps with less error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.parallel_sort import Rows
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import THREADS, BufferElements

PER_THREAD = 4
CHUNK = THREADS * PER_THREAD
MAX_SERIAL = 64  # the longest row that one thread scans serially

Combine = Callable[[Scalar, Scalar], Any]


class ParallelScan:
    """Emit statements that scan the rows `value(row, k)` and pass each result to `put(value, row, k)`."""

    def __init__(
        self, rows: Scalar, extent: Scalar, dtype: DType, start: Any, combine: Combine, exclusive: bool
    ) -> None:
        self.rows, self.extent, self.combine, self.exclusive = rows, extent, combine, exclusive
        self.start = Scalar(construct.const(start, dtype))
        self.chunks = (extent + (CHUNK - 1)) // CHUNK
        self.totals = code.scratch("totals", (rows, self.chunks), dtype)
        self.lanes, self.heads = (code.scratch(n, (2, THREADS), dtype, "shared") for n in ("lanes", "heads"))
        self.carry = code.scratch("carry", (1,), dtype, "shared")
        self.sum, self.prefix, self.running = (
            code.scratch(n, (1,), dtype, "local") for n in ("sum", "prefix", "running")
        )

    @property
    def fits_one_block(self) -> bool:
        """True if one thread block scans a whole row."""
        known = tir.const_int(self.extent.expr)
        return known is not None and known <= CHUNK

    @property
    def buffers(self) -> tuple[tir.Buffer, ...]:
        cells = [self.lanes, self.sum, self.prefix]
        cells += [] if self.fits_one_block else [self.totals, self.heads, self.carry]
        cells += [self.running] if tir.const_int(self.extent.expr) is None else []
        return tuple(c.buffer for c in cells)

    def scan(self, value: Callable[[Scalar, Scalar], Scalar], put: Any, get: Callable[[Scalar, Scalar], Scalar]) -> Any:
        """Emit the scan; `get(row, k)` reads a result back."""
        chunks = code.thread_bound_loop(
            self.rows * self.chunks, "blockIdx.x", lambda b: self._scan_chunk(b, value, put)
        )
        if self.fits_one_block:
            return chunks
        heads = code.thread_bound_loop(self.rows, "blockIdx.x", self._scan_chunk_totals)

        def add(i: Scalar) -> Any:
            row, k = i // self.extent, i % self.extent
            return put(Scalar(self._combine(self.totals[row, k // CHUNK], get(row, k))), row, k)

        blocks = (chunks, heads, code.thread_loop(self.rows * self.extent, add))
        if tir.const_int(self.extent.expr) is not None:
            return blocks
        alone = code.thread_loop(self.rows, lambda row: self._serial_row(row, value, put))
        return code.if_then(self.extent <= MAX_SERIAL, alone, blocks)  # the host evaluates the condition

    def _serial_row(self, row: Scalar, value: Callable[[Scalar, Scalar], Scalar], put: Any) -> Any:
        """Scan a row serially in one thread."""

        def one(k: Scalar) -> Any:
            return self._accumulate(self.running, row, k, value, put)

        return self.running.set(self.start, 0), code.loop(self.extent, one, "k")

    def _accumulate(
        self, total: BufferElements, row: Scalar, k: Scalar, value: Callable[[Scalar, Scalar], Scalar], put: Any
    ) -> Any:
        step, here = total.set(Scalar(self._combine(total[0], value(row, k))), 0), put(total[0], row, k)
        return (here, step) if self.exclusive else (step, here)

    def _combine(self, a: Scalar, b: Scalar) -> tir.Expr:
        return to_expr(self.combine(a, b))

    def _threads(self, body: Callable[[Scalar], Any]) -> Any:
        return code.thread_bound_loop(THREADS, "threadIdx.x", body)

    def _scan_threads(self, cells: BufferElements) -> Any:
        """Scan the totals of THREADS threads inclusively (Hillis and Steele), from half 0 to half 0."""
        steps = []
        for step in range(THREADS.bit_length() - 1):
            half, by = step % 2, 1 << step

            def one(t: Scalar, half: int = half, by: int = by) -> Any:
                mine = cells[half, t]
                more = [cells.set(Scalar(self._combine(cells[half, t - by], mine)), 1 - half, t)]
                return code.if_then(t >= by, more, [cells.set(mine, 1 - half, t)])

            steps.append(self._threads(one))
        return steps

    def _exclusive_prefix(self, cells: BufferElements, t: Scalar) -> Any:
        """The total of all preceding threads."""
        return te.if_then_else(t > 0, cells[0, t - 1], self.start)

    def _scan_chunk(self, block: Scalar, value: Callable[[Scalar, Scalar], Scalar], put: Any) -> Any:
        row, chunk = block // self.chunks, block % self.chunks

        def each(t: Scalar, body: Callable[[Scalar], Any]) -> Any:
            first = chunk * CHUNK + t * PER_THREAD
            return code.loop(PER_THREAD, lambda j: code.if_then(first + j < self.extent, body(first + j)), "j")

        def total(t: Scalar) -> Any:
            def add(k: Scalar) -> Any:
                return self.sum.set(Scalar(self._combine(self.sum[0], value(row, k))), 0)

            return self.sum.set(self.start, 0), each(t, add), self.lanes.set(self.sum[0], 0, t)

        def store(t: Scalar) -> Any:
            def one(k: Scalar) -> Any:
                return self._accumulate(self.prefix, row, k, value, put)

            last = (
                ()
                if self.fits_one_block
                else code.if_then(t < 1, self.totals.set(self.lanes[0, THREADS - 1], row, chunk))
            )
            return self.prefix.set(self._exclusive_prefix(self.lanes, t), 0), each(t, one), last

        return self._threads(total), self._scan_threads(self.lanes), self._threads(store)

    def _scan_chunk_totals(self, row: Scalar) -> Any:
        """Scan the totals of a row's chunks exclusively."""

        def tile(number: Scalar) -> Any:
            def load(t: Scalar) -> Any:
                at = number * THREADS + t
                inside = te.if_then_else(at < self.chunks, self.totals[row, at], self.start)
                return self.heads.set(inside, 0, t)

            def store(t: Scalar) -> Any:
                at = number * THREADS + t
                total = Scalar(self._combine(self.carry[0], self._exclusive_prefix(self.heads, t)))
                return code.if_then(at < self.chunks, self.totals.set(total, row, at))

            def keep(t: Scalar) -> Any:
                total = Scalar(self._combine(self.carry[0], self.heads[0, THREADS - 1]))
                return code.if_then(t < 1, self.carry.set(total, 0))

            return self._threads(load), self._scan_threads(self.heads), self._threads(store), self._threads(keep)

        begin = self._threads(lambda t: code.if_then(t < 1, self.carry.set(self.start, 0)))
        return begin, code.loop((self.chunks + (THREADS - 1)) // THREADS, tile, "tile")


def parallel_scan_lowering(
    name: str, start: int, combine: Combine
) -> Callable[[relax.Call, te.Tensor], te.Tensor | None]:
    """Return the parallel lowering of a prefix sum or product; None from it for rows known to be short."""

    def lowering(call: relax.Call, x: te.Tensor) -> te.Tensor | None:
        wanted, along, info = call.attrs["dtype"], call.attrs["axis"], call.struct_info
        assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
        dtype = x.dtype if wanted is None else DType.of(wanted)
        rows = Rows(x, range(x.ndim) if along is None else [along % x.ndim])
        known = tir.const_int(rows.extent.expr)
        if known is not None and known <= MAX_SERIAL:
            return None
        scan = ParallelScan(rows.count, rows.extent, dtype, start, combine, call.attrs["exclusive"])

        def place(row: Scalar, k: Scalar) -> tuple[Any, ...]:
            return (k,) if along is None else rows.at(row, k)

        def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
            data, out = BufferElements(ins[0]), BufferElements(outs[0])
            return scan.scan(
                lambda row, k: data[rows.at(row, k)].astype(dtype),
                lambda value, row, k: out.set(value, *place(row, k)),
                lambda row, k: out[place(row, k)],
            )

        return te.extern(info.dims, [x], body, name, dtype, scratch=scan.buffers)  # type: ignore[no-any-return]

    return lowering
