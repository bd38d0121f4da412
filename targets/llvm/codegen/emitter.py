"""The emitter of one function: its state, and the dispatch over expressions and statements.

The code for each kind of node is in `arith` (operators), `memory` (loads and stores), `casts`, `calls` (intrinsics and
functions) and `statements`; the tables at the end of this file join them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from mlcc.arith.linear import is_index
from mlcc.errors import CompileError, Label
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.intrinsics import Cost, called
from mlcc.ir.node import children
from mlcc.passes.lowering.unroll import LLVM_UNROLL
from mlcc.targets.llvm.codegen import arith, bit_fields, calls, casts, memory, outline, sanitized, statements
from mlcc.targets.llvm.codegen.context import EmitOptions, ModuleContext
from mlcc.targets.llvm.codegen.error_numbers import FAULT, add_fault
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.llvm.codegen.refuse import unsupported
from mlcc.targets.llvm.codegen.storage import Memory


class Emitter:
    """Emit expressions and statements at the end of `fn`.

    `values` maps variables to their values in this function; `wide` has the 64-bit form of a narrower integer variable
    if it was computed without overflow, for addresses. Every exit of the function goes through `leave`. `storage`
    allocates buffers, partly in `workspace`; `callee_workspace` is scratch memory for called kernels, and `result` is
    the dtype and address of a returned value.

    Targets other than CPUs have a subclass: `CALLS` are the intrinsics by name, `TARGET` is its name in messages, and
    `MASKED_MEMORY` says whether LLVM's masked loads and stores are used; otherwise each lane is tested.
    """

    TARGET: ClassVar[str] = "llvm"
    MASKED_MEMORY: ClassVar[bool] = True
    CALLS: ClassVar[Mapping[str, Callable[[Any, tir.Call], Value]]] = {**calls.TABLE, **sanitized.TABLE}

    def __init__(self, fn: FunctionText, ctx: ModuleContext, storage: Memory | None = None) -> None:
        self.fn = fn
        self.ctx = ctx
        self.storage = storage
        self.values: dict[tir.Var, Value] = {}
        self.wide: dict[tir.Var, Value] = {}
        self.distinct: set[tir.Var] = set()  # pointers without aliases in the function
        self.loops: list[tuple[str, str]] = []  # (label of `continue`, label of `break`)
        self.around: list[tir.For] = []  # enclosing loops, for `loop_invariants`
        self.changed: dict[tir.For, frozenset[tir.Var | tir.Buffer]] = {}
        self.fast = _fast_math_flags(ctx.options)
        self.workspace = NULL
        self.callee_workspace = NULL
        self.private: set[tir.Var] = set()  # pointers to this function's stack
        self.mask: Value | None = None  # active lanes, inside vector conditions
        self.is_part = False  # True for a function outlined from another one
        self.parts = 0  # number of functions outlined from this one
        self.result: tuple[DType, Value] | None = None
        self._speculatable: dict[int, tuple[tir.Expr, bool]] = {}
        self._failures: dict[int, str] = {}
        self._reports: list[tuple[str, Callable[[], None]]] = []  # (label, emitter) of exits at the end of the function

    # ------------------------------------------------------------ expressions

    def expr(self, node: tir.Expr) -> Value:
        """Emit an expression; return its value in its register type."""
        emit = _EXPRESSIONS.get(type(node))
        if emit is None:
            raise unsupported(f"`{type(node).__name__}` is not allowed in loop code", node.span)
        return emit(self, node)

    def index(self, node: tir.Expr) -> Value:
        """Emit a scalar integer as i64. Sums and products are computed in 64 bits, so that they do not wrap at 32."""
        fn = self.fn
        if isinstance(node, tir.IntImm):
            return integer("i64", node.value)
        if isinstance(node, tir.Var):
            wide = self.wide.get(node)
            if wide is not None:
                return wide
        elif isinstance(node, (tir.Add, tir.Sub, tir.Mul)):
            if is_index(node.dtype):
                return fn.binary(_INDEX_OPS[type(node)], self.index(node.lhs), self.index(node.rhs))
        elif isinstance(node, tir.Cast) and node.dtype is INT64 and is_index(node.value.dtype):
            return self.index(node.value)
        value = self.expr(node)
        if value.type == "i64":
            return value
        return fn.convert("sext" if node.dtype.kind == "int" else "zext", value, "i64")

    def index_parts(self, node: tir.Expr) -> tuple[Value, ...]:
        """Emit an index as terms of a sum, which are added to the address in order."""
        return (self.index(node),)

    def alignment(self, buffer: tir.Buffer, index: tir.Expr) -> int:
        """Return the known alignment in bytes of an access to consecutive elements."""
        return buffer.dtype.bytes

    def intrinsic(self, name: str, *args: Value) -> Value:
        """Call an LLVM intrinsic, named without types, whose arguments and result have the same type."""
        type = args[0].type
        declared = self.ctx.module.declare(f"{name}.{casts.mangled(type)}", type, [type] * len(args))
        return self.fn.call(type, declared, args)

    def speculatable(self, node: tir.Expr) -> bool:
        """Return True if an expression may be speculated: its evaluation cannot fault and is cheap."""
        cached = self._speculatable.get(id(node))
        if cached is not None:
            return cached[1]
        if isinstance(node, tir.BufferLoad) or (
            isinstance(node, tir.Call) and called(node).cost is not Cost.INSTRUCTION
        ):
            answer = False
        else:
            answer = all(self.speculatable(child) for child in children(node) if isinstance(child, tir.Expr))
        self._speculatable[id(node)] = (node, answer)
        return answer

    # ------------------------------------------------------------ statements and ways out

    def body(self, statements: tuple[tir.Stmt, ...]) -> None:
        """Emit statements; long bodies are outlined into functions."""
        if self.mask is None and outline.needs_split(statements):
            outline.emit_split(self, statements)
        else:
            self.plain_body(statements)

    def plain_body(self, statements: tuple[tir.Stmt, ...]) -> None:
        """Emit statements; dead code after a return or a jump is skipped."""
        outer = self.fn.place
        for stmt in statements:
            if not self.fn.is_open:
                break
            self.fn.locate(stmt.span)
            emit = _STATEMENTS.get(type(stmt))
            try:
                if emit is None:
                    raise unsupported(f"`{type(stmt).__name__}` is not lowered to loop code", stmt.span)
                emit(self, stmt)
            except CompileError as exc:
                self._record_problem(stmt, exc)
        self.fn.locate(outer)

    def _record_problem(self, stmt: tir.Stmt, problem: CompileError) -> None:
        """Record the diagnostics of a statement and continue, to find further ones; the kernel is rejected at the
        end."""
        for diagnostic in problem.diagnostics:
            if diagnostic.primary.span is None:
                diagnostic = replace(diagnostic, primary=Label(stmt.span, diagnostic.primary.text))
            self.ctx.problems.append(diagnostic)
        if isinstance(stmt, tir.Bind):
            self.bind(stmt.var, Value("i8", "poison"))  # avoids follow-up errors at its uses; never compiled
        elif isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)):
            self.bind(stmt.buffer.data, NULL)

    def bind(self, var: tir.Var, value: Value) -> None:
        self.values[var] = value
        self.wide.pop(var, None)

    def module_function(self, name: str, args: tuple[tir.Expr, ...], node: tir.Call) -> Value:
        """Emit a call of another PrimFunc."""
        return calls.module_function(self, name, args, node)

    def loop_hint(self, stmt: tir.For) -> str:
        """Return the loop metadata node for LLVM; empty for none."""
        if tir.const_int(stmt.annotations.get(LLVM_UNROLL, 1)) != 0:
            return ""
        module = self.ctx.module
        return module.metadata(f"!self, {module.metadata(_NO_UNROLLING)}", distinct=True)

    def allocate(self, buffer: tir.Buffer) -> Value:
        """Allocate a buffer; return a pointer to its memory."""
        if self.storage is None:
            raise unsupported(f"`{buffer.name}` cannot be allocated here", buffer.span)
        return self.storage.allocate(self, buffer)

    def leave(self, code: Value) -> None:
        """Emit the return of a code, after freeing the heap memory of the function."""
        if self.storage is None or self.is_part:
            self.fn.ret(code)
        else:
            self.storage.leave(self, code)

    def fail_unless(self, condition: Value, code: int) -> None:
        """Return an error code from the function if `condition` is false."""
        fn = self.fn
        label = self._failures.get(code)
        if label is None:
            label = self._failures[code] = fn.label("fail")
        passed = fn.label("ok")
        fn.cond_br(condition, passed, label)
        fn.start(passed)

    def report_unless(self, condition: Value, code: int, numbers: Callable[[], tuple[Value, Value]]) -> None:
        """Return an error code from the function if `condition` is false.

        `numbers` emits, in the exit block, the two i64 values that the error message shows.
        """
        fn = self.fn
        label, passed = fn.label("report"), fn.label("ok")
        fn.cond_br(condition, passed, label)
        self._reports.append((label, lambda: self.leave(self._fault_code(code, *numbers()))))
        fn.start(passed)

    def check_index(self, index: Value, place: Value, inside: Value, extent: Value, code: int) -> Value:
        """Return the element `place` of a checked index; all values are i64 or vectors of it.

        Return `code` from the function if the index of an active lane is not `inside` the extent.
        """
        fn = self.fn
        if not inside.type.startswith("<"):
            self.report_unless(inside, code, lambda: (index, extent))
            return place
        if self.mask is not None and self.mask.type == inside.type:
            off = fn.binary("xor", self.mask, Value(inside.type, "splat (i1 true)"))
            inside = fn.binary("or", inside, off)
        lanes = int(inside.type[1:].split(" ")[0])
        reduce = self.ctx.module.declare(f"llvm.vector.reduce.and.v{lanes}i1", "i1", [inside.type])

        def numbers() -> tuple[Value, Value]:
            number = Value(f"i{lanes}", "")
            bad = fn.binary("xor", inside, Value(inside.type, "splat (i1 true)"))
            bits = fn.convert("bitcast", bad, number.type)
            count = self.ctx.module.declare(f"llvm.cttz.{number.type}", number.type, [number.type, "i1"])
            first = fn.call(number.type, count, [bits, Value("i1", "true")])
            lane = fn.convert("zext" if lanes < 64 else "trunc", first, "i64")
            return fn.extract(index, lane), fn.extract(extent, lane)

        self.report_unless(fn.call("i1", reduce, [inside]), code, numbers)
        return place

    def _fault_code(self, code: int, first: Value, second: Value) -> Value:
        add_fault(self.ctx.module)
        return self.fn.call("i32", f"@{FAULT}", [integer("i32", code), first, second])

    def fail_if_error(self, code: Value) -> None:
        """Return a callee's error code from the function unless it is 0."""
        fn = self.fn
        failed, passed = fn.label("failed"), fn.label("ok")
        fn.cond_br(fn.icmp("eq", code, integer("i32", 0)), passed, failed)
        fn.start(failed)
        self.leave(code)
        fn.start(passed)

    def finish(self) -> None:
        """End the function: return 0, then emit the failure exits."""
        if self.fn.is_open:
            self.leave(integer("i32", 0))
        for code, label in self._failures.items():
            self.fn.start(label)
            self.leave(integer("i32", code))
        for label, leave in self._reports:
            self.fn.start(label)
            leave()


def _fast_math_flags(options: EmitOptions) -> str:
    """Return the fast-math flags of floating-point instructions. NaN and infinities are always respected: padding uses
    them."""
    if options.fast_math:
        return " reassoc nsz arcp contract afn"
    return " contract" if options.contract else ""


def _cast(e: Emitter, node: tir.Cast) -> Value:
    return bit_fields.to_float(e, node) or casts.cast_node(e, node)


_NO_UNROLLING = '!"llvm.loop.unroll.disable"'
_INDEX_OPS: dict[type, str] = {tir.Add: "add nsw", tir.Sub: "sub nsw", tir.Mul: "mul nsw"}


_EXPRESSIONS: dict[type, Callable[[Emitter, Any], Value]] = {
    tir.Var: arith.variable, tir.IntImm: arith.int_imm, tir.FloatImm: arith.float_imm, tir.StringImm: arith.string_imm,
    tir.Add: arith.add, tir.Sub: arith.sub, tir.Mul: arith.mul,
    tir.Div: arith.div, tir.Mod: arith.mod, tir.FloorDiv: arith.floordiv, tir.FloorMod: arith.floormod,
    tir.Min: arith.minimum, tir.Max: arith.maximum,
    tir.EQ: arith.compare, tir.NE: arith.compare, tir.LT: arith.compare,
    tir.LE: arith.compare, tir.GT: arith.compare, tir.GE: arith.compare,
    tir.And: arith.logical, tir.Or: arith.logical, tir.Not: arith.logical_not,
    tir.Select: arith.select, tir.Let: arith.let,
    tir.Ramp: arith.ramp, tir.Broadcast: arith.broadcast, tir.Shuffle: arith.shuffle,
    tir.Cast: _cast, tir.BufferLoad: memory.load, tir.Call: calls.call,
}  # fmt: skip

_STATEMENTS: dict[type, Callable[[Emitter, Any], None]] = {
    tir.Bind: statements.bind, tir.BufferStore: memory.store, tir.AllocBuffer: statements.alloc_buffer,
    tir.DeclBuffer: statements.decl_buffer, tir.Evaluate: statements.evaluate, tir.AssertStmt: statements.assertion,
    tir.IfThenElse: statements.if_then_else, tir.While: statements.while_loop, tir.For: statements.for_loop,
    tir.Break: statements.jump, tir.Continue: statements.jump, tir.AttrStmt: statements.attr,
}  # fmt: skip
