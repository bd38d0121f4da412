"""Happens-before tracking for checked kernels: clocks of threads, and barriers or shuffles that threads miss."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT32, INT64, DType
from mlcc.ir.node import Node, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.targets.emulate import checks as kinds
from mlcc.targets.emulate.barriers import barrier_of
from mlcc.targets.emulate.checks import Checks, note
from mlcc.targets.emulate.collectives import BARRIERS, name_of
from mlcc.targets.emulate.split import Splitter
from mlcc.targets.emulate.threads import WARP, Body, Threads

_WARP_SYNCS = 4096  # that a clock counts between two barriers of the block


class CheckedSplitter(Splitter):
    """A splitter that adds a clock for each thread, and reports threads that miss a barrier or shuffle."""

    def __init__(self, threads: Threads, checks: Checks) -> None:
        super().__init__(threads)
        self._checks = checks
        self._clocks = self.array("clocks", INT32)
        self._synced = self.array("synced", INT32) if checks.barrier_count else self._clocks

    def start(self) -> Body:
        """Clocks begin at zero, shared memory is not written."""
        clear = tir.Evaluate(tir.Call(DType.of("void"), tir.Op(kinds.CLEAR), ()))
        zeros = (c.store(b, c.const(0), self.threads.number) for b in self._both())
        return (self._every(tuple(zeros)), clear)

    def _both(self) -> tuple[tir.Buffer, ...]:
        return (self._clocks,) if self._synced is self._clocks else (self._clocks, self._synced)

    def first(self) -> Body:
        of, number = self._checks, self.threads.number
        me = c.add(c.add(c.mul(c.cast(INT32, of.block), self.threads.count), number), 1)
        stamp = c.add(c.mul(c.cast(INT64, of.clock), 1 << 32), c.cast(INT64, of.me))
        clocks = (tir.Bind(v, c.load(b, number)) for v, b in ((of.clock, self._clocks), (of.synced, self._synced)))
        return (tir.Bind(of.me, me), *clocks, tir.Bind(of.stamp, stamp))

    def telling(self, stmt: Stmt, call: tir.Call) -> Callable[[Expr], tuple[Expr, ...]]:
        """Of a call that names a barrier: the thread's number in the grid and clocks, the place, and the memory."""
        address = barrier_of(call)
        if address is None:
            return super().telling(stmt, call)
        data = (v for v in walk(address) if isinstance(v, tir.Var) and v.dtype.is_handle)
        root = next((r for v in data if (r := self._checks.root_of(v)) is not None), None)
        site = self._checks.site(call, stmt, "use", root)
        place = (c.const(site), c.const(-1 if root is None else root.number))
        return lambda t: (self._me(t), *(c.load(b, t) for b in (self._clocks, self._synced)), *place)

    def after(self, call: tir.Call) -> list[Stmt]:
        """Advance the clocks after an arrival: later work of the arriving threads is not ordered before the wait.

        All clocks advance, so that those of a warp agree. Between two barriers of the block there are at most
        `_WARP_SYNCS` ticks."""
        if name_of(call) not in ("tir.ptx_arrive_barrier", "tir.ptx_arrive_barrier_expect_tx"):
            return []
        now: Expr = c.load(self._clocks, self.threads.number)
        room = c.less(c.floormod(now, _WARP_SYNCS), _WARP_SYNCS - 1)
        step = c.store(self._clocks, c.add(now, 1), self.threads.number)
        return [self._every((tir.IfThenElse(room, (step,)),))]

    def meet(self, stmt: Stmt, call: tir.Call, mask: tir.Buffer | None, made: list[Stmt]) -> None:
        warp = name_of(call) not in BARRIERS or (bool(call.args) and getattr(call.args[0], "value", "") == "warp")
        if mask is not None:
            made.extend(self._who_is_missing(stmt, call, mask, warp))
        if name_of(call) in BARRIERS:
            made.append(self._tick(mask, warp))
            made.extend(self._join(warp))

    def _join(self, warp: bool) -> list[Stmt]:
        """Join the clock vectors of threads that met: entries of barriers in memory; in a warp, of threads too."""
        if not self._checks.barrier_count:
            return []
        count = self.threads.count
        if not warp:
            return [_joined(c.const(0), count, count)]
        var = tir.Var("warp", INT32)
        first = c.mul(var, WARP)
        body = (_joined(first, c.minimum(c.sub(count, first), WARP), c.const(0)),)
        return [tir.For(var, c.const(0), self.threads.warps, ForKind.SERIAL, body)]

    def _tick(self, mask: tir.Buffer | None, warp: bool) -> Stmt:
        now: Expr = c.load(self._clocks, self.threads.number)
        if not warp:
            now = c.mul(c.add(c.floordiv(now, _WARP_SYNCS), 1), _WARP_SYNCS)
            return self._every(tuple(c.store(b, now, self.threads.number) for b in reversed(self._both())))
        step = tuple(c.store(b, c.add(now, 1), self.threads.number) for b in reversed(self._both()))
        on = c.const(True) if mask is None else c.load(mask, self.threads.number)
        return self._every((tir.IfThenElse(on, step),))

    def _every(self, body: Body) -> Stmt:
        """A loop over the threads that is the emulation's own."""
        number = self.threads.number
        return tir.For(number, c.const(0), self.threads.count, ForKind.SERIAL, body)

    def _who_is_missing(self, stmt: Stmt, call: tir.Call, mask: tir.Buffer, warp: bool) -> list[Stmt]:
        """Report a thread that is at a barrier and one that is not: of the block, or of one warp. At a shuffle those
        are looked at that its mask names."""
        number, count = self.threads.number, self.threads.count
        here, away = (self.array(name, INT32, c.const(1)) for name in ("here", "away"))
        site = self._checks.site(call, stmt, "meet")
        parted = self.parted[mask]
        other = self._checks.site(_condition(parted), parted, "part")
        barrier = name_of(call) in BARRIERS
        kind = kinds.DIVERGED if barrier else kinds.ABSENT
        wanted: Expr = c.const(True)
        if not barrier and call.args and call.args[0].dtype.is_int and self.is_uniform(call.args[0]):
            bits = c.cast(DType.of("uint32"), call.args[0])
            lane = c.cast(DType.of("uint32"), self.threads.lane)
            wanted = c.not_equal(tir.Call(bits.dtype, tir.Op("tir.bitwise_and"), (_shift(bits, lane), _one())), 0)
        elif not barrier:
            return []
        on: Stmt = c.store(here, number, 0)
        off: Stmt = tir.IfThenElse(wanted, (c.store(away, number, 0),))
        look = tir.IfThenElse(c.load(mask, number), (on,), (off,))
        both = tir.And(BOOL, c.greater_equal(c.load(here, 0), 0), c.greater_equal(c.load(away, 0), 0))
        report = tir.IfThenElse(
            both, (note(kind, site, self._me(c.load(here, 0)), other, self._me(c.load(away, 0))),)
        )  # fmt: skip
        reset = [c.store(b, c.const(-1), 0) for b in (here, away)]
        if not warp:
            return [*reset, self._every((look,)), report]
        warp_var = tir.Var("warp", INT32)
        first = c.mul(warp_var, WARP)
        lanes = tir.For(number, first, c.minimum(c.sub(count, first), WARP), ForKind.SERIAL, (look,))
        body = (*reset, lanes, report)
        return [tir.For(warp_var, c.const(0), self.threads.warps, ForKind.SERIAL, body)]

    def _me(self, thread: Expr) -> Expr:
        return c.add(c.add(c.mul(c.cast(INT32, self._checks.block), self.threads.count), thread), 1)


def _joined(first: Expr, count: Expr, column: Expr) -> Stmt:
    return tir.Evaluate(tir.Call(DType.of("void"), tir.Op(kinds.JOIN), (first, count, column)))


def _condition(parted: Stmt) -> Node:
    """Return the part of a statement that threads diverge by: its condition, or all of it."""
    if isinstance(parted, (tir.IfThenElse, tir.While)):
        return parted.condition
    return parted


def _shift(bits: Expr, by: Expr) -> Expr:
    return tir.Call(bits.dtype, tir.Op("tir.shift_right"), (bits, by))


def _one() -> Expr:
    return tir.IntImm(DType.of("uint32"), 1)
