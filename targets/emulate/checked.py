"""Emit checked kernels: every access is checked first, and skipped if it is out of bounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import holds, replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.targets.emulate import barriers, checks
from mlcc.targets.emulate.barriers import barrier_of, functions
from mlcc.targets.emulate.checks import Checks, Root
from mlcc.targets.emulate.collectives import name_of
from mlcc.targets.emulate.emitter import ThreadEmitter
from mlcc.targets.llvm.codegen import casts, memory
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer, vector
from mlcc.targets.llvm.codegen.storage import Storage
from mlcc.targets.llvm.codegen.types import register_type, zero

_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # spreads the values of loop variables over a word
_MARKS = "mlcc_emulate_marks"

Piece = tuple[Value, int]  # an offset from the start of a root, and a number of bytes


class CheckedEmitter(ThreadEmitter):
    """Emits the checks as well. The function is not outlined, so that the values that checks need are in scope."""

    def __init__(self, fn: FunctionText, ctx: ModuleContext, storage: Storage | None, found: Checks) -> None:
        super().__init__(fn, ctx, storage)
        self._checks = found
        self._stmt: Stmt = tir.Evaluate(tir.IntImm(INT64, 0))
        self._loops: list[tir.Var] = []
        self._counted = True  # accesses are requests of threads
        self._copied: tir.Call | None = None  # the barrier at which the copy engine completes the current stores
        ctx.module.helper(_MARKS, functions("shadow_memory.ll"))
        ctx.module.helper("mlcc_emulate_order", functions("order.ll"))

    # ------------------------------------------------------------ where accesses are

    def body(self, statements: tuple[Stmt, ...]) -> None:
        self.plain_body(statements)

    def plain_body(self, statements: tuple[Stmt, ...]) -> None:
        for stmt in statements:
            if not self.fn.is_open:
                return
            self._stmt = stmt
            if isinstance(stmt, tir.BufferStore):
                self._store(stmt)
            elif isinstance(stmt, tir.For):
                self._loops.append(stmt.var)
                super().plain_body((stmt,))
                self._loops.pop()
            elif isinstance(stmt, tir.AttrStmt) and stmt.key == checks.COPIED and isinstance(stmt.value, tir.Call):
                self._copied = stmt.value
                super().plain_body((stmt,))
                self._copied = None
            elif isinstance(stmt, tir.AttrStmt) and stmt.key == checks.UNCOUNTED:
                self._counted = False
                super().plain_body((stmt,))
                self._counted = True
            else:
                super().plain_body((stmt,))

    def expr(self, node: Expr) -> Value:
        if isinstance(node, tir.BufferLoad):
            root = self._root(node.buffer, node.indices[0])
            if root is not None:
                return self._load(node, root)
        elif name_of(node) == checks.NOTE and isinstance(node, tir.Call):
            self._notify([self.expr(a) for a in node.args])
            return zero(node.dtype)
        elif name_of(node) == checks.CLEAR:
            self._zero(checks.SHARED_CELLS, checks.SHARED_BYTES)
            if self._checks.barrier_count:
                self._zero(checks.ORDER, checks.ORDER_BYTES)
            return zero(node.dtype)
        elif name_of(node) == checks.JOIN and isinstance(node, tir.Call):
            self.fn.call("void", "@mlcc_emulate_join", [self._report(), *(self.index(a) for a in node.args)])
            return zero(node.dtype)
        elif name_of(node) == barriers.BARRIER and isinstance(node, tir.Call):
            self._barrier(node)
            return zero(node.dtype)
        return super().expr(node)

    def _zero(self, memory: int, size: int) -> None:
        fill = self.ctx.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        args = [self._word(memory, "ptr"), integer("i8", 0), self._word(size), Value("i1", "false")]
        self.fn.call("void", fill, args)

    # ------------------------------------------------------------ barriers in memory

    def _barrier(self, node: tir.Call) -> None:
        """A thread's doing at a barrier: looked at as an access of its memory; what it does wrong is reported."""
        fn, of = self.fn, self._checks
        what, address, amount, thread, *told = node.args
        doing = tir.const_int(what) or 0
        if told:
            me, clock, synced, site_number, root_number = told
            site, number = tir.const_int(site_number) or 0, tir.const_int(root_number)
            root = next((r for r in of.roots if r.number == number), None)
        else:
            me, clock, synced = of.me, of.clock, of.synced
            data = (v for v in walk(address) if isinstance(v, tir.Var) and v.dtype.is_handle)
            root = next((r for v in data if (r := of.root_of(v)) is not None), None)
            site = of.site(node, self._stmt, "use", root)
        word = self.expr(address)
        if root is None or root.number not in of.barriers:
            barriers.change(self, doing, word, self.index(amount))
            return
        there = self.expr(root.data)
        offset = fn.binary("sub", *(fn.convert("ptrtoint", p, "i64") for p in (word, there)))
        _, done = self._guard(root, [(offset, 8)], site, "met", self.expr(me))
        place = fn.binary("add", fn.binary("sdiv", offset, integer("i64", 8)), integer("i64", of.barriers[root.number]))
        same = Value("i1", "false") if doing == barriers.INIT else None
        self._look(root, (offset, 8), site, same, self.expr(me), self.expr(synced), self.expr(clock))
        lane = fn.convert("sext", self.expr(thread), "i64")
        if doing == barriers.ARRIVE:
            fn.call("void", "@mlcc_emulate_arrived", [self._report(), place, lane, self.expr(clock)])
        status = barriers.change(self, doing, word, self.index(amount))
        complete, other, end = fn.label("complete"), fn.label("other"), fn.label("end")
        fn.cond_br(fn.icmp("eq", status, integer("i32", 1)), complete, other)
        fn.start(complete)
        row = [self._report(), place]
        if doing == barriers.WAIT:
            fn.call("void", "@mlcc_emulate_waited", [*row, lane])
        else:
            fn.call("void", "@mlcc_emulate_completed", row)
        fn.br(end)
        fn.start(other)
        wrong = fn.label("wrong")
        bad = fn.icmp("eq" if doing == barriers.WAIT else "ne", status, integer("i32", 0))
        fn.cond_br(bad, wrong, end)
        fn.start(wrong)
        kind = checks.ENDLESS if doing == barriers.WAIT else checks.MISUSED
        number_in = fn.binary("sdiv", offset, integer("i64", root.granule))
        nothing = integer("i32", 0)
        self._notify([integer("i32", kind), integer("i32", site), self.expr(me), number_in, nothing, status])
        fn.br(end)
        fn.start(end)
        fn.br(done)
        fn.start(done)

    def _engine(self) -> tuple[Value, Value]:
        """As what the copy engine marks what it writes for a thread: the thread with the sign bit, and the barrier with
        the number of the phase that is under way there."""
        fn, of = self.fn, self._checks
        me = fn.binary("or", self.expr(of.me), integer("i32", -(1 << 31)))
        address = None if self._copied is None else barrier_of(self._copied)
        data = [v for v in walk(address) if isinstance(v, tir.Var) and v.dtype.is_handle] if address is not None else []
        root = next((r for v in data if (r := of.root_of(v)) is not None), None)
        if address is None or root is None or root.number not in of.barriers:
            return self.expr(of.me), self.expr(of.clock)
        words = (self.expr(address), self.expr(root.data))
        offset = fn.binary("sub", *(fn.convert("ptrtoint", p, "i64") for p in words))
        place = fn.binary("add", fn.binary("sdiv", offset, integer("i64", 8)), integer("i64", of.barriers[root.number]))
        phase = fn.load("i32", fn.call("ptr", "@mlcc_emulate_phases", [self._report(), place]), 4)
        high = fn.binary("shl", fn.convert("trunc", place, "i32"), integer("i32", 24))
        return me, fn.binary("or", high, fn.binary("and", phase, integer("i32", (1 << 24) - 1)))

    # ------------------------------------------------------------ accesses

    def _root(self, buffer: tir.Buffer, index: Expr) -> Root | None:
        """Return the memory to check an access for; None for a constant index in bounds of thread-private memory."""
        root = self._checks.root_of(buffer.data)
        if root is None or root.scope != "local" or buffer.data is not root.data:
            return root
        first, count = (index.base, index.lanes) if isinstance(index, tir.Ramp) else (index, 1)
        at, size = tir.const_int(first), tir.const_int(buffer.shape[0])
        run = not isinstance(index, tir.Ramp) or tir.const_int(index.stride) == 1
        return None if run and at is not None and size is not None and 0 <= at <= size - count else root

    def _load(self, node: tir.BufferLoad, root: Root) -> Value:
        fn = self.fn
        node = replace(node, indices=(self._computed(node.indices[0]),))
        site = self._checks.site(node, self._stmt, "read", root)
        if self._has_lanes_off(node.indices[0]):
            with self._lanes_inside(node.buffer, node.indices[0], root, site, None):
                return super().expr(node)
        pieces = self._pieces(node.buffer, node.indices[0], root)
        outside, done = self._guard(root, pieces, site, "read")
        for piece in pieces:
            self._mark(root, piece, site, None)
        value = super().expr(node)
        end = fn.block
        fn.br(done)
        fn.start(done)
        return fn.phi(register_type(node.dtype), [(zero(node.dtype), outside), (value, end)])

    def _store(self, stmt: tir.BufferStore) -> None:
        root = self._root(stmt.buffer, stmt.indices[0])
        if root is None:
            super().plain_body((stmt,))
            return
        fn = self.fn
        value = tir.Var("value", stmt.value.dtype)
        self.bind(value, self.expr(stmt.value))
        site = self._checks.site(stmt, stmt, "write", root)
        stmt = replace(stmt, value=value, indices=(self._computed(stmt.indices[0]),))
        if self._has_lanes_off(stmt.indices[0]):
            with self._lanes_inside(stmt.buffer, stmt.indices[0], root, site, value):
                super().plain_body((stmt,))
            return
        pieces = self._pieces(stmt.buffer, stmt.indices[0], root)
        _, done = self._guard(root, pieces, site, "written")
        same = self._same(root, pieces, value)
        for piece in pieces:
            self._mark(root, piece, site, same)
        super().plain_body((stmt,))
        fn.br(done)
        fn.start(done)

    def _computed(self, index: Expr) -> Expr:
        """Emit an index; one that reads memory is computed only once."""
        if not holds(index, tir.BufferLoad, tir.Call):
            return index
        if isinstance(index, tir.Ramp):
            base, stride = self._computed(index.base), self._computed(index.stride)
            return tir.Ramp(index.dtype, base, stride, index.lanes, span=index.span)
        var = tir.Var("index", index.dtype)
        self.bind(var, self.expr(index))
        return var

    # ------------------------------------------------------------ checks

    def _pieces(self, buffer: tir.Buffer, index: Expr, root: Root, by_lane: bool = False) -> list[Piece]:
        """Return the memory of an access, in one piece if its elements are contiguous and not `by_lane`."""
        fn = self.fn
        size = buffer.dtype.bytes * buffer.dtype.lanes
        start = integer("i64", 0)
        if buffer.data is not root.data:
            here, there = (fn.convert("ptrtoint", self.expr(v), "i64") for v in (buffer.data, root.data))
            start = fn.binary("sub", here, there)

        def at(element: Value, count: int) -> Piece:
            return fn.binary("add", start, fn.binary("mul", element, integer("i64", size))), count * size

        if isinstance(index, tir.Broadcast) and index.value.dtype.lanes == 1 and not by_lane:
            index = index.value
        if index.dtype.lanes == 1:
            return [at(self.index(index), 1)]
        if isinstance(index, tir.Ramp) and tir.const_int(index.stride) == 1 and not by_lane:
            return [at(self.index(index.base), index.lanes)]
        every = memory.lane_indices(self, index)
        return [at(fn.extract(every, lane), 1) for lane in range(index.dtype.lanes)]

    def _has_lanes_off(self, index: Expr) -> bool:
        """Return True for a masked vector access, whose lanes are checked one by one."""
        return self.mask is not None and self.mask.type == vector("i1", index.dtype.lanes)

    @contextmanager
    def _lanes_inside(
        self, buffer: tir.Buffer, index: Expr, root: Root, site: int, value: tir.Var | None
    ) -> Iterator[None]:
        """Check the active lanes; those out of bounds are masked off in the code that follows."""
        fn, outer = self.fn, self.mask
        assert outer is not None
        every = self._pieces(buffer, index, root, by_lane=True)
        new = None if value is None else casts.to_memory(self, self.expr(value), value.dtype)
        mask = outer
        for lane, piece in enumerate(every):
            on, after = fn.label("on"), fn.label("lane")
            before = fn.block
            fn.cond_br(fn.extract(outer, lane), on, after)
            fn.start(on)
            outside, done = self._guard(root, [piece], site, "looked")
            self._mark(root, piece, site, None if new is None else self._holds(root, piece, fn.extract(new, lane)))
            end = fn.block
            fn.br(done)
            fn.start(done)
            inside = fn.phi("i1", [(Value("i1", "false"), outside), (Value("i1", "true"), end)])
            fn.br(after)
            fn.start(after)
            mask = fn.insert(mask, fn.phi("i1", [(Value("i1", "false"), before), (inside, done)]), lane)
        self.mask = mask
        try:
            yield
        finally:
            self.mask = outer

    def _guard(self, root: Root, pieces: list[Piece], site: int, name: str, me: Value | None = None) -> tuple[str, str]:
        """Emit a bounds check and report a failure; return the labels of the failing block and of the end."""
        fn = self.fn
        size = self._word(checks.ROOTS + 2 * root.number) if root.size is None else self.index(root.size)
        inside = Value("i1", "true")
        for offset, count in pieces:
            end = fn.binary("add", offset, integer("i64", count))
            low = fn.icmp("sge", offset, integer("i64", 0))
            inside = fn.binary("and", inside, fn.binary("and", low, fn.icmp("sle", end, size)))
        yes, no, done = fn.label("inside"), fn.label("outside"), fn.label(name)
        fn.cond_br(inside, yes, no)
        fn.start(no)
        place = fn.binary("sdiv", pieces[0][0], integer("i64", root.granule))
        nothing = integer("i32", 0)
        who = self.expr(self._checks.me) if me is None else me
        self._notify([integer("i32", checks.OUTSIDE), integer("i32", site), who, place, nothing, nothing])
        fn.br(done)
        fn.start(yes)
        return no, done

    def _mark(self, root: Root, piece: Piece, site: int, same: Value | None) -> None:
        """Note a read, or (with `same`) a write, in shadow memory."""
        if root.scope == "local":
            return
        fn, of = self.fn, self._checks
        offset, count = piece
        if of.trace and self._copied is None and self._counted:  # accesses of the copy engine are no requests of a warp
            key = integer("i64", 0)
            for var in self._loops:
                if var in self.values and var not in of.threads.axes:
                    key = fn.binary("add", fn.binary("mul", key, integer("i64", _FACTOR)), self.index(var))
            thread = self.expr(of.threads.number)
            given = [self._report(), integer("i32", site), thread, key, offset, integer("i64", count)]
            fn.call("void", "@mlcc_emulate_trace", [*given, self.expr(of.block)])
        if root.is_marked:
            self._look(root, piece, site, same, *map(self.expr, (of.me, of.synced, of.clock)))

    def _look(
        self, root: Root, piece: Piece, site: int, same: Value | None, me: Value, synced: Value, clock: Value
    ) -> None:
        """Compare a read or a write of thread `me` with the marks that are there, and leave one."""
        fn, of = self.fn, self._checks
        offset, count = piece
        by_thread = self._copied is None and me.ref == self.expr(of.me).ref if of.me in self.values else False
        first = fn.binary("sdiv", offset, integer("i64", root.granule))
        cells = self._word(checks.ROOTS + 2 * root.number + 1, "ptr")
        elements = max(count // root.granule, 1)
        done = ""
        if elements == 1 and by_thread:  # a thread that comes again finds its own mark
            at = fn.binary("mul", first, integer("i64", checks.MARKS))
            if same is None:
                at = fn.binary("add", at, integer("i64", checks.MARKS // 3))
            last = fn.load("i64", fn.gep("i32", cells, at), 4)
            look, done = fn.label("look"), fn.label("marked")
            fn.cond_br(fn.icmp("eq", last, self.expr(of.stamp)), done, look)
            fn.start(look)
        given = [self._report(), cells, first, integer("i64", elements), me, synced]
        place = [integer("i32", site), self.expr(of.threads.count)]
        if same is None:
            own = Value("i1", "false" if root.scope == "global" else "true")
            fn.call("void", "@mlcc_emulate_read", [*given, clock, *place, own])
        else:
            mark = (me, clock) if self._copied is None else self._engine()
            fn.call("void", "@mlcc_emulate_write", [*given, *mark, *place, same])
        if done:
            fn.br(done)
            fn.start(done)

    def _same(self, root: Root, pieces: list[Piece], value: tir.Var) -> Value:
        """Return a bit: 1 if the memory holds the value already."""
        if not root.is_marked or len(pieces) != 1 or self._copied is not None:
            return Value("i1", "false")
        return self._holds(root, pieces[0], casts.to_memory(self, self.expr(value), value.dtype))

    def _holds(self, root: Root, piece: Piece, new: Value) -> Value:
        """Return a bit: 1 if a piece of memory equals `new` bit by bit."""
        fn = self.fn
        offset, count = piece
        place = fn.gep("i8", self.expr(root.data), offset)
        bits = f"i{count * 8}"
        if new.type == "ptr":
            return fn.icmp("eq", fn.load("ptr", place, 1), new)
        return fn.icmp("eq", fn.load(bits, place, 1), new if new.type == bits else fn.convert("bitcast", new, bits))

    # ------------------------------------------------------------ the report

    def _report(self) -> Value:
        return self.expr(self._checks.report)

    def _word(self, number: int, type: str = "i64") -> Value:
        return self.fn.load(type, self.fn.gep("i64", self._report(), integer("i64", number)))

    def _notify(self, args: list[Value]) -> None:
        self.fn.call("void", "@mlcc_emulate_tell", [self._report(), *args])
