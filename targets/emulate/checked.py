"""Emit checked kernels: every access is bounds-checked, and skipped if it is out of bounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import holds, replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.targets.emulate import barriers, checks
from mlcc.targets.emulate.barriers import barrier_of, ir_functions
from mlcc.targets.emulate.checks import Checks, Root
from mlcc.targets.emulate.collectives import name_of
from mlcc.targets.emulate.emitter import ThreadEmitter
from mlcc.targets.llvm.codegen import casts, memory
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer, vector
from mlcc.targets.llvm.codegen.storage import Storage
from mlcc.targets.llvm.codegen.types import register_type, zero

_FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # multiplier that hashes the values of loop variables into a word
_MARKS = "mlcc_emulate_marks"

ByteRange = tuple[Value, int]  # offset from the start of a root, and number of bytes


class CheckedEmitter(ThreadEmitter):
    """An emitter that adds checks. Bodies are not outlined, so that the values that checks need stay in scope."""

    def __init__(self, fn: FunctionText, ctx: ModuleContext, storage: Storage | None, kernel_checks: Checks) -> None:
        super().__init__(fn, ctx, storage)
        self._checks = kernel_checks
        self._stmt: Stmt = tir.Evaluate(tir.IntImm(INT64, 0))
        self._loops: list[tir.For] = []
        self._counted = True  # accesses count as memory requests
        self._copied: tir.Call | None = None  # the barrier at which the copy engine completes the current stores
        ctx.module.helper(_MARKS, ir_functions("shadow_memory.ll"))
        ctx.module.helper("mlcc_emulate_order", ir_functions("order.ll"))

    # ------------------------------------------------------------ statements

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
                self._loops.append(stmt)
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
            root = self._root_to_check(node.buffer, node.indices[0])
            if root is not None:
                return self._load(node, root)
        elif name_of(node) == checks.NOTE and isinstance(node, tir.Call):
            self._notify([self.expr(a) for a in node.args])
            return zero(node.dtype)
        elif name_of(node) == checks.BLOCK_NUMBER and isinstance(node, tir.Call):
            return self.fn.call("i64", "@mlcc_emulate_block", [self._report_pointer(), self.index(node.args[0])])
        elif name_of(node) == checks.CLEAR:
            self._clear(checks.SHARED_CELLS, checks.SHARED_BYTES)
            if self._checks.barrier_count:
                self._clear(checks.ORDER, checks.ORDER_BYTES)
            return zero(node.dtype)
        elif name_of(node) == checks.JOIN and isinstance(node, tir.Call):
            self.fn.call("void", "@mlcc_emulate_join", [self._report_pointer(), *(self.index(a) for a in node.args)])
            return zero(node.dtype)
        elif name_of(node) == barriers.BARRIER and isinstance(node, tir.Call):
            self._barrier_operation(node)
            return zero(node.dtype)
        return super().expr(node)

    def _clear(self, memory: int, size: int) -> None:
        fill = self.ctx.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        args = [self._report_word(memory, "ptr"), integer("i8", 0), self._report_word(size), Value("i1", "false")]
        self.fn.call("void", fill, args)

    # ------------------------------------------------------------ barriers in memory

    def _barrier_operation(self, node: tir.Call) -> None:
        """Check an operation on a barrier as an access to its memory, and report misuse of the barrier."""
        fn, state = self.fn, self._checks
        what, address, amount, thread, *check_arguments = node.args
        operation = tir.const_int(what) or 0
        if check_arguments:
            me, clock, synced, site_number, root_number = check_arguments
            site, number = tir.const_int(site_number) or 0, tir.const_int(root_number)
            root = next((r for r in state.roots if r.number == number), None)
        else:
            me, clock, synced = state.me, state.clock, state.synced
            data = (v for v in walk(address) if isinstance(v, tir.Var) and v.dtype.is_handle)
            root = next((r for v in data if (r := state.root_of(v)) is not None), None)
            site = state.site(node, self._stmt, "use", root)
        word = self.expr(address)
        if root is None or root.number not in state.barriers:
            barriers.emit_operation(self, operation, word, self.index(amount))
            return
        root_address = self.expr(root.data)
        offset = fn.binary("sub", *(fn.convert("ptrtoint", p, "i64") for p in (word, root_address)))
        _, done = self._bounds_check(root, [(offset, 8)], site, "met", self.expr(me))
        barrier_number = fn.binary(
            "add", fn.binary("sdiv", offset, integer("i64", 8)), integer("i64", state.barriers[root.number])
        )
        same = Value("i1", "false") if operation == barriers.INIT else None
        self._check_race(root, (offset, 8), site, same, self.expr(me), self.expr(synced), self.expr(clock))
        lane = fn.convert("sext", self.expr(thread), "i64")
        if operation == barriers.ARRIVE:
            fn.call("void", "@mlcc_emulate_arrived", [self._report_pointer(), barrier_number, lane, self.expr(clock)])
        status = barriers.emit_operation(self, operation, word, self.index(amount))
        complete, other, end = fn.label("complete"), fn.label("other"), fn.label("end")
        fn.cond_br(fn.icmp("eq", status, integer("i32", 1)), complete, other)
        fn.start(complete)
        row = [self._report_pointer(), barrier_number]
        if operation == barriers.WAIT:
            fn.call("void", "@mlcc_emulate_waited", [*row, lane])
        else:
            fn.call("void", "@mlcc_emulate_completed", row)
        fn.br(end)
        fn.start(other)
        misuse = fn.label("wrong")
        is_misuse = fn.icmp("eq" if operation == barriers.WAIT else "ne", status, integer("i32", 0))
        fn.cond_br(is_misuse, misuse, end)
        fn.start(misuse)
        kind = checks.NEVER_COMPLETE if operation == barriers.WAIT else checks.BARRIER_MISUSE
        element = fn.binary("sdiv", offset, integer("i64", root.granule))
        unused = integer("i32", 0)
        self._notify([integer("i32", kind), integer("i32", site), self.expr(me), element, unused, status])
        fn.br(end)
        fn.start(end)
        fn.br(done)
        fn.start(done)

    def _copy_engine_mark(self) -> tuple[Value, Value]:
        """Return the mark of the copy engine's writes: the thread with the sign bit set, and the barrier with its
        current phase."""
        fn, state = self.fn, self._checks
        me = fn.binary("or", self.expr(state.me), integer("i32", -(1 << 31)))
        address = None if self._copied is None else barrier_of(self._copied)
        data = [v for v in walk(address) if isinstance(v, tir.Var) and v.dtype.is_handle] if address is not None else []
        root = next((r for v in data if (r := state.root_of(v)) is not None), None)
        if address is None or root is None or root.number not in state.barriers:
            return self.expr(state.me), self.expr(state.clock)
        addresses = (self.expr(address), self.expr(root.data))
        offset = fn.binary("sub", *(fn.convert("ptrtoint", p, "i64") for p in addresses))
        barrier_number = fn.binary(
            "add", fn.binary("sdiv", offset, integer("i64", 8)), integer("i64", state.barriers[root.number])
        )
        phase = fn.load("i32", fn.call("ptr", "@mlcc_emulate_phases", [self._report_pointer(), barrier_number]), 4)
        barrier_bits = fn.binary("shl", fn.convert("trunc", barrier_number, "i32"), integer("i32", 24))
        return me, fn.binary("or", barrier_bits, fn.binary("and", phase, integer("i32", (1 << 24) - 1)))

    # ------------------------------------------------------------ accesses

    def _root_to_check(self, buffer: tir.Buffer, index: Expr) -> Root | None:
        """Return the root to check an access against; None for a constant in-bounds index into local memory."""
        root = self._checks.root_of(buffer.data)
        if root is None or root.scope != "local" or buffer.data is not root.data:
            return root
        first, count = (index.base, index.lanes) if isinstance(index, tir.Ramp) else (index, 1)
        start, size = tir.const_int(first), tir.const_int(buffer.shape[0])
        is_contiguous = not isinstance(index, tir.Ramp) or tir.const_int(index.stride) == 1
        return None if is_contiguous and start is not None and size is not None and 0 <= start <= size - count else root

    def _load(self, node: tir.BufferLoad, root: Root) -> Value:
        fn = self.fn
        node = replace(node, indices=(self._evaluate_once(node.indices[0]),))
        site = self._checks.site(node, self._stmt, "read", root)
        if self._has_lanes_off(node.indices[0]):
            with self._checked_lanes(node.buffer, node.indices[0], root, site, None):
                return super().expr(node)
        pieces = self._byte_ranges(node.buffer, node.indices[0], root)
        outside, done = self._bounds_check(root, pieces, site, "read")
        for piece in pieces:
            self._record_access(root, piece, site, None)
        value = super().expr(node)
        end = fn.block
        fn.br(done)
        fn.start(done)
        return fn.phi(register_type(node.dtype), [(zero(node.dtype), outside), (value, end)])

    def _store(self, stmt: tir.BufferStore) -> None:
        root = self._root_to_check(stmt.buffer, stmt.indices[0])
        if root is None:
            super().plain_body((stmt,))
            return
        fn = self.fn
        value = tir.Var("value", stmt.value.dtype)
        self.bind(value, self.expr(stmt.value))
        site = self._checks.site(stmt, stmt, "write", root)
        stmt = replace(stmt, value=value, indices=(self._evaluate_once(stmt.indices[0]),))
        if self._has_lanes_off(stmt.indices[0]):
            with self._checked_lanes(stmt.buffer, stmt.indices[0], root, site, value):
                super().plain_body((stmt,))
            return
        pieces = self._byte_ranges(stmt.buffer, stmt.indices[0], root)
        _, done = self._bounds_check(root, pieces, site, "written")
        same = self._stores_same_value(root, pieces, value)
        for piece in pieces:
            self._record_access(root, piece, site, same)
        super().plain_body((stmt,))
        fn.br(done)
        fn.start(done)

    def _evaluate_once(self, index: Expr) -> Expr:
        """Emit an index that reads memory once, and return a variable for it; return other indices unchanged."""
        if not holds(index, tir.BufferLoad, tir.Call):
            return index
        if isinstance(index, tir.Ramp):
            base, stride = self._evaluate_once(index.base), self._evaluate_once(index.stride)
            return tir.Ramp(index.dtype, base, stride, index.lanes, span=index.span)
        var = tir.Var("index", index.dtype)
        self.bind(var, self.expr(index))
        return var

    # ------------------------------------------------------------ checks

    def _byte_ranges(self, buffer: tir.Buffer, index: Expr, root: Root, by_lane: bool = False) -> list[ByteRange]:
        """Return the byte ranges of an access: a single one if its elements are contiguous and not `by_lane`."""
        fn = self.fn
        size = buffer.dtype.bytes * buffer.dtype.lanes
        start = integer("i64", 0)
        if buffer.data is not root.data:
            address, root_address = (fn.convert("ptrtoint", self.expr(v), "i64") for v in (buffer.data, root.data))
            start = fn.binary("sub", address, root_address)

        def elements_at(element: Value, count: int) -> ByteRange:
            return fn.binary("add", start, fn.binary("mul", element, integer("i64", size))), count * size

        if isinstance(index, tir.Broadcast) and index.value.dtype.lanes == 1 and not by_lane:
            index = index.value
        if index.dtype.lanes == 1:
            return [elements_at(self.index(index), 1)]
        if isinstance(index, tir.Ramp) and tir.const_int(index.stride) == 1 and not by_lane:
            return [elements_at(self.index(index.base), index.lanes)]
        indices = memory.lane_indices(self, index)
        return [elements_at(fn.extract(indices, lane), 1) for lane in range(index.dtype.lanes)]

    def _has_lanes_off(self, index: Expr) -> bool:
        """Return True for a masked vector access, whose lanes are checked one by one."""
        return self.mask is not None and self.mask.type == vector("i1", index.dtype.lanes)

    @contextmanager
    def _checked_lanes(
        self, buffer: tir.Buffer, index: Expr, root: Root, site: int, value: tir.Var | None
    ) -> Iterator[None]:
        """Check the active lanes of a masked access; those out of bounds are masked off within the block."""
        fn, outer = self.fn, self.mask
        assert outer is not None
        ranges = self._byte_ranges(buffer, index, root, by_lane=True)
        stored = None if value is None else casts.to_memory(self, self.expr(value), value.dtype)
        mask = outer
        for lane, piece in enumerate(ranges):
            active, after = fn.label("on"), fn.label("lane")
            before = fn.block
            fn.cond_br(fn.extract(outer, lane), active, after)
            fn.start(active)
            outside, done = self._bounds_check(root, [piece], site, "looked")
            self._record_access(
                root,
                piece,
                site,
                None if stored is None else self._memory_equals(root, piece, fn.extract(stored, lane)),
            )
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

    def _bounds_check(
        self, root: Root, pieces: list[ByteRange], site: int, name: str, me: Value | None = None
    ) -> tuple[str, str]:
        """Emit a bounds check that reports a failure; return the labels of the failing block and of the end."""
        fn = self.fn
        size = self._report_word(checks.ROOTS + 2 * root.number) if root.size is None else self.index(root.size)
        inside = Value("i1", "true")
        for offset, count in pieces:
            end = fn.binary("add", offset, integer("i64", count))
            low = fn.icmp("sge", offset, integer("i64", 0))
            inside = fn.binary("and", inside, fn.binary("and", low, fn.icmp("sle", end, size)))
        in_bounds, out_of_bounds, done = fn.label("inside"), fn.label("outside"), fn.label(name)
        fn.cond_br(inside, in_bounds, out_of_bounds)
        fn.start(out_of_bounds)
        element = fn.binary("sdiv", pieces[0][0], integer("i64", root.granule))
        unused = integer("i32", 0)
        thread = self.expr(self._checks.me) if me is None else me
        self._notify([integer("i32", checks.OUT_OF_BOUNDS), integer("i32", site), thread, element, unused, unused])
        fn.br(done)
        fn.start(in_bounds)
        return out_of_bounds, done

    def _record_access(self, root: Root, piece: ByteRange, site: int, same_value: Value | None) -> None:
        """Trace an access and mark it in shadow memory: a read, or a write if `same_value` is given."""
        if root.scope == "local":
            return
        fn, state = self.fn, self._checks
        offset, count = piece
        if (
            state.trace and self._copied is None and self._counted
        ):  # copies by the copy engine are not requests of a warp
            loops = [x for x in self._loops if x.var in self.values and x.var not in state.threads.axes]
            rolled = [x for x in loops if not x.annotations.get(checks.UNROLLED)]
            key = self._iteration(loops)
            outer = key if len(rolled) == len(loops) else self._iteration(rolled)
            thread = self.expr(state.threads.number)
            args = [self._report_pointer(), integer("i32", site), thread, key, offset, integer("i64", count)]
            fn.call("void", "@mlcc_emulate_trace", [*args, self.expr(state.block), outer])
        if root.is_marked:
            self._check_race(root, piece, site, same_value, *map(self.expr, (state.me, state.synced, state.clock)))

    def _iteration(self, loops: Sequence[tir.For]) -> Value:
        """Return a number of the current iteration of some nested loops."""
        number: Value = integer("i64", 0)
        for loop in loops:
            number = self.fn.binary("add", self.fn.binary("mul", number, integer("i64", _FACTOR)), self.index(loop.var))
        return number

    def _check_race(
        self, root: Root, piece: ByteRange, site: int, same_value: Value | None, me: Value, synced: Value, clock: Value
    ) -> None:
        """Check a read or write of thread `me` for a race with earlier marks, and leave a mark."""
        fn, state = self.fn, self._checks
        offset, count = piece
        by_thread = self._copied is None and me.ref == self.expr(state.me).ref if state.me in self.values else False
        first = fn.binary("sdiv", offset, integer("i64", root.granule))
        cells = self._report_word(checks.ROOTS + 2 * root.number + 1, "ptr")
        elements = max(count // root.granule, 1)
        done = ""
        if elements == 1 and by_thread:  # fast path: the last mark is the thread's own
            mark_word = fn.binary("mul", first, integer("i64", checks.MARKS))
            if same_value is None:
                mark_word = fn.binary("add", mark_word, integer("i64", checks.MARKS // 3))
            last = fn.load("i64", fn.gep("i32", cells, mark_word), 4)
            check, done = fn.label("look"), fn.label("marked")
            fn.cond_br(fn.icmp("eq", last, self.expr(state.stamp)), done, check)
            fn.start(check)
        args = [self._report_pointer(), cells, first, integer("i64", elements), me, synced]
        site_args = [integer("i32", site), self.expr(state.threads.count)]
        if same_value is None:
            skip_own = Value("i1", "false" if root.scope == "global" else "true")
            fn.call("void", "@mlcc_emulate_read", [*args, clock, *site_args, skip_own])
        else:
            mark = (me, clock) if self._copied is None else self._copy_engine_mark()
            fn.call("void", "@mlcc_emulate_write", [*args, *mark, *site_args, same_value])
        if done:
            fn.br(done)
            fn.start(done)

    def _stores_same_value(self, root: Root, pieces: list[ByteRange], value: tir.Var) -> Value:
        """Return an i1: true if the memory already holds the stored value."""
        if not root.is_marked or len(pieces) != 1 or self._copied is not None:
            return Value("i1", "false")
        return self._memory_equals(root, pieces[0], casts.to_memory(self, self.expr(value), value.dtype))

    def _memory_equals(self, root: Root, piece: ByteRange, new: Value) -> Value:
        """Return an i1: true if a byte range equals `new` bit by bit."""
        fn = self.fn
        offset, count = piece
        place = fn.gep("i8", self.expr(root.data), offset)
        bits = f"i{count * 8}"
        if new.type == "ptr":
            return fn.icmp("eq", fn.load("ptr", place, 1), new)
        return fn.icmp("eq", fn.load(bits, place, 1), new if new.type == bits else fn.convert("bitcast", new, bits))

    # ------------------------------------------------------------ the report

    def _report_pointer(self) -> Value:
        return self.expr(self._checks.report)

    def _report_word(self, number: int, type: str = "i64") -> Value:
        return self.fn.load(type, self.fn.gep("i64", self._report_pointer(), integer("i64", number)))

    def _notify(self, args: list[Value]) -> None:
        self.fn.call("void", "@mlcc_emulate_tell", [self._report_pointer(), *args])
