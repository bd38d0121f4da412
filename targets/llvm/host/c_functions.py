"""Emit the C functions of an artifact as wrappers of the query and run functions."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.runtime.abi import ALIGNMENT
from mlcc.targets.llvm.codegen.context import Shared
from mlcc.targets.llvm.codegen.dim_code import DimCode
from mlcc.targets.llvm.codegen.ir_text import NULL, FunctionText, Value, integer
from mlcc.targets.plan.steps import HostFunction, Leaf

_MAX_STACK_WORKSPACE = 16 * 1024  # larger workspaces, and those of symbolic size, are on the heap


def needs_allocator(func: HostFunction) -> bool:
    """Return True if `f` takes its workspace from the heap, because it is large or of symbolic size."""
    return bool(func.places) or func.fixed_bytes > _MAX_STACK_WORKSPACE


def workspace_from(func: HostFunction, freestanding: bool) -> str:
    """Return where `f` takes its workspace from: `stack`, `heap`, or `caller` if there is only `f_ws`."""
    return ("caller" if freestanding else "heap") if needs_allocator(func) else "stack"


def c_type(leaf: Leaf) -> tuple[str, str]:
    """Return the LLVM type and attributes of a parameter in C's calling convention."""
    if leaf.kind != "scalar":
        return "ptr", ""
    assert leaf.dtype is not None
    if leaf.dtype.is_bool:
        return "i1", "zeroext"
    return ("double", "") if leaf.dtype.is_float else ("i64", "")


def emit_c_functions(func: HostFunction, shared: Shared, symbol: Callable[[str], str]) -> None:
    """Emit `f`, `f_ws`, `f_ws_size`, `f_shape` (for functions with results) and `f_error`.

    There is no `f` where it would need an allocator and there is none.
    """
    emitter = _CFunctions(func, shared, symbol)
    if not (shared.ctx.options.freestanding and needs_allocator(func)):
        emitter.call()
    emitter.call_with_workspace()
    emitter.workspace_size()
    if func.outputs():
        emitter.shapes()
    emitter.error()


class _CFunctions:
    def __init__(self, func: HostFunction, shared: Shared, symbol: Callable[[str], str]) -> None:
        self.func = func
        self.shared = shared
        self.symbol = symbol
        self.inputs = func.inputs()
        self.outputs = func.outputs()
        self.query = f"@{symbol('_query')}"
        self.run = f"@{symbol('_run')}"

    def _begin_function(
        self, suffix: str, ret: str, results: bool, leading_params: tuple[tuple[str, str], ...] = ()
    ) -> tuple[FunctionText, list[Value], Value, Value]:
        """A function of `leading_params`, parameters and results: (function, `leading_params`, argument vector, query
        output)."""
        params = [*leading_params]
        attrs = [""] * len(leading_params)
        for leaf in self.inputs:
            type, extra = c_type(leaf)
            params.append((type, leaf.name))
            attrs.append(extra)
        if results:
            params += [("ptr", leaf.name) for leaf in self.outputs]
            attrs += [""] * len(self.outputs)
        fn = self.shared.ctx.module.function(
            ret, self.symbol(suffix), params, linkage="", param_attrs=attrs, attrs=self.shared.ctx.function_attrs
        )
        arguments = fn.params[len(leading_params) :]
        vector = fn.alloca("i64", max(len(self.inputs) + len(self.outputs), 1), 8, "args")
        for index, value in enumerate(arguments):
            wide = fn.convert("zext", value, "i64") if value.type == "i1" else value
            fn.store(wide, fn.gep("i64", vector, integer("i64", index)), 8)
        out = fn.alloca("i64", 1 + len(self.func.symbols), 8, "facts")
        return fn, fn.params[: len(leading_params)], vector, out

    def _call_query(self, fn: FunctionText, vector: Value, out: Value, results: bool, negative: bool = False) -> Value:
        """Call the query function; return its error code, if any. The value is the workspace size in bytes."""
        code = fn.call("i32", self.query, [vector, out, integer("i32", int(results))])
        failed, passed = fn.label("failed"), fn.label("ok")
        fn.cond_br(fn.icmp("eq", code, integer("i32", 0)), passed, failed)
        fn.start(failed)
        if negative:
            fn.ret(fn.binary("sub", integer("i64", 0), fn.convert("zext", code, "i64")))
        else:
            fn.ret(code)
        fn.start(passed)
        return fn.load("i64", out, 8)

    def _symbols(self, fn: FunctionText, out: Value) -> Value:
        return fn.gep("i64", out, integer("i64", 1))

    def call(self) -> None:
        """Emit `f`, which allocates its workspace."""
        fn, _, vector, out = self._begin_function("", "i32", True)
        size = self._call_query(fn, vector, out, True)
        fixed = self.func.fixed_bytes
        if not needs_allocator(self.func):
            workspace = fn.alloca("i8", fixed, ALIGNMENT, "workspace") if fixed else NULL
            fn.ret(fn.call("i32", self.run, [vector, self._symbols(fn, out), workspace]))
            return
        module = fn.module
        malloc = module.declare("malloc", "ptr", ["i64"])
        free = module.declare("free", "void", ["ptr"])
        fn.is_separate = True  # a program that has no allocator calls `f_ws`
        raw = fn.call("ptr", malloc, [fn.binary("add", size, integer("i64", ALIGNMENT))])
        failed, allocated = fn.label("none"), fn.label("some")
        fn.cond_br(fn.icmp("eq", raw, NULL), failed, allocated)
        fn.start(failed)
        fn.ret(integer("i32", self.shared.code("MEMORY", "out of memory for the workspace")))
        fn.start(allocated)
        address = fn.op("i64", f"ptrtoint {raw} to i64")
        gap = fn.binary("and", fn.binary("sub", integer("i64", 0), address), integer("i64", ALIGNMENT - 1))
        code = fn.call("i32", self.run, [vector, self._symbols(fn, out), fn.gep("i8", raw, gap)])
        fn.call("void", free, [raw])
        fn.ret(code)

    def call_with_workspace(self) -> None:
        """Emit `f_ws`, which takes the workspace from the caller."""
        fn, (workspace, given_size), vector, out = self._begin_function(
            "_ws", "i32", True, (("ptr", "ws"), ("i64", "ws_size"))
        )
        size = self._call_query(fn, vector, out, True)
        address = fn.op("i64", f"ptrtoint {workspace} to i64")
        low = fn.binary("and", address, integer("i64", ALIGNMENT - 1))
        is_usable = fn.binary("and", fn.icmp("sge", given_size, size), fn.icmp("eq", low, integer("i64", 0)))
        is_usable = fn.binary("and", is_usable, fn.icmp("ne", workspace, NULL))
        is_usable = fn.binary("or", is_usable, fn.icmp("eq", size, integer("i64", 0)))
        usable, unusable = fn.label("fits"), fn.label("bad")
        fn.cond_br(is_usable, usable, unusable)
        fn.start(unusable)
        text = f"the workspace is smaller than `{self.func.name}` needs, or not aligned to {ALIGNMENT} bytes"
        fn.ret(integer("i32", self.shared.code("WORKSPACE", text)))
        fn.start(usable)
        fn.ret(fn.call("i32", self.run, [vector, self._symbols(fn, out), workspace]))

    def workspace_size(self) -> None:
        """Emit `f_ws_size`: the workspace bytes for these parameters, or a negated error code."""
        fn, _, vector, out = self._begin_function("_ws_size", "i64", False)
        fn.ret(self._call_query(fn, vector, out, self.func.kind == "prim", negative=True))

    def shapes(self) -> None:
        """Emit `f_shape`: the extents of every tensor result for these parameters."""
        fn, _, vector, out = self._begin_function("_shape", "i32", True)
        self._call_query(fn, vector, out, False)
        code = DimCode(fn, self.func.dims, {})
        for index, symbol in enumerate(self.func.symbols):
            code.symbols[symbol] = fn.load("i64", fn.gep("i64", out, integer("i64", 1 + index)), 8)
        for index, leaf in enumerate(self.outputs):
            pointer = fn.params[len(self.inputs) + index]
            for at, dim in enumerate(leaf.dims if leaf.kind == "tensor" else ()):
                fn.store(code.value(dim), fn.gep("i64", pointer, integer("i64", at)), 8)
        fn.ret(integer("i32", 0))

    def error(self) -> None:
        """Emit `f_error`: the message of an error code."""
        fn = self.shared.ctx.module.function("ptr", self.symbol("_error"), [("i32", "code")], linkage="")
        fn.ret(fn.call("ptr", "@mlcc_error_text", fn.params))
