"""Print a kernel: its signature, and its statements line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import find, holds, walk
from mlcc.ir.visit import substitute
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel
from mlcc.passes.gpu.shared_layout import ALIGNMENT, alignment_of, dynamic_alignment
from mlcc.passes.gpu.wgmma_layout import accumulators
from mlcc.targets.source import expressions as ex
from mlcc.targets.source.dialect import HELPERS, Dialect, Param, refuse
from mlcc.targets.source.lanes import Lanes, vector_loads
from mlcc.targets.source.names import identifier, scalar_view
from mlcc.targets.source.names import written_pointers as written_by
from mlcc.targets.source.tensor_cores import in_registers

_SHORT = {"blockIdx": "b", "threadIdx": "t"}
_ALIGNED = ("global", "shared", "shared.dyn")  # scopes of memory that starts at a multiple of 16 bytes


def kernel_text(kernel: DeviceKernel, language: Dialect) -> str:
    """Print the definition of one kernel. Raises CompileError (E0780)."""
    return KernelWriter(kernel, language).text()


class KernelWriter:
    """The printer of one kernel: names of variables, and the lines so far."""

    def __init__(self, kernel: DeviceKernel, language: Dialect) -> None:
        self.language = language
        self._kernel = kernel
        self._noalias = bool(kernel.attrs.get("tir.noalias"))
        self._analyzer = Analyzer()
        self._lanes = Lanes()
        self._names: dict[tir.Var, str] = {}
        self._taken: set[str] = {"lanes", *HELPERS, *language.helpers}
        self._scopes: dict[tir.Var, str] = {}  # pointer -> storage scope
        self._parts: dict[tir.Var, str] = {}  # pseudo pointer -> lane of a loaded vector
        self._lines: list[str] = []
        self._depth = 1
        self._by_words = in_registers(kernel.body)
        self._sums = accumulators(kernel.body)
        language.sums.clear()
        self._dynamic: list[str] = []  # sizes in bytes of the arrays in dynamic shared memory

    def text(self) -> str:
        kernel = self._kernel
        self._taken.add(identifier(kernel.name, self.language.words))
        axes = {axis: self.define(var, _SHORT[axis[:-2]] + axis[-1]) for axis, var in sorted(kernel.axes.items())}
        for axis, var in kernel.axes.items():
            extent = tir.const_int(kernel.extents[axis])
            self._analyzer.bind_bound(var, 0, (extent or 2**31) - 1)
        params = self._params()
        self._declare_shared()
        self.body(kernel.body)
        threads = [tir.const_int(kernel.extents.get(axis, tir.IntImm(DType.of("int32"), 1))) for axis in BLOCK]
        count = None if None in threads else threads[0] * threads[1] * threads[2]  # type: ignore[operator]
        name = identifier(kernel.name, self.language.words)
        head = self.language.head(name, params, count, axes, dynamic_alignment(kernel.body) if self._dynamic else 0)
        return "\n".join([*self._launch(), *head, *self._lines, "}", ""])

    def _launch(self) -> list[str]:
        """Return a comment with the launch: grid, block, dynamic shared memory."""
        sizes = [", ".join(self._extent(axis) for axis in axes) for axes in (GRID, BLOCK)]
        shared = tir.const_int(self._kernel.dynamic_shared)
        dynamic = "" if shared == 0 else f", dynamic shared memory: {self._comment(self._kernel.dynamic_shared)} bytes"
        return [f"// grid: ({sizes[0]}), block: ({sizes[1]}){dynamic}"]

    def _extent(self, axis: str) -> str:
        extent = self._kernel.extents.get(axis)
        return "1" if extent is None else self._comment(extent)

    def _comment(self, node: tir.Expr) -> str:
        known = tir.const_int(node)
        return str(known) if known is not None else ex.text(self, node)

    def _params(self) -> list[Param]:
        kernel = self._kernel
        params = []
        written = {*written_by(kernel.body), *(kernel.params[-1:] if kernel.asserts else ())}
        for var, buffer in zip(kernel.params, kernel.buffers, strict=True):
            name = self.define(var, buffer.name if buffer is not None else var.name)
            self._scopes[var] = "global"
            if var in kernel.maps:
                params.append(Param(name, self.language.tensor_map(var.span), False, True, False))
                continue
            if not var.dtype.is_handle:
                params.append(Param(name, self.language.register(var.dtype, var.span), False, True, False))
                continue
            dtype = buffer.dtype if buffer is not None else var.pointer.dtype if var.pointer is not None else None
            type = "void" if dtype is None or dtype.is_void else self.language.memory(dtype, kernel.body[0].span)
            params.append(Param(name, type, True, var not in written, self._noalias))
        return params

    # ------------------------------------------------------------ names

    def define(self, var: tir.Var, hint: str | None = None) -> str:
        """Return a name that is unique in the kernel."""
        base = identifier(hint or var.name, self.language.words)
        unique, number = base, 0
        while unique in self._taken:
            number += 1
            unique = f"{base}_{number}"
        self._taken.add(unique)
        self._names[var] = unique
        return unique

    def name(self, var: tir.Var) -> str:
        name = self._names.get(var)
        if name is None:
            raise refuse(f"`{var.name}` has no value here", var.span)
        return name

    def never_negative(self, node: tir.Expr) -> bool:
        return self._analyzer.bound(node).min >= 0

    # ------------------------------------------------------------ lines

    def line(self, text: str) -> None:
        self._lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Iterator[None]:
        self.line(f"{head} {{")
        self._depth += 1
        in_scope = len(self.language.sums)
        yield
        del self.language.sums[in_scope:]
        self._depth -= 1
        self.line(tail)

    def body(self, statements: tuple[tir.Stmt, ...]) -> None:
        for stmt in statements:
            emit = _STATEMENTS.get(type(stmt))
            if emit is None:
                raise refuse(f"`{type(stmt).__name__}` has no source form", stmt.span)
            emit(self, stmt)

    # ------------------------------------------------------------ memory

    def element(self, buffer: tir.Buffer, index: tir.Expr) -> str:
        """Print an element of a buffer of scalars, in its memory type."""
        return (
            self._parts.get(buffer.data) or f"{self.name(buffer.data)}[{ex.text(self, self._analyzer.simplify(index))}]"
        )

    def _declare_shared(self) -> None:
        """Declare shared memory at the top of the kernel, as Metal requires."""
        for stmt in self._kernel.body:
            for node in walk(stmt):
                if isinstance(node, tir.AllocBuffer) and node.buffer.scope.startswith("shared"):
                    self._declare_shared_buffer(node.buffer)

    def _declare_shared_buffer(self, buffer: tir.Buffer) -> None:
        name = self.define(buffer.data, buffer.name)
        scope = self._scopes[buffer.data] = buffer.scope
        type, lanes = self.language.memory(buffer.dtype, buffer.span), buffer.dtype.lanes
        sizes = [tir.const_int(d) for d in buffer.shape]
        if scope != "shared.dyn":
            if None in sizes:
                raise refuse(f"`{buffer.name}` in shared memory needs a constant size", buffer.span)
            shared = self.language.shared.format(alignment_of(buffer))
            self.line(f"{shared} {type} {name}[{sizes[0] * lanes}];")  # type: ignore[operator]
            return
        start = " + ".join(self._dynamic) or "0"
        if alignment_of(buffer) > ALIGNMENT and self._dynamic:
            start = f"(({start} + {alignment_of(buffer) - 1}) & ~{alignment_of(buffer) - 1})"
            self._dynamic = [start]
        size = c.mul(c.cast(DType.of("int64"), buffer.shape[0]), buffer.dtype.bytes * lanes)
        known = tir.const_int(size)
        if known is not None:
            self._dynamic.append(str(-(-known // 16) * 16))
        else:
            self._dynamic.append(f"(({ex.text(self, size)} + 15) & ~15)")
        pointer = self.language.pointer(type, scope)
        self.line(f"{pointer} {name} = ({pointer})(dynamic_shared + {start});")

    def alloc(self, stmt: tir.AllocBuffer) -> None:
        buffer = stmt.buffer
        if buffer.scope.startswith("shared"):
            return
        if buffer.scope not in ("local", "global"):
            raise refuse(f"memory of scope `{buffer.scope}` has no source form", stmt.span)
        size = tir.const_int(buffer.shape[0])
        if size is None:
            raise refuse(f"`{buffer.name}` in thread-local memory needs a constant size", stmt.span)
        name = self.define(buffer.data, buffer.name)
        self._scopes[buffer.data] = "local"
        if buffer.data in self._sums:
            self.language.sums += self.language.registers(name, buffer)
        aligned = self.language.in_registers if buffer.data in self._by_words else ""
        type = self.language.memory(buffer.dtype, stmt.span)
        self.line(f"{aligned}{type} {name}[{max(size * buffer.dtype.lanes, 1)}];")

    def decl(self, stmt: tir.DeclBuffer) -> None:
        data = stmt.buffer.data
        if stmt.data is data:
            return
        sources = [n for n in walk(stmt.data) if isinstance(n, tir.Var) and n in self._scopes]
        scope = self._scopes[sources[0]] if sources else "global"
        pointer = self.language.pointer(self.language.memory(stmt.buffer.dtype, stmt.span), scope)
        name = self.define(data, stmt.buffer.name)
        self._scopes[data] = scope
        self.line(f"{pointer} {name} = ({pointer}){ex.text(self, stmt.data, ex.UNARY)};")

    def _elements(self, buffer: tir.Buffer, index: tir.Expr) -> tuple[list[tir.Expr], tir.Expr | None]:
        """Return the element indices of an access, and the first one if they form an aligned vector."""
        inner, lanes = buffer.dtype.lanes, index.dtype.lanes
        starts = [self._lanes.of(index, lane, {}) for lane in range(lanes)]
        if inner > 1:
            starts = [
                c.add(c.mul(s, c.const(inner, s.dtype)), c.const(k, s.dtype)) for s in starts for k in range(inner)
            ]
        is_contiguous = lanes == 1 or (isinstance(index, tir.Ramp) and tir.const_int(index.stride) == 1)
        type = self.language.vector(buffer.dtype.element, len(starts)) if is_contiguous else None
        if type is None or self._scopes.get(buffer.data) not in _ALIGNED:
            return starts, None
        misalignment = self._analyzer.simplify(c.floormod(starts[0], c.const(len(starts), starts[0].dtype)))
        return starts, starts[0] if tir.const_int(misalignment) == 0 else None

    def _vector_access(self, buffer: tir.Buffer, first: tir.Expr, lanes: int, const: bool) -> str:
        type = self.language.vector(buffer.dtype.element, lanes) or ""
        pointer = self.language.pointer(type, self._scopes[buffer.data], const)
        return f"*({pointer})({self.name(buffer.data)} + {ex.text(self, self._analyzer.simplify(first), ex.SUM)})"

    def _load_vectors(self, *nodes: tir.Expr, always: bool = False) -> dict[int, list[tir.Expr]]:
        """Return the lanes of all vector loads in expressions; aligned ones (with `always` all) are loaded to
        variables."""
        loaded: dict[int, list[tir.Expr]] = {}

        def visit(load: tir.BufferLoad, guards: tuple[tir.Expr, ...]) -> None:
            buffer, dtype = load.buffer, load.dtype.element
            if isinstance(load.indices[0], tir.BufferLoad) or any(
                isinstance(n, tir.BufferLoad) and n.dtype.lanes > 1 for n in walk(load.indices[0])
            ):
                index = load.indices[0]
                starts = [self._lanes.of(index, lane, loaded) for lane in range(index.dtype.lanes)]
                loaded[id(load)] = [tir.BufferLoad(dtype, scalar_view(buffer), (s,), span=load.span) for s in starts]
                return
            starts, first = self._elements(buffer, load.indices[0])
            flat = scalar_view(buffer)
            if first is None or any(g.dtype.lanes > 1 for g in guards):
                lanes: list[tir.Expr] = [tir.BufferLoad(dtype, flat, (s,), span=load.span) for s in starts]
                loaded[id(load)] = (
                    [self._to_variable(x, buffer.name) for x in lanes] if always and not guards else lanes
                )
                return
            vector_var = tir.Var("v", dtype)
            name = self.define(vector_var, f"{buffer.name}_v")
            type = self.language.vector(dtype, len(starts))
            access = self._vector_access(buffer, first, len(starts), True)
            if guards:
                access = f"{' && '.join(ex.text(self, g, ex.EQUAL) for g in guards)} ? {access} : {type}()"
            self.line(f"const {type} {name} = {access};")
            loaded[id(load)] = [self._vector_lane(name, dtype, len(starts), k) for k in range(len(starts))]

        for node in nodes:
            vector_loads(node, visit)
        return loaded

    def _vector_lane(self, vector: str, dtype: DType, lanes: int, lane: int) -> tir.Expr:
        """Return a lane of a loaded vector as a load, so that it is converted like an element in memory."""
        data = tir.Var(vector, DType.of("handle"))
        self._parts[data] = self.language.lane(vector, dtype, lanes, lane)
        return tir.BufferLoad(dtype, tir.Buffer(vector, data, dtype, ()), (tir.IntImm(DType.of("int32"), lane),))

    def _to_variable(self, node: tir.Expr, hint: str) -> tir.Var:
        """Assign the current value of an expression to a new variable."""
        var = tir.Var(hint, node.dtype)
        text = ex.text(self, node)
        self.line(f"const {self.language.register(node.dtype, node.span)} {self.define(var)} = {text};")
        return var

    # ------------------------------------------------------------ statements

    def store(self, stmt: tir.BufferStore) -> None:
        buffer, dtype = stmt.buffer, stmt.buffer.dtype.element
        index = stmt.indices[0]
        if stmt.value.dtype.lanes == 1:
            self.line(f"{self.element(buffer, index)} = {self.stored(stmt.value)};")
            return
        count = stmt.value.dtype.lanes
        loads = self._load_vectors(stmt.value)
        inner = [n for n in find(index, tir.BufferLoad) if n.dtype.lanes > 1]
        index_loads = self._load_vectors(index) if inner else {}
        if index_loads:
            starts, first = [self._lanes.of(index, lane, index_loads) for lane in range(count)], None
        else:
            starts, first = self._elements(buffer, index)
        values = [self._lanes.of(stmt.value, lane, loads) for lane in range(count)]
        if first is not None:
            vector = self._whole_vector(values) or self.language.make_vector(dtype, [self.stored(v) for v in values])
            self.line(f"{self._vector_access(buffer, first, count, False)} = {vector};")
            return
        loads_left = (n for v in values for n in find(v, tir.BufferLoad))
        if any(n.buffer.data not in self._parts for n in loads_left):  # read all lanes before any is written
            values = [self._to_variable(v, f"{buffer.name}_v") for v in values]
        for start, value in zip(starts, values, strict=True):
            self.line(f"{self.element(buffer, start)} = {self.stored(value)};")

    def _whole_vector(self, values: list[tir.Expr]) -> str | None:
        """Return the loaded vector that has exactly these lanes in order; None if there is none."""
        first = values[0]
        if not isinstance(first, tir.BufferLoad) or first.buffer.data not in self._parts:
            return None
        vector, dtype, count = first.buffer.name, first.dtype, len(values)
        expected = [self.language.lane(vector, dtype, count, k) for k in range(count)]
        parts = [self._parts.get(v.buffer.data) if isinstance(v, tir.BufferLoad) else None for v in values]
        return vector if parts == expected else None

    def stored(self, node: tir.Expr) -> str:
        """Print a value in its memory type."""
        text, dtype = ex.text(self, node), node.dtype
        return self.language.to_memory(text, dtype, DType.of("float32")) if dtype.is_float and dtype.bits < 32 else text

    def bind(self, stmt: tir.Bind) -> None:
        var, value = stmt.var, stmt.value
        if value.dtype.lanes > 1:
            loads = self._load_vectors(value, always=True)
            parts = [self._lanes.of(value, lane, loads) for lane in range(value.dtype.lanes)]
            self._lanes.vectors[var] = [self._to_variable(p, var.name) for p in parts]
            return
        if var.dtype.is_handle:
            self._pointer(stmt)
            return
        if var.dtype.is_int:
            self._analyzer.bind(var, value)
        if isinstance(value, tir.Var) and value.dtype is var.dtype and value in self._names:
            self._names[var] = self._names[value]
            return
        text = ex.text(self, value)
        self.line(f"const {self.language.register(var.dtype, stmt.span)} {self.define(var)} = {text};")

    def _pointer(self, stmt: tir.Bind) -> None:
        sources = [n for n in walk(stmt.value) if isinstance(n, tir.Var) and n in self._scopes]
        scope = self._scopes[sources[0]] if sources else "global"
        dtype = stmt.var.pointer.dtype if stmt.var.pointer is not None else None
        type = "void" if dtype is None or dtype.is_void else self.language.memory(dtype, stmt.span)
        pointer = self.language.pointer(type, scope)
        text = ex.text(self, stmt.value, ex.UNARY)
        self._scopes[stmt.var] = scope
        self.line(f"{pointer} {self.define(stmt.var)} = ({pointer}){text};")

    def evaluate(self, stmt: tir.Evaluate) -> None:
        if isinstance(stmt.value, (tir.IntImm, tir.FloatImm, tir.StringImm, tir.Var)):
            return
        if printed := ex.text(self, stmt.value):
            self.line(f"{printed};")

    def assertion(self, stmt: tir.AssertStmt) -> None:
        number = self.failure_number(stmt.kind, "".join(stmt.message))
        failed = f"if (!({ex.text(self, stmt.condition)}))"
        self.line(f"{failed} {self.record()}[0] = {number};")

    def failure_number(self, kind: str, message: str) -> int:
        """Return the number of an assertion or index check in its kernel, from 1."""
        return self._kernel.asserts.index((kind, message)) + 1

    def record(self) -> str:
        """Return the pointer to the kernel's error record."""
        return self.name(self._kernel.params[-1])

    def if_then_else(self, stmt: tir.IfThenElse) -> None:
        if stmt.condition.dtype.lanes > 1:
            self._store_by_lane(stmt)
            return
        with self.block(f"if ({ex.text(self, stmt.condition)})", "}" if not stmt.else_body else "} else {"):
            self.body(stmt.then_body)
        if stmt.else_body:
            self._depth += 1
            self.body(stmt.else_body)
            self._depth -= 1
            self.line("}")

    def _store_by_lane(self, stmt: tir.IfThenElse) -> None:
        """Print stores under a vector condition: each lane is stored under its own condition."""
        count = stmt.condition.dtype.lanes
        loads = self._load_vectors(stmt.condition, always=True)
        conditions = [self._to_variable(self._lanes.of(stmt.condition, k, loads), "on") for k in range(count)]
        for body, branch_taken in ((stmt.then_body, True), (stmt.else_body or (), False)):
            for inner in body:
                if not isinstance(inner, tir.BufferStore) or inner.value.dtype.lanes != count:
                    raise refuse("a vector condition can only guard stores of vectors", stmt.span)
                for lane, condition in enumerate(conditions):
                    with self.block(f"if ({'' if branch_taken else '!'}{self.name(condition)})"):
                        self._lane_store(inner, lane)

    def _lane_store(self, stmt: tir.BufferStore, lane: int) -> None:
        scalars: dict[int, list[tir.Expr]] = {}

        def visit(load: tir.BufferLoad, _: tuple[tir.Expr, ...]) -> None:
            index = load.indices[0]
            starts = [self._lanes.of(index, k, scalars) for k in range(index.dtype.lanes)]
            scalars[id(load)] = [tir.BufferLoad(load.dtype.element, load.buffer, (s,), span=load.span) for s in starts]

        vector_loads(stmt.indices[0], visit)
        vector_loads(stmt.value, visit)
        start, value = (self._lanes.of(n, lane, scalars) for n in (stmt.indices[0], stmt.value))
        self.line(f"{self.element(stmt.buffer, start)} = {self.stored(value)};")

    def while_loop(self, stmt: tir.While) -> None:
        with self.block(f"while ({ex.text(self, stmt.condition)})"):
            self.body(stmt.body)

    def for_loop(self, stmt: tir.For) -> None:
        var, step = stmt.var, 1 if stmt.step is None else tir.const_int(stmt.step)
        if tir.const_int(stmt.extent) == 1 and not self._jumps(stmt):
            self.body(substitute(stmt.body, {var: stmt.min}))
            return
        if step is None or step <= 0:
            raise refuse("a loop whose step is not a positive constant has no source form", stmt.span)
        type = self.language.register(var.dtype, stmt.span)
        extent = self._loop_entry_value(stmt.extent)
        start = self._loop_entry_value(stmt.min)
        self._analyzer.bind(var, tir.Range(start, extent))
        end = self._analyzer.simplify(c.add(start, extent))
        first, last = ex.text(self, start), ex.text(self, end, ex.SUM)
        name = self.define(var)
        if stmt.kind is tir.ForKind.UNROLLED:
            self.line("#pragma unroll")
        advance = f"++{name}" if step == 1 else f"{name} += {step}"
        with self.block(f"for ({type} {name} = {first}; {name} < {last}; {advance})"):
            self.body(stmt.body)

    @staticmethod
    def _jumps(loop: tir.For) -> bool:
        """Return True if the loop contains `break` or `continue`."""
        return holds(loop.body, tir.Break, tir.Continue)

    def _loop_entry_value(self, node: tir.Expr) -> tir.Expr:
        """Store a bound in a variable before the loop: C evaluates the condition before every iteration."""
        if holds(node, tir.BufferLoad, tir.Call):
            return self._to_variable(node, "bound")
        return node

    def jump(self, stmt: tir.Stmt) -> None:
        self.line("break;" if isinstance(stmt, tir.Break) else "continue;")

    def attr(self, stmt: tir.AttrStmt) -> None:
        self.body(stmt.body)


_STATEMENTS: dict[type, Callable[[KernelWriter, Any], None]] = {
    tir.Bind: KernelWriter.bind, tir.BufferStore: KernelWriter.store, tir.AllocBuffer: KernelWriter.alloc,
    tir.DeclBuffer: KernelWriter.decl, tir.Evaluate: KernelWriter.evaluate, tir.AssertStmt: KernelWriter.assertion,
    tir.IfThenElse: KernelWriter.if_then_else, tir.While: KernelWriter.while_loop, tir.For: KernelWriter.for_loop,
    tir.Break: KernelWriter.jump, tir.Continue: KernelWriter.jump, tir.AttrStmt: KernelWriter.attr,
}  # fmt: skip
