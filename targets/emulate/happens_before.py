"""Happens-before tracking for checked kernels: vector clocks of threads, and barriers or shuffles that threads miss."""

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

_WARP_SYNCS = 4096  # clock ticks between two barriers of the block, at most


class CheckedSplitter(Splitter):
    """A splitter that adds a clock per thread and reports threads that miss a barrier or shuffle."""

    def __init__(self, threads: Threads, checks: Checks) -> None:
        super().__init__(threads)
        self._checks = checks
        self._clocks = self.array("clocks", INT32)
        self._synced = self.array("synced", INT32) if checks.barrier_count else self._clocks

    def block_prologue(self) -> Body:
        """Zero the clocks and mark shared memory as uninitialised."""
        clear = tir.Evaluate(tir.Call(DType.of("void"), tir.Op(kinds.CLEAR), ()))
        zeros = (c.store(b, c.const(0), self.threads.number) for b in self._clock_arrays())
        return (self._for_each_thread(tuple(zeros)), clear)

    def _clock_arrays(self) -> tuple[tir.Buffer, ...]:
        return (self._clocks,) if self._synced is self._clocks else (self._clocks, self._synced)

    def region_prologue(self) -> Body:
        checks, number = self._checks, self.threads.number
        thread_id = c.add(c.add(c.mul(c.cast(INT32, checks.block), self.threads.count), number), 1)
        stamp = c.add(c.mul(c.cast(INT64, checks.clock), 1 << 32), c.cast(INT64, checks.me))
        clocks = (
            tir.Bind(v, c.load(b, number)) for v, b in ((checks.clock, self._clocks), (checks.synced, self._synced))
        )
        return (tir.Bind(checks.me, thread_id), *clocks, tir.Bind(checks.stamp, stamp))

    def check_arguments(self, stmt: Stmt, call: tir.Call) -> Callable[[Expr], tuple[Expr, ...]]:
        """Return, for a call on a barrier, the thread's number in the grid, its clocks, the site and the root."""
        address = barrier_of(call)
        if address is None:
            return super().check_arguments(stmt, call)
        data = (v for v in walk(address) if isinstance(v, tir.Var) and v.dtype.is_handle)
        root = next((r for v in data if (r := self._checks.root_of(v)) is not None), None)
        site = self._checks.site(call, stmt, "use", root)
        place = (c.const(site), c.const(-1 if root is None else root.number))
        return lambda t: (self._thread_id(t), *(c.load(b, t) for b in (self._clocks, self._synced)), *place)

    def after_collective(self, call: tir.Call) -> list[Stmt]:
        """Advance the clocks after an arrival: later work of the arriving threads is not ordered before the wait.

        All clocks advance, so that those of a warp agree. Between two barriers of the block there are at most
        `_WARP_SYNCS` ticks."""
        if name_of(call) not in ("tir.ptx_arrive_barrier", "tir.ptx_arrive_barrier_expect_tx"):
            return []
        now: Expr = c.load(self._clocks, self.threads.number)
        has_ticks_left = c.less(c.floormod(now, _WARP_SYNCS), _WARP_SYNCS - 1)
        step = c.store(self._clocks, c.add(now, 1), self.threads.number)
        return [self._for_each_thread((tir.IfThenElse(has_ticks_left, (step,)),))]

    def at_sync(self, stmt: Stmt, call: tir.Call, mask: tir.Buffer | None, output: list[Stmt]) -> None:
        warp = name_of(call) not in BARRIERS or (bool(call.args) and getattr(call.args[0], "value", "") == "warp")
        if mask is not None:
            output.extend(self._report_divergence(stmt, call, mask, warp))
        if name_of(call) in BARRIERS:
            output.append(self._tick(mask, warp))
            output.extend(self._join(warp))

    def _join(self, warp: bool) -> list[Stmt]:
        """Join the vector clocks of threads that synchronised: the entries of barriers in memory, and within a warp
        those of threads."""
        if not self._checks.barrier_count:
            return []
        count = self.threads.count
        if not warp:
            return [_join_call(c.const(0), count, count)]
        var = tir.Var("warp", INT32)
        first = c.mul(var, WARP)
        body = (_join_call(first, c.minimum(c.sub(count, first), WARP), c.const(0)),)
        return [tir.For(var, c.const(0), self.threads.warps, ForKind.SERIAL, body)]

    def _tick(self, mask: tir.Buffer | None, warp: bool) -> Stmt:
        now: Expr = c.load(self._clocks, self.threads.number)
        if not warp:
            now = c.mul(c.add(c.floordiv(now, _WARP_SYNCS), 1), _WARP_SYNCS)
            return self._for_each_thread(
                tuple(c.store(b, now, self.threads.number) for b in reversed(self._clock_arrays()))
            )
        step = tuple(c.store(b, c.add(now, 1), self.threads.number) for b in reversed(self._clock_arrays()))
        active = c.const(True) if mask is None else c.load(mask, self.threads.number)
        return self._for_each_thread((tir.IfThenElse(active, step),))

    def _for_each_thread(self, body: Body) -> Stmt:
        """Return a loop over the threads without the kernel's thread axes."""
        number = self.threads.number
        return tir.For(number, c.const(0), self.threads.count, ForKind.SERIAL, body)

    def _report_divergence(self, stmt: Stmt, call: tir.Call, mask: tir.Buffer, warp: bool) -> list[Stmt]:
        """Report one thread that reaches a barrier and one that does not, per block or per warp.

        At a shuffle, only the lanes that its mask names are checked.
        """
        number, count = self.threads.number, self.threads.count
        present, absent = (self.array(name, INT32, c.const(1)) for name in ("here", "away"))
        site = self._checks.site(call, stmt, "meet")
        branch = self.divergence_points[mask]
        branch_site = self._checks.site(_divergent_part(branch), branch, "part")
        barrier = name_of(call) in BARRIERS
        kind = kinds.DIVERGED if barrier else kinds.MISSING_LANE
        is_named: Expr = c.const(True)
        if not barrier and call.args and call.args[0].dtype.is_int and self.is_uniform(call.args[0]):
            bits = c.cast(DType.of("uint32"), call.args[0])
            lane = c.cast(DType.of("uint32"), self.threads.lane)
            is_named = c.not_equal(tir.Call(bits.dtype, tir.Op("tir.bitwise_and"), (_shift(bits, lane), _one())), 0)
        elif not barrier:
            return []
        mark_present: Stmt = c.store(present, number, 0)
        mark_absent: Stmt = tir.IfThenElse(is_named, (c.store(absent, number, 0),))
        classify = tir.IfThenElse(c.load(mask, number), (mark_present,), (mark_absent,))
        both = tir.And(BOOL, c.greater_equal(c.load(present, 0), 0), c.greater_equal(c.load(absent, 0), 0))
        one, other = (self._thread_id(c.load(b, 0)) for b in (present, absent))
        report = tir.IfThenElse(both, (note(kind, site, one, branch_site, other),))
        reset = [c.store(b, c.const(-1), 0) for b in (present, absent)]
        if not warp:
            return [*reset, self._for_each_thread((classify,)), report]
        warp_var = tir.Var("warp", INT32)
        first = c.mul(warp_var, WARP)
        lanes = tir.For(number, first, c.minimum(c.sub(count, first), WARP), ForKind.SERIAL, (classify,))
        body = (*reset, lanes, report)
        return [tir.For(warp_var, c.const(0), self.threads.warps, ForKind.SERIAL, body)]

    def _thread_id(self, thread: Expr) -> Expr:
        return c.add(c.add(c.mul(c.cast(INT32, self._checks.block), self.threads.count), thread), 1)


def _join_call(first: Expr, count: Expr, column: Expr) -> Stmt:
    return tir.Evaluate(tir.Call(DType.of("void"), tir.Op(kinds.JOIN), (first, count, column)))


def _divergent_part(stmt: Stmt) -> Node:
    """Return the part of a statement that diverges: its condition, or the whole statement."""
    if isinstance(stmt, (tir.IfThenElse, tir.While)):
        return stmt.condition
    return stmt


def _shift(bits: Expr, by: Expr) -> Expr:
    return tir.Call(bits.dtype, tir.Op("tir.shift_right"), (bits, by))


def _one() -> Expr:
    return tir.IntImm(DType.of("uint32"), 1)
