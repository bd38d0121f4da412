"""Emission of sanitized kernels: each access is looked at before it is made, and what is wrong ends the call.

What is known of memory is in shadow memory that the code itself allocates (`mlcc.passes.lowering.sanitize`): whether
an element was written, and which iterations of parallel loops touched it last. An error names the place in the text,
the buffer and the element.
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.node import replace
from mlcc.passes.lowering import sanitize
from mlcc.passes.lowering.sanitize import Parallel, Shadow, Shadows, place_of
from mlcc.targets.llvm.codegen import casts, index_checks
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.emitter import Emitter
from mlcc.targets.llvm.codegen.ir_text import FunctionText, Value, integer, vector
from mlcc.targets.llvm.codegen.storage import Memory
from mlcc.targets.llvm.codegen.types import zero
from mlcc.targets.plan.exports import OUTSIDE, RACE, UNWRITTEN

_TRUE = Value("i1", "true")
_MOST_TEXTS = 60_000  # error codes have 16 bits for the number of their text

Cell = tuple[Value, Value, Value | None]  # its number, that of the element for messages, whether the lane is on


class SanitizedEmitter(Emitter):
    """Emits the looks as well. The function stays in one piece, so that what looks need is at hand everywhere."""

    def __init__(self, fn: FunctionText, ctx: ModuleContext, storage: Memory | None, name: str, found: Shadows) -> None:
        super().__init__(fn, ctx, storage)
        self._name = name
        self._shadows = found
        self._parallel: list[Parallel] = []

    def body(self, statements: tuple[tir.Stmt, ...]) -> None:
        self.plain_body(statements)

    def plain_body(self, statements: tuple[tir.Stmt, ...]) -> None:
        for stmt in statements:
            if not self.fn.is_open:
                return
            loop = self._shadows.loops.get(stmt) if isinstance(stmt, tir.For) else None
            if isinstance(stmt, tir.BufferStore):
                self._store(stmt)
            elif loop is not None:
                self._parallel.append(loop)
                super().plain_body((stmt,))
                self._parallel.pop()
            else:
                super().plain_body((stmt,))

    def expr(self, node: tir.Expr) -> Value:
        if isinstance(node, tir.BufferLoad):
            return self._load(node)
        if isinstance(node, tir.Call) and isinstance(node.op, tir.Op) and node.op.name == sanitize.INDEX:
            return self._index(node)
        if isinstance(node, tir.Call) and isinstance(node.op, tir.Op) and node.op.name == sanitize.KEEP:
            return zero(node.dtype)
        return super().expr(node)

    # ------------------------------------------------------------ indices

    def _index(self, node: tir.Call) -> Value:
        """An index that is one of its dimension."""
        index, extent, text = node.args
        assert isinstance(text, tir.StringImm)
        code = self._code(OUTSIDE, text.value)

        def settle(given: Value, place: Value, inside: Value, size: Value) -> Value:
            return self.settle_index(given, place, inside, size, code)

        made = index_checks.settled(self, index, extent, False, node.dtype.lanes, settle)
        type = vector(f"i{node.dtype.bits}", node.dtype.lanes)
        return made if made.type == type else self.fn.convert("trunc", made, type)

    def _computed(self, index: tir.Expr) -> tir.Expr:
        """An index that is computed, and checked, once."""
        if index.dtype.lanes == 1:
            var = tir.Var("index", INT64)
            self.bind(var, self.index(index))
            return var
        if isinstance(index, tir.Broadcast) and index.value.dtype.lanes == 1:
            return replace(index, value=self._computed(index.value), dtype=INT64.with_lanes(index.dtype.lanes))
        var = tir.Var("index", index.dtype)
        self.bind(var, super().expr(index) if not isinstance(index, tir.Call) else self.expr(index))
        return var

    # ------------------------------------------------------------ accesses

    def _load(self, node: tir.BufferLoad) -> Value:
        node = replace(node, indices=tuple(map(self._computed, node.indices)))
        shadow = self._shadow(node.buffer)
        if shadow is not None and len(node.indices) == 1:
            for cell in self._cells(node.buffer, node.indices[0], shadow, node):
                self._read(shadow, cell, node)
        return super().expr(node)

    def _store(self, stmt: tir.BufferStore) -> None:
        value = tir.Var("value", stmt.value.dtype)
        self.bind(value, self.expr(stmt.value))
        stmt = replace(stmt, value=value, indices=tuple(map(self._computed, stmt.indices)))
        shadow = self._shadow(stmt.buffer)
        if shadow is not None and len(stmt.indices) == 1:
            for number, cell in enumerate(self._cells(stmt.buffer, stmt.indices[0], shadow, stmt)):
                self._write(shadow, cell, stmt, self._same(stmt, value, number, cell))
        super().plain_body((stmt,))

    def _shadow(self, buffer: tir.Buffer) -> Shadow | None:
        found = self._shadows.of(buffer.data)
        return None if found is None or found.root not in self.values else found

    def _cells(
        self, buffer: tir.Buffer, index: tir.Expr, shadow: Shadow, node: tir.BufferLoad | tir.BufferStore
    ) -> list[Cell]:
        """The cells of an access; those of a view, which may reach further, are first looked for in the memory."""
        fn = self.fn
        size = buffer.dtype.bytes * buffer.dtype.lanes
        is_view = not shadow.is_whole(buffer)
        start = integer("i64", 0)
        if buffer.data is not shadow.root:
            here, there = (fn.convert("ptrtoint", self.expr(v), "i64") for v in (buffer.data, shadow.root))
            start = fn.binary("sub", here, there)
        if not is_view and not shadow.marks and shadow.written is None:
            return []
        made: list[Cell] = []
        for element, on in self._elements(index):
            offset = fn.binary("add", start, fn.binary("mul", element, integer("i64", size)))
            if is_view:
                self._inside(offset, size, shadow, node, element, on)
            if not shadow.marks and shadow.written is None:
                continue
            first = fn.binary("sdiv", offset, integer("i64", shadow.granule))
            if on is not None:
                first = fn.select(on, first, integer("i64", 0))
            cells = (fn.binary("add", first, integer("i64", k)) for k in range(max(size // shadow.granule, 1)))
            made += [(cell, element, on) for cell in cells]
        return made

    def _elements(self, index: tir.Expr) -> list[tuple[Value, Value | None]]:
        """The elements of an access as i64, each with whether its lane is on."""
        if isinstance(index, tir.Broadcast):
            return [(self.index(index.value), None)]
        if index.dtype.lanes == 1:
            return [(self.index(index), None)]
        fn, lanes = self.fn, index.dtype.lanes
        every = self.expr(index)
        if index.dtype.bits < 64:
            every = fn.convert("zext" if index.dtype.is_uint else "sext", every, vector("i64", lanes))
        mask = self.mask if self.mask is not None and self.mask.type == vector("i1", lanes) else None
        return [(fn.extract(every, i), None if mask is None else fn.extract(mask, i)) for i in range(lanes)]

    def _inside(
        self, offset: Value, size: int, shadow: Shadow, node: tir.BufferLoad | tir.BufferStore, element: Value,
        on: Value | None,
    ) -> None:  # fmt: skip
        fn = self.fn
        end = fn.binary("add", offset, integer("i64", size))
        low = fn.icmp("sge", offset, integer("i64", 0))
        fits = fn.binary("and", low, fn.icmp("sle", end, self.index(shadow.size)))
        text = f"element \x01 of `{node.buffer.name}` is outside the memory of `{shadow.name}`"
        self._must(fits, on, OUTSIDE, text, element, node)

    # ------------------------------------------------------------ shadow memory

    def _read(self, shadow: Shadow, cell: Cell, node: tir.BufferLoad) -> None:
        fn = self.fn
        at, element, on = cell
        if shadow.written is not None:
            known = fn.load("i8", fn.gep("i8", self.expr(shadow.written.data), at), 1)
            text = f"`{node.buffer.name}` is read where it was never written, at element \x01"
            self._must(fn.icmp("ne", known, integer("i8", 0)), on, UNWRITTEN, text, element, node)
        for loop in self._parallel:
            pair = shadow.marks.get(loop.depth)
            if pair is None:
                continue
            base, me, many = map(self.expr, (loop.base, loop.me, loop.many))
            writer, reader = (fn.gep("i64", self.expr(b.data), at) for b in pair)
            text = _meeting(node, loop, "read in one iteration and written in another")
            self._must(self._is_mine(fn.load("i64", writer, 8), base, me), on, RACE, text, element, node)
            last = fn.load("i64", reader, 8)
            self._remember(reader, last, fn.select(self._is_mine(last, base, me), me, many), on)

    def _write(self, shadow: Shadow, cell: Cell, node: tir.BufferStore, same: Value) -> None:
        fn = self.fn
        at, element, on = cell
        for loop in self._parallel:
            pair = shadow.marks.get(loop.depth)
            if pair is None:
                continue
            base, me = map(self.expr, (loop.base, loop.me))
            writer, reader = (fn.gep("i64", self.expr(b.data), at) for b in pair)
            before = fn.load("i64", writer, 8)
            text = _meeting(node, loop, "written in two iterations")
            fine = fn.binary("or", self._is_mine(before, base, me), same)
            self._must(fine, on, RACE, text, element, node)
            text = _meeting(node, loop, "read in one iteration and written in another")
            self._must(self._is_mine(fn.load("i64", reader, 8), base, me), on, RACE, text, element, node)
            self._remember(writer, before, me, on)
        if shadow.written is not None:
            place = fn.gep("i8", self.expr(shadow.written.data), at)
            one = integer("i8", 1)
            fn.store(one if on is None else fn.select(on, one, fn.load("i8", place, 1)), place, 1)

    def _is_mine(self, mark: Value, base: Value, me: Value) -> Value:
        """No other iteration of the loop left this mark."""
        fn = self.fn
        return fn.binary("or", fn.icmp("slt", mark, base), fn.icmp("eq", mark, me))

    def _remember(self, place: Value, old: Value, new: Value, on: Value | None) -> None:
        self.fn.store(new if on is None else self.fn.select(on, new, old), place, 8)

    def _same(self, stmt: tir.BufferStore, value: tir.Var, number: int, cell: Cell) -> Value:
        """Whether the memory holds what is stored already: several iterations may write one value."""
        fn, dtype = self.fn, stmt.value.dtype
        if not self._parallel or dtype.is_handle or stmt.buffer.dtype.lanes > 1:
            return Value("i1", "false")
        element = dtype.element
        new = casts.to_memory(self, self.expr(value), dtype)
        if dtype.lanes > 1:
            new = fn.extract(new, number % dtype.lanes)
        bits = f"i{element.bytes * 8}"
        offset = fn.binary("mul", cell[1], integer("i64", element.bytes))
        if cell[2] is not None:
            offset = fn.select(cell[2], offset, integer("i64", 0))
        old = fn.load(bits, fn.gep("i8", self.expr(stmt.buffer.data), offset), 1)
        return fn.icmp("eq", old, new if new.type == bits else fn.convert("bitcast", new, bits))

    # ------------------------------------------------------------ reports

    def _must(
        self, condition: Value, on: Value | None, kind: str, text: str, element: Value,
        node: tir.BufferLoad | tir.BufferStore,
    ) -> None:  # fmt: skip
        """Leave with an error unless the condition holds, or the lane is off."""
        fn = self.fn
        if on is not None:
            condition = fn.binary("or", condition, fn.binary("xor", on, _TRUE))
        code = self._code(kind, f"{place_of(node.span, self._name)}: {text}")
        self.report_unless(condition, code, lambda: (element, integer("i64", 0)))

    def _code(self, kind: str, text: str) -> int:
        if len(self.ctx.errors) > _MOST_TEXTS:
            text = f"{self._name}: {_BRIEF[kind]}"
        return self.ctx.error_code(kind, text)


def _meeting(node: tir.BufferLoad | tir.BufferStore, loop: Parallel, how: str) -> str:
    return f"element \x01 of `{node.buffer.name}` is {how} of the parallel loop `{loop.name}`"


_BRIEF = {
    OUTSIDE: "index \x01 is outside its dimension", UNWRITTEN: "element \x01 is read where it was never written",
    RACE: "element \x01 is touched by two iterations of a parallel loop",
}  # fmt: skip
