"""Lower memory of scope `warp` to registers of the warp's threads; reads of elements of other threads become shuffles.

A thread holds the elements that it writes: consecutive runs of as many as the thread index is multiplied with in the
index of stores (`m`), so that element i is number `i // (width * m) * m + i % m` of thread `i // m % width`. Intrinsics
that name a thread's part by an offset (`ptx_mma`, `ptx_ldmatrix`) get the offset in its registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ir.intrinsics import called, name_of
from mlcc.ir.node import Node, find, replace, walk
from mlcc.ir.tir import Expr, ForKind, PointerType, Stmt
from mlcc.ir.visit import rewrite_bottom_up, substitute
from mlcc.passes.gpu.divergence import DivergenceAnalysis
from mlcc.passes.gpu.thread_scopes import ThreadMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

WARP = 32
_WIDTHS = {"warp": WARP, "warpgroup": 128}  # scope: how many threads along the axis share its memory
_AXIS = "threadIdx.x"
_NO_LANE = ("mma_fill", "mma_store")  # their offsets are those of the warp's fragment


def lower_warp_memory(func: tir.PrimFunc) -> tir.PrimFunc:
    """Lower the buffers of scopes `warp` and `warpgroup` in `func`, flat loop code without views. Raises CompileError
    E0772."""
    for scope, width in _WIDTHS.items():
        buffers = [n.buffer for s in func.body for n in find(s, tir.AllocBuffer) if n.buffer.scope == scope]
        if buffers:
            lanes = _Lanes(func, width)
            registers = {b.data: _Registers(b, lanes, _run_length(func, b, lanes)) for b in buffers}
            func = replace(func, body=_WarpMemoryLowering(registers, lanes).body(func.body))
    return func


def _error(buffer: tir.Buffer, message: str, node: Node, help: str | None = None) -> CompileError:
    text = f"`{buffer.name}` of scope `{buffer.scope}`: {message}"
    return CompileError(error("E0772", text, node.span or buffer.span, help=help))


class _Lanes:
    """The lane of a thread. `lane_vars` has the variable by dtype that stands for all variables bound to `threadIdx.x`;
    `group` is the number of threads that share memory.
    """

    def __init__(self, func: tir.PrimFunc, group: int) -> None:
        self.group = group
        self.lane_vars = {dtype: tir.Var("lane", dtype) for dtype in (INT32, INT64)}
        self.lane_values: dict[tir.Var, Expr] = {}
        extents: list[int | None] = []
        for var, extent in _axes(func.body):
            self.lane_values[var] = self.lane_vars.get(var.dtype, c.cast(var.dtype, self.lane_vars[INT32]))
            extents.append(tir.const_int(extent))
        most = max((e or 0 for e in extents), default=0)
        self.is_all = most <= group  # the index of a thread is its lane
        self.width = min(group, most)
        fits = most > 0 and (most % group == 0 or (group == WARP and group % most == 0))
        self.known = bool(extents) and None not in extents and fits
        self.analyzer = Analyzer()
        for lane in self.lane_vars.values():
            self.analyzer.bind(lane, tir.Range(c.const(0, lane.dtype), c.const(max(self.width, 1), lane.dtype)))

    def plain(self, index: Expr) -> Expr:
        """Express an index over the lane, without casts: the lane variables are wide enough."""
        while isinstance(index, tir.Cast) and index.value.dtype.kind == "int":
            index = index.value
        return self.analyzer.simplify(rewrite_bottom_up(substitute(index, self.lane_values), self._uncast))

    def _uncast(self, node: Node) -> Node:
        """Replace a cast of the lane by the lane variable of that type."""
        lane = isinstance(node, tir.Cast) and any(node.value is v for v in self.lane_vars.values())
        return self.lane_vars.get(node.dtype, node) if lane else node  # type: ignore[attr-defined]

    def depends_on_lane(self, value: Node) -> bool:
        """Return True if a value depends on the lane."""
        return any(n is lane for n in walk(value) for lane in self.lane_vars.values())

    def is_own(self, thread: Expr) -> bool:
        """Return True if a thread index is the index of the lane itself."""
        return any(self.analyzer.prove(c.equal(thread, c.cast(thread.dtype, lane))) for lane in self.lane_vars.values())


def _axes(body: tuple[Stmt, ...]) -> Iterator[tuple[tir.Var, Expr]]:
    for stmt in body:
        for node in walk(stmt):
            match node:
                case tir.For(kind=ForKind.THREAD_BINDING, thread=thread) if thread == _AXIS:
                    yield node.var, node.extent
                case tir.AttrStmt(key="thread_extent", subject=tir.IterVar(thread_tag=tag, var=var), value=value):
                    if tag == _AXIS:
                        yield var, c.as_expr(value)


def _run_length(func: tir.PrimFunc, buffer: tir.Buffer, lanes: _Lanes) -> int:
    """Return the number of consecutive elements that a thread holds."""
    if not lanes.known:
        what = "a divisor or multiple" if lanes.group == WARP else "a multiple"
        help = f"bind a loop of {lanes.group} iterations, or of {what} of it, to `{_AXIS}`"
        kind = "warps" if lanes.group == WARP else "warpgroups"
        raise _error(buffer, f"the number of threads along `{_AXIS}` is not known to make {kind}", buffer, help)
    runs: set[int] = set()
    for stmt in func.body:
        for node in walk(stmt):
            for index in _own_indices(node, buffer):
                base = index.base if isinstance(index, tir.Ramp) else index
                plain = lanes.plain(base)
                step = substitute(plain, {lane: c.add(lane, 1) for lane in lanes.lane_vars.values()})
                growth = tir.const_int(lanes.analyzer.simplify(c.sub(step, plain)))
                if growth is None or growth < 0:
                    raise _error(buffer, "a thread writes at an index that is not a multiple of its thread index", node)
                runs.add(growth)
    runs.discard(0)
    if len(runs) > 1:
        raise _error(buffer, f"threads hold runs of different lengths ({sorted(runs)})", buffer)
    size = tir.const_int(buffer.shape[0])
    if size is None:
        raise _error(buffer, "its size is not constant", buffer)
    return runs.pop() if runs else max(1, size // lanes.width)


def _own_indices(node: Node, buffer: tir.Buffer) -> Iterator[Expr]:
    """Yield the indices of accesses to elements that the thread itself holds."""
    if isinstance(node, tir.BufferStore) and node.buffer.data is buffer.data:
        yield node.indices[0]
    elif isinstance(node, tir.Call) and isinstance(node.op, tir.Op):
        name = name_of(node)
        for at, offset_at in called(node).offsets:
            if name not in _NO_LANE and at < len(node.args) and node.args[at] is buffer.data:
                yield node.args[offset_at]


class _Registers:
    """The distribution of a buffer over the registers of threads: `buffer` is the part of one thread."""

    def __init__(self, old: tir.Buffer, lanes: _Lanes, run: int) -> None:
        self.old = old
        self.run = run
        self._lanes = lanes
        size = tir.const_int(old.shape[0]) or 0
        groups = -(-size // (lanes.width * run))
        data = tir.Var(old.data.name, old.data.dtype, PointerType(old.dtype, "local"), span=old.data.span)
        self.buffer: tir.Buffer = replace(old, data=data, shape=(c.const(groups * run, old.shape[0].dtype),))

    def place(self, index: Expr) -> tuple[Expr, Expr]:
        """Return the index of an element in the part of the thread that holds it, and that thread; both in terms of the
        lane.
        """
        width, run, analyzer = self._lanes.width, self.run, self._lanes.analyzer
        plain = self._lanes.plain(index)
        mine = c.add(c.mul(c.floordiv(plain, width * run), run), c.floormod(plain, run))
        thread = c.floormod(c.floordiv(plain, run), width)
        return analyzer.simplify(mine), analyzer.simplify(thread)


class _WarpMemoryLowering(ThreadMutator):
    def __init__(self, registers: dict[tir.Var, _Registers], lanes: _Lanes) -> None:
        super().__init__()
        self._registers = registers
        self._lanes = lanes
        self._divergence = DivergenceAnalysis()
        self._divergent: list[Expr] = []  # enclosing divergent conditions

    @contextmanager
    def _under(self, *deciding: Expr) -> Iterator[None]:
        divergent = [e for e in deciding if self._divergence.differs(e)]
        self._divergent += divergent
        yield
        del self._divergent[len(self._divergent) - len(divergent) :]

    def stmt_bind(self, node: tir.Bind) -> Stmt | list[Stmt]:
        if self._divergence.differs(node.value):
            self._divergence.mark(node.var)
        return super().stmt_bind(node)

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        with self._under(node.condition):
            return super().stmt_if(node)

    def stmt_while(self, node: tir.While) -> Stmt | list[Stmt]:
        with self._under(node.condition):
            return super().stmt_while(node)

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if node.kind is ForKind.THREAD_BINDING and node.thread == _AXIS:
            self._divergence.thread(node)
        with self._under(node.min, node.extent):
            return self._visit_loop(node)

    def _visit_loop(self, node: tir.For) -> Stmt | list[Stmt]:
        if node.kind is not ForKind.THREAD_BINDING and tir.const_int(node.step) in (None, 1):
            self._lanes.analyzer.bind(node.var, tir.Range(node.min, node.extent))
        return super().stmt_for(node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        registers = self._registers.get(node.buffer.data)
        return node if registers is None else replace(node, buffer=registers.buffer)

    def _over_thread_var(self, registers: _Registers, value: Expr, node: Node) -> Expr:
        """Replace the lane in an expression by the thread variable in scope."""
        if not self._lanes.depends_on_lane(value):
            return value
        var = self.thread(_AXIS)
        if var is None:
            raise _error(registers.old, f"it is used outside of the loop over `{_AXIS}`", node)
        lane = var if self._lanes.is_all else c.floormod(var, self._lanes.group)
        return substitute(value, {v: c.cast(dtype, lane) for dtype, v in self._lanes.lane_vars.items()})

    def _vector_place(self, registers: _Registers, index: Expr, node: Node) -> tuple[Expr, Expr, int]:
        """Return the place of an access of consecutive elements, and their number."""
        if not isinstance(index, tir.Ramp):
            return (*registers.place(index), 1)
        mine, thread = registers.place(index.base)
        fits = c.less_equal(c.add(c.floormod(mine, registers.run), index.lanes), registers.run)
        if tir.const_int(index.stride) != 1 or not self._lanes.analyzer.prove(fits):
            raise _error(registers.old, "a vector spans the elements of several threads", node)
        return mine, thread, index.lanes

    def _index(self, registers: _Registers, mine: Expr, lanes: int, node: Node) -> Expr:
        index = self._over_thread_var(registers, mine, node)
        return index if lanes == 1 else tir.Ramp(index.dtype.with_lanes(lanes), index, c.const(1, index.dtype), lanes)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        registers = self._registers.get(node.buffer.data)
        if registers is None:
            return super().stmt_store(node)
        mine, thread, lanes = self._vector_place(registers, self.expr(node.indices[0]), node)
        if not self._lanes.is_own(thread):
            raise _error(registers.old, "a thread writes an element that another one holds", node)
        return tir.BufferStore(
            registers.buffer, self.expr(node.value), (self._index(registers, mine, lanes, node),), span=node.span
        )

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        registers = self._registers.get(node.buffer.data)
        if registers is None:
            return super().expr_load(node)
        mine, thread, lanes = self._vector_place(registers, self.expr(node.indices[0]), node)
        load = tir.BufferLoad(
            node.dtype, registers.buffer, (self._index(registers, mine, lanes, node),), span=node.span
        )
        if self._lanes.is_own(thread):
            return load
        if self._lanes.group != WARP:
            raise _error(registers.old, "a thread reads an element that another one holds", node)
        if self._lanes.depends_on_lane(mine):
            raise _error(registers.old, "threads read different elements of another thread at once", node)
        if self._divergent:
            help = "choose thread-bound loops whose extents divide the data, or pad the data"
            raise _error(registers.old, f"a thread is read that may have left by `{self._divergent[-1]}`", node, help)
        mask = tir.Call(DType.of("uint32"), tir.Op("tir.tvm_warp_activemask"), ())
        source = c.cast(INT32, self._over_thread_var(registers, thread, node))
        args = (mask, load, source, c.const(self._lanes.width), c.const(WARP))
        return tir.Call(node.dtype, tir.Op("tir.tvm_warp_shuffle"), args, span=node.span)

    def expr_call(self, node: tir.Call) -> Expr:
        if node.op == tir.Op("tir.if_then_else"):
            with self._under(node.args[0]):
                return replace(node, args=self.exprs(node.args))
        name = name_of(node)
        args = list(node.args)
        for at, offset_at in called(node).offsets:
            data = args[at] if at < len(args) else None
            registers = self._registers.get(data) if isinstance(data, tir.Var) else None
            if registers is None:
                continue
            mine, thread = registers.place(self.expr(args[offset_at]))
            if name not in _NO_LANE and not self._lanes.is_own(thread):
                raise _error(registers.old, f"`T.{name}` names a part that another thread holds", node)
            args[at], args[offset_at] = registers.buffer.data, self._over_thread_var(registers, mine, node)
        for arg in args:
            if isinstance(arg, tir.Var) and arg in self._registers:
                raise _error(self._registers[arg].old, f"`T.{name}` gets its address", node)
        return replace(node, args=self.exprs(tuple(args)))


@dataclass(frozen=True)
class LowerWarpMemory(LoweringStep):
    """Lower buffers of scope `warp` to registers; reads of elements of other threads become shuffles.

    Before:  W[t] = A[t]; B[t] = W[(t + 1) % 32]
    After:   w = A[t]; B[t] = T.tvm_warp_shuffle(..., w, (t + 1) % 32, ...)
    """

    name: ClassVar[str] = "lower-warp-memory"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return lower_warp_memory(func)
