"""Programs of a launch plan: the host code of PrimFuncs that launch kernels.

A program's temporaries in global memory are in the workspace of the call, like those of a CPU kernel, each at its own
offset for the whole call. A temporary in a loop gets the upper bound of its size over all iterations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set
from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ir.effects import effects
from mlcc.ir.node import walk
from mlcc.ir.visit import substitute
from mlcc.passes.gpu.device import BLOCK, GRID, DeviceKernel, DeviceProgram, is_kernel
from mlcc.passes.gpu.tensor_map import MapForm, TensorMap, is_tensor_map
from mlcc.recursion import deep_recursion
from mlcc.runtime.abi import ALIGNMENT
from mlcc.runtime.launch.device import SCALARS
from mlcc.runtime.launch.tensor_map import BYTES as MAP_BYTES
from mlcc.targets.launch.names import Names
from mlcc.targets.launch.scalars import as_json
from mlcc.targets.plan.exports import error_code_for
from mlcc.targets.plan.signature import KernelSignature, signature


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """A PrimFunc of the module for the planner (`signature`, `workspace`) and the launch plan (`plan`)."""

    source: DeviceProgram
    signature: KernelSignature
    workspace: tir.Expr
    plan: dict[str, Any]


@dataclass(slots=True)
class LaunchContext:
    """The planning context of targets whose kernels run on a device; see `PlanContext`."""

    functions: Mapping[str, tir.PrimFunc]
    programs: dict[str, PlannedProgram] = field(default_factory=dict)
    packed: dict[str, int] = field(default_factory=dict)
    errors: dict[tuple[str, str], int] = field(default_factory=dict)
    externs: dict[str, None] = field(default_factory=dict)

    def packed_slot(self, name: str) -> int:
        return self.packed.setdefault(name, len(self.packed))

    def error_code(self, kind: str, message: str) -> int:
        return error_code_for(self.errors, kind, message)

    def kernel(self, name: str) -> PlannedProgram:
        """Return the program of a PrimFunc of the module, translated on first use. Raises CompileError."""
        program = self.programs.get(name)
        if program is None:
            func = self.functions.get(name)
            if func is None:
                hint = did_you_mean(name, self.functions)
                raise CompileError(error("E0702", f"the module has no PrimFunc `{name}`", help=hint))
            if is_kernel(func):
                message = f"`{name}` is a kernel, which cannot be called but only launched by host code"
                help = "make it private and call the function that launches it"
                raise CompileError(error("E0729", message, func.span, help=help))
            with deep_recursion():
                program = self.programs[name] = _HostCode(DeviceProgram.of(func, self.functions), self).program()
        return program

    def kernels(self) -> list[DeviceKernel]:
        """Return all kernels in order of first use."""
        return list({k.name: k for p in self.programs.values() for k in p.source.kernels}.values())


class _HostCode:
    """Translate the host code of one program to JSON steps."""

    def __init__(self, source: DeviceProgram, ctx: LaunchContext) -> None:
        self.source = source
        self.func = source.func
        self.ctx = ctx
        self.signature = signature(self.func)
        self.names = Names()
        self.kernels = {k.name: k for k in source.kernels}
        self.analyzer = Analyzer()
        self.loops: dict[tir.Var, Interval] = {}  # ranges of the variables of enclosing loops
        self.binds: dict[tir.Var, tir.Expr] = {}
        self.workspace: tir.Expr = tir.IntImm(INT64, 0)

    def program(self) -> PlannedProgram:
        uses = effects(self.func, functions=self.ctx.functions)
        params = []
        for var, buffer in zip(self.func.params, self.func.buffers, strict=True):
            if buffer is not None:
                name = self.names[var] = self.names.add(buffer.data, buffer.name)
                use = uses.get(buffer.data, 0)
                params.append({"name": name, "kind": "buffer", "role": ("in", "in", "out", "inout")[use]})
            elif var.dtype.is_handle:
                params.append({"name": self.names.add(var), "kind": "pointer"})
            else:
                params.append({"name": self.names.add(var), "kind": str(var.dtype)})
        symbols = [self.names.add(s) for s in self.signature.symbols]
        body = self.body(self.func.body)
        plan = {"params": params, "symbols": symbols, "steps": body}
        return PlannedProgram(self.source, self.signature, self.workspace, plan)

    def body(self, stmts: tuple[tir.Stmt, ...]) -> list[dict[str, Any]]:
        return [step for stmt in stmts for step in self.step(stmt)]

    def step(self, stmt: tir.Stmt) -> list[dict[str, Any]]:
        match stmt:
            case tir.Evaluate(value=tir.Call(op=relax.GlobalVar(name=name), args=args)):
                if name not in self.kernels:
                    message = f"host code can only launch kernels, and `{name}` is not a kernel"
                    raise CompileError(error("E0729", message, stmt.span))
                return [self.launch(self.kernels[name], args)]
            case tir.Evaluate(value=tir.IntImm() | tir.Var()):
                return []
            case tir.Bind(var=var, value=value):
                if var.dtype.is_handle:
                    self.names[var] = self._pointer(value)
                    return []
                tree = self.scalar(value)
                self.binds[var] = substitute(value, self.binds)
                return [{"do": "let", "name": self.names.add(var), "value": tree}]
            case tir.AllocBuffer(buffer=buffer):
                return [self.alloc(buffer)]
            case tir.DeclBuffer(buffer=buffer, data=tir.Var() as data):
                if data is not buffer.data:
                    self.names[buffer.data] = self._pointer(data)
                return []
            case tir.For(thread=str()) | tir.AttrStmt(key="thread_extent"):
                message = "a thread axis must be inside a kernel: host code has no threads"
                raise CompileError(error("E0729", message, stmt.span))
            case tir.For():
                return self.loop(stmt)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                entry = {"do": "if", "cond": self.scalar(condition), "then": self.body(then)}
                return [entry | ({"else": self.body(other)} if other else {})]
            case tir.AssertStmt(condition=condition):
                if tir.const_int(condition):
                    return []
                code = self.ctx.error_code(stmt.kind, "".join(stmt.message))
                return [{"do": "check", "cond": self.scalar(condition), "code": code}]
            case tir.AttrStmt(body=body):
                return self.body(body)
        message = f"host code cannot run a `{type(stmt).__name__}`"
        raise CompileError(error("E0729", message, stmt.span, help="bind the loops around it to threads"))

    def scalar(self, expr: tir.Expr) -> Any:
        return as_json(expr, self.names)

    def loop(self, stmt: tir.For) -> list[dict[str, Any]]:
        var, low, extent = stmt.var, stmt.min, stmt.extent
        entry = {"do": "for", "name": self.names.add(var), "min": self.scalar(low), "extent": self.scalar(extent)}
        if stmt.step is not None:
            entry["step"] = self.scalar(stmt.step)
        first, count = substitute(low, self.binds), substitute(extent, self.binds)
        self.loops[var] = Interval(first, c.sub(c.add(first, count), 1))
        entry["body"] = self.body(stmt.body)
        del self.loops[var]
        return [entry]

    # ------------------------------------------------------------ memory

    def alloc(self, buffer: tir.Buffer) -> dict[str, Any]:
        """Allocate a temporary in the program's part of the workspace."""
        size: tir.Expr = tir.IntImm(INT64, buffer.dtype.bytes * buffer.dtype.lanes)
        for dim in buffer.shape:
            size = c.mul(size, c.cast(INT64, substitute(dim, self.binds)))
        size = self._upper_bound(self.analyzer.simplify(size), buffer)
        offset = self.analyzer.simplify(self.workspace)
        constant_size = tir.const_int(size)
        if constant_size is None:
            size = c.maximum(size, 0)
        elif constant_size < 0:
            size = tir.IntImm(INT64, 0)
        rounded = c.mul(c.floordiv(c.add(size, ALIGNMENT - 1), ALIGNMENT), ALIGNMENT)
        self.workspace = self.analyzer.simplify(c.add(offset, rounded))
        return {"do": "alloc", "name": self.names.add(buffer.data, buffer.name), "at": self.scalar(offset)}

    def _upper_bound(self, size: tir.Expr, buffer: tir.Buffer) -> tir.Expr:
        """Return the upper bound of a size over its enclosing loops."""
        while any(n in self.loops for n in walk(size) if isinstance(n, tir.Var)):
            high = eval_set(size, self.loops, self.analyzer).high
            if high is None or high is size:
                message = f"the size of `{buffer.name}` has no bound that is known when the function is entered"
                raise CompileError(error("E0729", message, buffer.span, help="allocate it outside the loops"))
            size = self.analyzer.simplify(high)
        return size

    def _map(self, arg: tir.Expr, form: MapForm) -> dict[str, Any]:
        """Return a tensor map of the plan: its static part, and expressions for its extents and strides."""
        if not isinstance(arg, tir.Call) or not is_tensor_map(arg) or (tensor_map := TensorMap.of(arg)).form != form:
            raise CompileError(error("E0777", "this tensor map differs from the form that the kernel takes", arg.span))
        sizes = {
            name: [self.scalar(e) for e in exprs]
            for name, exprs in (("dims", tensor_map.dims), ("strides", tensor_map.strides))
        }
        static = {"box": list(form.box), "steps": list(form.steps), "swizzle": form.swizzle}
        defaults = {"interleave": "none", "fill": "zeros"}
        tensor = {"base": self._pointer(tensor_map.data), "name": tensor_map.data.name, "dtype": str(form.dtype)}
        return {**tensor, **sizes, **static, **defaults}

    def _pointer(self, data: tir.Expr) -> str:
        if not isinstance(data, tir.Var) or data not in self.names:
            raise CompileError(error("E0729", f"the host cannot compute the address `{data}`", data.span))
        return self.names[data]

    # ------------------------------------------------------------ launches

    def launch(self, kernel: DeviceKernel, args: tuple[tir.Expr, ...]) -> dict[str, Any]:
        """Return a launch step: extents and arguments as host expressions."""
        operands: list[Any] = []
        param_values: dict[tir.Var, Any] = {}
        for param, arg in zip(value_params(kernel), args, strict=False):
            if param in kernel.maps:
                operands.append({"map": self._map(arg, kernel.maps[param])})
            elif param.dtype.is_handle:
                operands.append(self._pointer(arg))
            else:
                param_values[param] = self.scalar(arg)
                operands.append(param_values[param])

        def extents(axes: tuple[str, ...]) -> list[Any]:
            one = tir.IntImm(INT64, 1)
            return [as_json(kernel.extents.get(axis, one), param_values) for axis in axes]

        entry = {
            "do": "launch",
            "kernel": kernel.name,
            "grid": extents(GRID),
            "block": extents(BLOCK),
            "args": operands,
        }
        if tir.const_int(kernel.dynamic_shared) != 0:
            entry["shared"] = as_json(kernel.dynamic_shared, param_values)
        return entry


def value_params(kernel: DeviceKernel) -> tuple[tir.Var, ...]:
    """Return the parameters that a launch passes values for: all but the error record."""
    return kernel.params[:-1] if kernel.asserts else kernel.params


def kernel_facts(kernel: DeviceKernel, ctx: LaunchContext) -> dict[str, Any]:
    """Return a kernel's entry in the plan: parameters, constant extents, error codes of its assertions."""
    facts = launch_signature(kernel)
    for param, kind in zip(kernel.params, facts["params"], strict=True):
        if kind != "ptr" and kind not in SCALARS and param not in kernel.maps:
            message = f"a kernel parameter cannot be a scalar of dtype {kind} (`{param.name}`)"
            raise CompileError(error("E0729", message, param.span))
    if kernel.asserts:
        facts["asserts"] = [ctx.error_code(kind, message) for kind, message in kernel.asserts]
    return facts


def launch_signature(kernel: DeviceKernel) -> dict[str, Any]:
    """Return the launch signature of a kernel.

    It has the kinds of parameters, threads of a block (0: not constant), and bytes of shared memory (-1: not constant).
    """
    form: dict[str, Any] = {
        "params": [
            f"bytes{MAP_BYTES}" if p in kernel.maps else "ptr" if p.dtype.is_handle else str(p.dtype)
            for p in kernel.params
        ],
        "block": [tir.const_int(kernel.extents.get(axis, tir.IntImm(INT64, 1))) or 0 for axis in BLOCK],
        "shared": static_shared(kernel),
    }
    if tir.const_int(kernel.dynamic_shared) != 0:
        known = tir.const_int(kernel.dynamic_shared)
        form["dynamic_shared"] = -1 if known is None else known
    return form


def static_shared(kernel: DeviceKernel) -> int:
    """Return the bytes of constant-size allocations in shared memory."""
    total = 0
    for stmt in kernel.body:
        for node in walk(stmt):
            if isinstance(node, tir.AllocBuffer) and node.buffer.scope == "shared":
                count = node.buffer.dtype.bytes * node.buffer.dtype.lanes
                for dim in node.buffer.shape:
                    count *= tir.const_int(dim) or 0
                total += count
    return total
