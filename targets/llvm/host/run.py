"""Emit `PREFIX_f_run`: the steps of a plan as straight-line code, without the checks of the query function.

    i32 run(ptr args, ptr symbols, ptr workspace)

Values that only depend on symbols known at entry are computed at the start; those that depend on data-dependent symbols
where they are used.
"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT64
from mlcc.ir.node import walk
from mlcc.runtime.abi import OFFSET
from mlcc.targets.llvm.codegen import casts, execution_log
from mlcc.targets.llvm.codegen.context import CONSTANTS, LoggedEvent, Shared, constants_declaration
from mlcc.targets.llvm.codegen.dim_code import DimCode
from mlcc.targets.llvm.codegen.emitter import Emitter
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, integer
from mlcc.targets.llvm.codegen.ir_text import Value as Operand
from mlcc.targets.llvm.codegen.signature import param_type
from mlcc.targets.llvm.codegen.types import memory_type
from mlcc.targets.llvm.host.packed_calls import PackedCalls
from mlcc.targets.llvm.host.profile_counters import count_call, start_timing
from mlcc.targets.plan.prim import offset_bytes
from mlcc.targets.plan.steps import (
    ZERO,
    Branch,
    CallKernel,
    CallPacked,
    Check,
    Copy,
    HostFunction,
    Loop,
    Memory,
    MemoryKind,
    NextIteration,
    ReadSymbol,
    Scalar,
    Shape,
    Step,
    Tensor,
    Value,
    tensors_of,
    walk_steps,
)

_MAX_OPTIMISED_STEPS = 300  # steps


class Run:
    """The emitter of the run function of one host function."""

    def __init__(self, func: HostFunction, shared: Shared, symbol: str) -> None:
        self.func = func
        self.shared = shared
        params = [("ptr", "args"), ("ptr", "symbols"), ("ptr", "workspace")]
        ctx = shared.ctx
        # a long list of calls gains nothing from optimisation, which takes LLVM superlinear time
        count = sum(1 for _ in walk_steps(func.steps))
        attrs = f"noinline {'optnone ' if count > _MAX_OPTIMISED_STEPS else ''}{ctx.function_attrs}"
        self.fn: FunctionText = ctx.module.function("i32", symbol, params, linkage="", attrs=attrs)
        self.args, self.symbols, self.workspace = self.fn.params
        self.emitter = Emitter(self.fn, ctx)
        self.code = DimCode(self.fn, func.dims, {})
        self._pointers: dict[Memory, Operand] = {}
        self._failures: dict[int, str] = {}
        self._heads: list[str] = []  # of enclosing loops

    def emit(self) -> None:
        self._read_symbols()
        for place, expr in self.func.places:
            self.code.symbols[place] = self.code.value(expr)
        for step in walk_steps(self.func.steps):
            self._hoist_operands(step)
        for _, expr in self.func.values:
            self._evaluate_early(expr)
        self.packed = PackedCalls(self.emitter, self.func.steps, self._address, self._scalar)
        self._cells = {s: self.fn.alloca("i64", 1, 8, s.name) for s in self._data_dependent_symbols()}
        for cell in self._cells.values():
            self.fn.store(integer("i64", 0), cell, 8)
        self._steps(self.func.steps)
        self._values()
        self._extents()
        self.fn.ret(integer("i32", 0))
        del self.packed  # breaks a reference cycle that would keep the plan alive

    # ------------------------------------------------------------ function entry

    def _read_symbols(self) -> None:
        fn = self.fn
        for index, symbol in enumerate(self.func.symbols):
            value = fn.load("i64", fn.gep("i64", self.symbols, integer("i64", index)), 8)
            self.code.symbols[symbol] = value
            self.emitter.bind(symbol, value)
        for index, leaf in enumerate(self.func.inputs()):
            if leaf.kind == "scalar" and leaf.dtype is not None and leaf.dtype.is_float:
                assert isinstance(leaf.value, tir.Var)
                cell = fn.load("double", fn.gep("i64", self.args, integer("i64", index)), 8)
                self.emitter.bind(leaf.value, casts.cast(self.emitter, cell, FLOAT64, leaf.dtype))

    def _hoist_operands(self, step: Step) -> None:
        """Hoist the operands of a step that are known at entry above all steps."""
        for tensor in tensors_of(step):
            self._base_address(tensor.memory.root())
            self._evaluate_early(tensor.offset)
            for dim in tensor.dims:
                self._evaluate_early(dim)
            self._evaluate_early(tensor.size)
        match step:
            case CallKernel(args=args, symbols=symbols, workspace=workspace):
                for expr in symbols:
                    self._evaluate_early(expr)
                if workspace is not None:
                    self._base_address(workspace)
                self._hoist_scalars(args)
            case CallPacked(args=args):
                self._hoist_scalars(args)
            case Check(condition=condition) | Branch(condition=condition):
                self._hoist_scalars((condition,))

    def _hoist_scalars(self, args: tuple[Value, ...]) -> None:
        for arg in args:
            if isinstance(arg, Scalar):
                self._evaluate_early(arg.value)
            elif isinstance(arg, Shape):
                for dim in arg.dims:
                    self._evaluate_early(dim)

    def _evaluate_early(self, expr: tir.Expr) -> None:
        if not expr.dtype.is_float and not self._is_data_dependent(expr):
            self.code.value(expr)

    def _is_data_dependent(self, expr: tir.Expr) -> bool:
        """Return True if a value is only known after some step has run."""
        symbols = self.func.measured
        return bool(symbols) and any(n in symbols for n in walk(expr) if isinstance(n, tir.Var))

    def _data_dependent_symbols(self) -> list[tir.Var]:
        return [s.symbol for s in walk_steps(self.func.steps) if isinstance(s, ReadSymbol)]

    def _base_address(self, memory: Memory) -> None:
        """Compute the start address of a piece of memory."""
        if memory in self._pointers:
            return
        fn = self.fn
        if memory.place is MemoryKind.CONSTANT:
            self.shared.ctx.module.global_(CONSTANTS, constants_declaration(self.shared.has_far_constants))
            offset = self.shared.offsets[memory.index]
            address = fn.gep("i8", Operand("ptr", f"@{CONSTANTS}"), integer("i64", offset))
        elif memory.place is MemoryKind.TEMPORARY:
            assert memory.offset is not None
            address = fn.gep("i8", self.workspace, self.code.value(memory.offset))
        else:
            address = self._argument(memory)
        self._pointers[memory] = address

    def _argument(self, memory: Memory) -> Operand:
        fn = self.fn
        leaves = [*self.func.inputs(), *self.func.outputs()]
        leaf = leaves[memory.index]
        pointer = fn.load("ptr", fn.gep("i64", self.args, integer("i64", memory.index)), 8)
        if leaf.kind == "pointer":
            return pointer
        data = fn.load("ptr", fn.gep("i8", pointer, integer("i64", OFFSET["data"])), 8)
        offset = fn.load("i64", fn.gep("i8", pointer, integer("i64", OFFSET["byte_offset"])), 8)
        address = fn.gep("i8", data, offset, flags="")
        shift = offset_bytes(leaf)
        if tir.const_int(shift) != 0:
            address = fn.gep("i8", address, fn.binary("sub", integer("i64", 0), self.code.value(shift)), flags="")
        return address

    # ------------------------------------------------------------ values

    def _address(self, tensor: Tensor) -> Operand:
        base = self._pointers[tensor.memory.root()]
        if tensor.offset is ZERO or tir.const_int(tensor.offset) == 0:
            return base
        return self.fn.gep("i8", base, self.code.value(tensor.offset), flags="")

    def _scalar(self, expr: tir.Expr) -> Operand:
        """Emit a scalar expression: i64 or i1 for integers and conditions, else its register type."""
        return self.emitter.expr(expr) if expr.dtype.is_float else self.code.value(expr)

    def _condition(self, condition: Scalar | Tensor) -> Operand:
        fn = self.fn
        if isinstance(condition, Tensor):
            return fn.icmp("ne", fn.load("i8", self._address(condition), 1), integer("i8", 0))
        value = self._scalar(condition.value)
        return value if value.type == "i1" else fn.icmp("ne", value, integer(value.type, 0))

    # ------------------------------------------------------------ steps

    def _steps(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case CallKernel():
                    self._kernel(step)
                case CallPacked():
                    self._packed(step)
                case Copy(target=target, source=source):
                    self._copy(target, source)
                case Check():
                    self._check(step)
                case ReadSymbol():
                    self._read_symbol(step)
                case Branch():
                    self._branch(step)
                case Loop():
                    self._loop(step)
                case NextIteration():
                    self.fn.br(self._heads[-1])
                    self.fn.start(self.fn.label("after"))  # unreachable

    def _kernel(self, step: CallKernel) -> None:
        fn = self.fn
        kernel = self.shared.ctx.kernels[step.kernel]
        sig = kernel.signature
        values: list[Operand] = []
        for param, arg in zip(sig.params, step.args, strict=True):
            if isinstance(arg, Tensor):
                values.append(self._address(arg))
                continue
            value = self._scalar(arg.value)
            if param.var.dtype.is_float:
                value = casts.cast(self.emitter, value, arg.value.dtype, param.var.dtype)
                values.append(casts.to_memory(self.emitter, value, param.var.dtype))
            else:
                values.append(self._resized(value, param_type(param)))
        symbols = [self.code.value(s) for s in step.symbols]
        values += symbols
        if sig.result is not None:
            values.append(fn.alloca(memory_type(sig.result)))
        values.append(NULL if step.workspace is None else self._pointers[step.workspace])
        # not inlined: a graph may call a kernel many times, and LLVM is slow on huge functions
        timed = self.shared.ctx.options.profile
        start = start_timing(self.shared, fn) if timed else None
        code = fn.call("i32", f"@{kernel.symbol}", values, attrs="noinline")
        if start is not None:
            count_call(self.shared, fn, self.func.name, step, symbols, start)
        self._propagate_error(code)

    def _packed(self, step: CallPacked) -> None:
        ctx = self.shared.ctx
        begun = execution_log.start(ctx, self.fn)
        code = self.packed.call(step)
        if begun is not None:
            event = LoggedEvent("packed", self.shared.packed_specs()[step.slot].name, self.func.name)
            execution_log.stop(ctx, self.fn, event, begun, integer("i64", 0))
        self._propagate_error(code)

    def _resized(self, value: Operand, type: str) -> Operand:
        """Convert an i1 or i64 to an integer of another width."""
        if value.type == "i1":
            return self.fn.convert("zext", value, type)
        return self.fn.convert("trunc", value, type)

    def _copy(self, target: Tensor, source: Tensor) -> None:
        fn = self.fn
        name = fn.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        size = self.code.value(target.size)
        begun = execution_log.start(self.shared.ctx, fn)
        fn.call("void", name, [self._address(target), self._address(source), size, integer("i1", 0)])
        execution_log.stop(self.shared.ctx, fn, LoggedEvent("copy", "copy", self.func.name), begun, size)

    def _check(self, step: Check) -> None:
        fn, code = self.fn, step.code
        label = self._failures.get(code)
        if label is None:
            label = self._failures[code] = fn.cold("fail", [f"ret i32 {code}"])
        passed = fn.label("ok")
        flag = (
            self._holds_without_overflow(step.condition.value)
            if step.exact and isinstance(step.condition, Scalar)
            else None
        )
        fn.cond_br(self._condition(step.condition) if flag is None else flag, passed, label)
        fn.start(passed)

    def _holds_without_overflow(self, condition: tir.Expr) -> Operand:
        """Emit a condition that is false if its operands overflow."""
        code = DimCode(self.fn, self.func.dims, self.code.symbols, overflow=True)
        holds = code.value(condition)
        assert code.failed is not None
        return self.fn.binary("and", holds, self.fn.binary("xor", code.failed, integer("i1", 1)))

    def _propagate_error(self, code: Operand) -> None:
        """Return the error code of a callee, unless it is 0."""
        fn = self.fn
        failed = fn.cold("failed", [f"ret {code}"])
        passed = fn.label("ok")
        fn.cond_br(fn.icmp("eq", code, integer("i32", 0)), passed, failed)
        fn.start(passed)

    def _read_symbol(self, step: ReadSymbol) -> None:
        """Read a data-dependent symbol. It is kept in a stack cell, as a use may follow the branch that reads it."""
        fn = self.fn
        value = fn.load("i64", self._address(step.source), 8)
        good, bad = fn.label("ok"), fn.cold("fail", [f"ret i32 {step.code}"])
        fn.cond_br(fn.icmp("sle", integer("i64", 0), value), good, bad)
        fn.start(good)
        fn.store(value, self._cells[step.symbol], 8)
        self._define_symbol(step.symbol, value)

    def _define_symbol(self, symbol: tir.Var, value: Operand) -> None:
        self.code.symbols[symbol] = value
        self.emitter.bind(symbol, value)

    def _branch(self, step: Branch) -> None:
        fn = self.fn
        then, otherwise, done = fn.label("then"), fn.label("else"), fn.label("end")
        fn.cond_br(self._condition(step.condition), then, otherwise)
        for label, steps in ((then, step.then_steps), (otherwise, step.else_steps)):
            fn.start(label)
            with self.code.scope():
                self._steps(steps)
            fn.br(done)
        fn.start(done)
        self._reload([*step.then_steps, *step.else_steps])

    def _loop(self, step: Loop) -> None:
        fn = self.fn
        head, done = fn.label("head"), fn.label("done")
        fn.br(head)
        fn.start(head)
        self._heads.append(head)
        with self.code.scope():
            self._steps(step.steps)
        self._heads.pop()
        fn.br(done)
        fn.start(done)
        self._reload(step.steps)

    def _reload(self, steps: list[Step]) -> None:
        """Reload the symbols that some steps have read."""
        fn = self.fn
        for inner in walk_steps(steps):
            if isinstance(inner, ReadSymbol):
                self._define_symbol(inner.symbol, fn.load("i64", self._cells[inner.symbol], 8))

    def _values(self) -> None:
        """Store results other than tensors: numbers, and the values of shapes."""
        fn = self.fn
        last_element: dict[int, int] = {}
        for leaf, expr in self.func.values:
            element = last_element[leaf] = last_element.get(leaf, -1) + 1
            pointer = fn.load("ptr", fn.gep("i64", self.args, integer("i64", leaf)), 8)
            value = self._scalar(expr)
            if expr.dtype.is_float:
                value = casts.cast(self.emitter, value, expr.dtype, FLOAT64)
            elif value.type == "i1":
                value = fn.convert("zext", value, "i8")
            fn.store(value, fn.gep("i64", pointer, integer("i64", element)))

    def _extents(self) -> None:
        """Store data-dependent extents of results to the shapes of their DLTensors."""
        fn = self.fn
        first = len(self.func.inputs())
        for index, leaf in enumerate(self.func.outputs()):
            if leaf.actual is None:
                continue
            tensor = fn.load("ptr", fn.gep("i64", self.args, integer("i64", first + index)), 8)
            shape = fn.load("ptr", fn.gep("i8", tensor, integer("i64", OFFSET["shape"])), 8)
            for axis, dim in enumerate(leaf.actual):
                fn.store(self.code.value(dim), fn.gep("i64", shape, integer("i64", axis)), 8)
