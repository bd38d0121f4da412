"""Print a PrimFunc of loop code as a C function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.errors import CompileError, Diagnostic
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.intrinsics import called
from mlcc.ir.node import find, holds
from mlcc.ir.visit import substitute
from mlcc.passes.lowering.parallel import select_parallel_loops
from mlcc.targets.c import expressions as ex
from mlcc.targets.c import fallible, vectors
from mlcc.targets.c.context import CKernel, FileContext
from mlcc.targets.c.dtypes import declared, integer_range, memory_type, register_type, storage, suffix
from mlcc.targets.c.host_helpers import ALLOCATE
from mlcc.targets.c.lines import wrapped
from mlcc.targets.c.writer import Writer
from mlcc.targets.plan.kernel_memory import KernelMemory, byte_size
from mlcc.targets.plan.signature import KernelSignature, signature
from mlcc.targets.source.dialect import refuse
from mlcc.targets.source.expressions import ORDER, PRODUCT, UNARY

_INITIALIZED = 64  # bytes of the largest temporary that is set to 0 where it is declared
_EXTENT = (0, (1 << 62) - 1)  # of a symbol that is an extent


def print_kernel(name: str, func: tir.PrimFunc, ctx: FileContext) -> tuple[CKernel, str]:
    """Return the kernel of a PrimFunc and its text. Raises CompileError for what has no form in C."""
    func = select_parallel_loops(func, ctx.functions, False)
    return KernelWriter(name, func, ctx).kernel_and_text()


class KernelWriter(Writer):
    """The printer of one kernel.

    `ranges` are the intervals of variables in scope; `memory` is the plan of the temporaries.
    """

    def __init__(self, name: str, func: tir.PrimFunc, ctx: FileContext) -> None:
        super().__init__(ctx)
        self.func = func
        self.signature: KernelSignature = signature(func)
        self.fails = fallible.may_fail(func, ctx)
        self.vectors = vectors.VectorLanes()
        known = {
            *self.signature.symbols,
            *(p.var for p in self.signature.params if p.buffer is None and p.var.dtype.is_int),
        }
        self.memory = KernelMemory(func.body, known, ctx.stack_bytes, fallible.callee_workspace(func, ctx))
        self.fails |= bool(self.memory.heap_buffers)
        self.c_name = ctx.global_name(name)
        self._name = name
        self._analyzer = Analyzer()
        self._declared: dict[tir.Var, str] = {}  # pointer -> the type of the elements that it is declared with
        self._memory: dict[tir.Var, str] = {}  # pointer -> the type of the elements of the memory behind it
        self._problems: list[Diagnostic] = []
        self._written = fallible.written_pointers(func.body)
        self._arrays: set[str] = set()  # names of temporaries
        self._noalias = bool(func.attrs.get("tir.noalias"))

    # ------------------------------------------------------------ the function

    def kernel_and_text(self) -> tuple[CKernel, str]:
        kernel = CKernel(self.c_name, self.signature, self.memory.workspace, self.fails)
        params = self._params(kernel)
        self.body(self.func.body)
        if self._problems:
            unique = {(p.code, p.message, p.primary.span): p for p in self._problems}
            raise CompileError(list(unique.values()))
        if self.fails:
            self.lines.add("return 0;")
        lines, used = self.lines.finish()
        head = [f"    (void){name};" for _, name in params if name not in used]
        result = "int32_t" if self.fails else "void"
        body = self._function(result, self.c_name, params, [*head, *lines])
        text = [f"/* {self._title()} */", *body]
        if self.memory.heap_buffers:
            text = self._with_heap(params, [*head, *lines])
        return kernel, "\n".join(text)

    @staticmethod
    def _function(result: str, name: str, params: list[tuple[str, str]], body: list[str]) -> list[str]:
        listed = [f"{type}{'' if type[-1] in '* ' else ' '}{name}" for type, name in params]
        return [*wrapped(f"static {result} {name}(", listed or ["void"], ") {"), *body, "}"]

    def _with_heap(self, params: list[tuple[str, str]], body: list[str]) -> list[str]:
        """Return a function that calls the body, and frees its heap memory whatever it returns."""
        count = len(self.memory.heap_buffers)
        inner = self.ctx.global_name(f"{self.c_name}_body")
        names = ", ".join([*(name for _, name in params), "heap"])
        outer = [f"    void *heap[{count}] = {{NULL}};", f"    const int32_t code = {inner}({names});"]
        outer += [f"    release(heap[{n}]);" for n in range(count)]
        outer += ["    return code;"]
        return [
            *self._function("int32_t", inner, [*params, ("void **", "heap")], body), "", f"/* {self._title()} */",
            *self._function("int32_t", self.c_name, params, outer),
        ]  # fmt: skip

    def _title(self) -> str:
        """Return a line that says which function of the module this is."""
        params = []
        for param in self.signature.params:
            if param.buffer is None:
                params.append(f"{param.var.name}: {param.var.dtype}")
            else:
                known = ((dim, tir.const_int(dim)) for dim in param.buffer.shape)
                dims = ", ".join(str(dim if size is None else size) for dim, size in known)
                params.append(f"{param.buffer.name}: {param.buffer.dtype}({dims})")
        return "\n   ".join(wrapped(f"{self._name}(", params, ")")).replace("*/", "* /")

    def _params(self, kernel: CKernel) -> list[tuple[str, str]]:
        """Define the parameters; return their C types and names."""
        params: list[tuple[str, str]] = []
        restrict = "restrict " if self._noalias else ""
        for param in self.signature.params:
            buffer, var = param.buffer, param.var
            if buffer is not None:
                name = self.define(buffer.data, buffer.name)
                self.names[var] = name
                const = "" if {buffer.data, var} & self._written else "const "
                type = memory_type(buffer.dtype, buffer.span)
                self._declare(var, type)
                self._declare(buffer.data, type)
                params.append((f"{const}{type} *{restrict}", name))
            elif var.dtype.is_handle:
                params.append(("void *", self.define(var)))
            else:
                params.append((register_type(var.dtype, var.span), self.define(var)))
        for symbol in self.signature.symbols:
            wide = self.define(symbol)
            params.append(("int64_t", wide))
            if symbol.dtype is not INT64:
                type = register_type(symbol.dtype)
                narrow = self.define(symbol)
                self.lines.add(f"const {type} {narrow} = ({type}){wide};", narrow)
            self.ranges.bind(symbol, (0, min(_EXTENT[1], integer_range(symbol.dtype)[1])))
        for param in self.signature.params:
            if param.buffer is not None:
                for stride in (*param.buffer.strides, param.buffer.elem_offset):
                    if isinstance(stride, tir.Var):
                        self.ranges.variables.pop(stride, None)  # it may be negative
        if self.signature.result is not None:
            params.append((f"{memory_type(self.signature.result)} *", "result"))
        if kernel.takes_workspace:
            params.append(("unsigned char *", "workspace"))
        return params

    # ------------------------------------------------------------ memory

    def _declare(self, data: tir.Var, type: str, memory: str | None = None) -> None:
        """Note the type of a pointer's elements, and that of the memory if it is a view of it as another type."""
        self._declared[data] = type
        self._memory[data] = memory or type

    def element(self, buffer: tir.Buffer, index: tir.Expr) -> str:
        type, name = memory_type(buffer.dtype), self.name(buffer.data)
        if self._declared.get(buffer.data, type) != type:
            const = "" if buffer.data in self._written else "const "
            name = f"(({const}{type} *)({const}void *){name})"
        return f"{name}[{ex.index(self, self._analyzer.simplify(index))}]"

    def _is_punned(self, buffer: tir.Buffer) -> bool:
        """Return True for a view of memory as another type, which only memcpy may access in C, bytes aside."""
        type = memory_type(buffer.dtype)
        return self._memory.get(buffer.data, type) != type and buffer.dtype.bytes > 1

    def loaded(self, buffer: tir.Buffer, index: tir.Expr) -> str:
        element = self.element(buffer, index)
        if not self._is_punned(buffer):
            return element
        return f"{self.helpers.use(f'load_{suffix(storage(buffer.dtype))}')}(&{element})"

    # ------------------------------------------------------------ statements

    def body(self, statements: tuple[tir.Stmt, ...]) -> None:
        """Print statements. What has no form in C is noted, and printing goes on to find more of it."""
        outer = self.lines.place
        for stmt in statements:
            if self.ctx.debug_lines and stmt.span is not None:
                line, _ = stmt.span.source.line_col(stmt.span.start)
                self.lines.locate(f"{line} {ex.string_literal(stmt.span.source.name)}")
            emit = _STATEMENTS.get(type(stmt))
            try:
                if emit is None:
                    raise refuse(f"`{type(stmt).__name__}` is not lowered to loop code", stmt.span)
                emit(self, stmt)
            except CompileError as exc:
                self._problems += exc.diagnostics
                if isinstance(stmt, tir.Bind):
                    self.define(stmt.var)
                elif isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)):
                    self.define(stmt.buffer.data)
        if outer is not None:
            self.lines.locate(outer)

    def to_variable(self, node: tir.Expr, hint: str) -> tir.Var:
        """Assign the value of a scalar expression to a new variable."""
        var = tir.Var(hint, node.dtype)
        printed = ex.text(self, node)
        name = self.define(var)
        const = "" if node.dtype.is_handle else "const "
        self.lines.add(f"{const}{declared(register_type(node.dtype, node.span))}{name} = {printed};", name)
        if node.dtype.is_int:
            self.ranges.bind(var, self.ranges.of(node))
        return var

    def bind(self, stmt: tir.Bind) -> None:
        value = stmt.value
        if vectors.has_vectors(value):
            vectors.bind(self, stmt)
            return
        value = fallible.lift(self, value)
        is_same = isinstance(value, tir.Var) and value.dtype is stmt.var.dtype
        self.alias(stmt.var, value if is_same else self.to_variable(value, stmt.var.name))

    def alias(self, var: tir.Var, other: tir.Expr) -> None:
        """Let a variable stand for another one of its dtype."""
        assert isinstance(other, tir.Var)
        self.names[var] = self.names[other]
        if other.dtype.is_int:
            self.ranges.bind(var, self.ranges.of(other))

    def store(self, stmt: tir.BufferStore) -> None:
        if len(stmt.indices) != 1 or stmt.buffer.strides:
            raise refuse(f"`{stmt.buffer.name}` is not flattened", stmt.span)
        if vectors.has_vectors(stmt.value) or vectors.has_vectors(stmt.indices[0]):
            vectors.store(self, stmt)
            return
        self.store_scalar(stmt.buffer, stmt.indices[0], stmt.value)

    def store_scalar(self, buffer: tir.Buffer, index: tir.Expr, value: tir.Expr) -> None:
        value = fallible.lift(self, value)
        if fallible.may_write(index) and holds(value, tir.BufferLoad):
            value = self.to_variable(value, "stored")
        index = fallible.lift(self, index)
        target = self.element(buffer, index)
        name = self.names[buffer.data]
        stores = name if name in self._arrays else None
        match value:
            case tir.Add(lhs=tir.BufferLoad() as load, rhs=rhs) if value.dtype.is_float and value.dtype.bits >= 32:
                if ex.text(self, load) == target:
                    self.lines.add(f"{target} += {ex.text(self, rhs)};", stores)
                    return
        printed = ex.to_memory(self, value)
        if self._is_punned(buffer):
            store = self.helpers.use(f"store_{suffix(storage(buffer.dtype))}")
            self.lines.add(f"{store}(&{target}, {printed});", stores)
            return
        self.lines.add(f"{target} = {printed};", stores)

    def alloc(self, stmt: tir.AllocBuffer) -> None:
        buffer = stmt.buffer
        type = memory_type(buffer.dtype, buffer.span)
        self._declare(buffer.data, type)
        start = declared(type)
        if self.memory.on_stack(buffer):
            size = byte_size(buffer)
            assert isinstance(size, int)
            name = self.define(buffer.data, buffer.name)
            self._arrays.add(name)
            zero = " = {0}" if size <= _INITIALIZED else ""  # compilers do not see that it is written before it is read
            self.lines.add(f"{start}{name}[{max(size // buffer.dtype.bytes, 1)}]{zero};", name)
            return
        if self.memory.is_fixed(buffer) or buffer.data not in self.memory.heap_buffers:
            offset = self.memory.workspace_offset(buffer)
            assert offset is not None
            with self.ranges.without_overflow():
                place = f"({start}*)(void *)(workspace + {ex.index(self, offset, PRODUCT)})"
        else:
            place = self._from_heap(buffer, type)
        name = self.define(buffer.data, buffer.name)
        self._arrays.add(name)
        self.lines.add(f"{start}*{name} = {place};", name)

    def _from_heap(self, buffer: tir.Buffer, type: str) -> str:
        """Allocate heap memory for a buffer; the memory of an earlier iteration of the loop is freed first."""
        place = f"heap[{self.memory.heap_buffers.index(buffer.data)}]"
        size = byte_size(buffer)
        assert not isinstance(size, int)
        code = self.ctx.error_code("MemoryError", f"out of memory for the temporary buffer {buffer.name}")
        printed = ex.index(self, fallible.lift(self, size))
        self.helpers.add("allocate", ALLOCATE)
        self.lines.add(f"release({place});")
        self.lines.add(f"{place} = allocate({printed});")
        self.lines.add(f"if ({place} == NULL) return {code};")
        return f"({declared(type)}*){place}"

    def decl(self, stmt: tir.DeclBuffer) -> None:
        data = stmt.buffer.data
        if stmt.data is data:
            return
        const = "" if data in self._written or not isinstance(stmt.data, tir.Var) else "const "
        own = memory_type(stmt.buffer.dtype, stmt.span)
        bases = [self._memory[v] for v in find(stmt.data, tir.Var) if v in self._memory]
        self._declare(data, own, bases[0] if bases else None)
        type = const + declared(own)
        source = ex.text(self, fallible.lift(self, stmt.data), UNARY)
        name = self.define(data, stmt.buffer.name)
        self.lines.add(f"{type}*{name} = ({type}*)({const}void *){source};", name)

    def evaluate(self, stmt: tir.Evaluate) -> None:
        value = stmt.value
        if isinstance(value, (tir.IntImm, tir.FloatImm, tir.StringImm, tir.Var)):
            return
        if isinstance(value, tir.Call) and called(value).leaves:
            self._return(value)
            return
        if vectors.has_vectors(value):
            for lane in vectors.lanes(self, value):
                self._discard(lane)
            return
        self._discard(value)

    def _discard(self, value: tir.Expr) -> None:
        lifted = fallible.lift(self, value)
        if lifted is value and not holds(value, tir.Call):
            return
        if isinstance(lifted, tir.Call) and fallible.has_effect(lifted):
            printed = ex.text(self, lifted)
            self.lines.add(f"{printed};" if lifted.dtype.is_void else f"(void){printed};")

    def _return(self, node: tir.Call) -> None:
        if self.signature.result is not None and node.args:
            value = fallible.lift(self, tir.Cast(self.signature.result, node.args[0]))
            self.lines.add(f"*result = {ex.to_memory(self, value)};")
        self.lines.add("return 0;" if self.fails else "return;")

    def assertion(self, stmt: tir.AssertStmt) -> None:
        known = tir.const_int(stmt.condition)
        if known:
            return
        code = self.ctx.error_code(stmt.kind, "".join(stmt.message))
        if known == 0:
            self.lines.add(f"return {code};")
            return
        condition = ex.text(self, fallible.lift(self, stmt.condition), UNARY)
        self.lines.add(f"if (!{condition}) return {code};")

    def if_then_else(self, stmt: tir.IfThenElse) -> None:
        known = tir.const_int(stmt.condition)
        if known is not None:
            self.body(stmt.then_body if known else stmt.else_body or ())
            return
        if stmt.condition.dtype.lanes > 1:
            vectors.if_then_else(self, stmt)
            return
        condition = self._analyzer.simplify(self._scalar(stmt.condition))
        known = tir.const_int(condition)
        if known is not None:
            self.body(stmt.then_body if known else stmt.else_body or ())
            return
        with self.lines.block(f"if ({ex.text(self, condition)})", "} else {" if stmt.else_body else "}"):
            self.body(stmt.then_body)
        if stmt.else_body:
            with self.lines.continued():
                self.body(stmt.else_body)

    def _scalar(self, node: tir.Expr) -> tir.Expr:
        """Return a scalar without vectors in it, and with what may fail done before."""
        return fallible.lift(self, vectors.lane(self, node, 0) if vectors.has_vectors(node) else node)

    def while_loop(self, stmt: tir.While) -> None:
        if not fallible.is_fallible(stmt.condition) and not vectors.has_vectors(stmt.condition):
            with self.lines.block(f"while ({ex.text(self, stmt.condition)})"):
                self.body(stmt.body)
            return
        with self.lines.block("for (;;)"):
            condition = ex.text(self, self._scalar(stmt.condition), UNARY)
            self.lines.add(f"if (!{condition}) break;")
            self.body(stmt.body)

    # ------------------------------------------------------------ loops

    def for_loop(self, stmt: tir.For) -> None:
        var, step = stmt.var, 1 if stmt.step is None else tir.const_int(stmt.step)
        if not var.dtype.is_int or var.dtype.lanes > 1:
            raise refuse(f"a loop over {var.dtype} is not supported", stmt.span)
        jumps = holds(stmt.body, tir.Break, tir.Continue)
        if tir.const_int(stmt.extent) == 1 and step == 1 and not jumps:
            self.body(substitute(stmt.body, {var: stmt.min}))
            return
        start, extent = self._bound(stmt.min, "start"), self._bound(stmt.extent, "count")
        if step is None or step <= 0:
            self._counted_loop(stmt, start, extent)
            return
        type = register_type(var.dtype, stmt.span)
        (low, high), (_, most) = self.ranges.of(start), self.ranges.of(extent)
        limit = integer_range(var.dtype)[1]
        if high + most + step - 1 > limit and (step > 1 or tir.const_int(start) != 0):
            self._counted_loop(stmt, start, extent)
            return
        self.ranges.bind(var, (low, max(low, high + most - 1)))
        self._analyzer.bind(var, tir.Range(start, extent))
        if stmt.kind is tir.ForKind.UNROLLED:
            self.lines.add("MLCC_UNROLL")
        elif stmt.kind is tir.ForKind.VECTORIZED:
            self.lines.add("MLCC_VECTORIZE")
        first, end = ex.text(self, start), ex.text(self, c.add(start, extent), ORDER + 1)
        name = self.define(var)
        advance = f"++{name}" if step == 1 else f"{name} += {step}"
        with self.lines.block(f"for ({type} {name} = {first}; {name} < {end}; {advance})"):
            self.body(stmt.body)

    def _bound(self, node: tir.Expr, hint: str) -> tir.Expr:
        """Compute a bound before the loop where C would compute it in every iteration."""
        node = self._scalar(node)
        return self.to_variable(node, hint) if holds(node, tir.BufferLoad, tir.Call, tir.FloorDiv) else node

    def _counted_loop(self, stmt: tir.For, start: tir.Expr, extent: tir.Expr) -> None:
        """Print a loop over the number of its iterations: its variable may go down, or up to the end of its type."""
        var, dtype = stmt.var, stmt.var.dtype
        step = self._scalar(c.const(1, dtype) if stmt.step is None else stmt.step)
        wide = [ex.text(self, c.cast(INT64, part)) for part in (extent, step)]
        counter, trips = self.fresh("k"), self.fresh("trips")
        self.lines.add(f"const int64_t {trips} = {self.helpers.use('trip_count')}({', '.join(wide)});")
        index = tir.Var(counter, INT64)
        self.names[index] = counter
        with self.lines.block(f"for (int64_t {counter} = 0; {counter} < {trips}; ++{counter})"):
            type = register_type(dtype)
            value = ex.text(self, tir.Add(dtype, start, tir.Mul(dtype, tir.Cast(dtype, index), step)))
            name = self.define(var)
            self.lines.add(f"const {type} {name} = {value};", name)
            self.body(stmt.body)

    def jump(self, stmt: tir.Stmt) -> None:
        self.lines.add("break;" if isinstance(stmt, tir.Break) else "continue;")

    def attr(self, stmt: tir.AttrStmt) -> None:
        self.body(stmt.body)


_STATEMENTS: dict[type, Callable[[KernelWriter, Any], None]] = {
    tir.Bind: KernelWriter.bind, tir.BufferStore: KernelWriter.store, tir.AllocBuffer: KernelWriter.alloc,
    tir.DeclBuffer: KernelWriter.decl, tir.Evaluate: KernelWriter.evaluate, tir.AssertStmt: KernelWriter.assertion,
    tir.IfThenElse: KernelWriter.if_then_else, tir.While: KernelWriter.while_loop, tir.For: KernelWriter.for_loop,
    tir.Break: KernelWriter.jump, tir.Continue: KernelWriter.jump, tir.AttrStmt: KernelWriter.attr,
}  # fmt: skip
