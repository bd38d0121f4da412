"""A PrimFunc as an LLVM function: `emit_kernel`. The calling convention is in `signature`."""

from __future__ import annotations

from mlcc.errors import CompileError, Diagnostic, did_you_mean, error
from mlcc.ir import tir
from mlcc.ir.versions import cpu_of, version_names
from mlcc.passes.lowering.stage import placed
from mlcc.progress import working
from mlcc.recursion import deep_recursion
from mlcc.targets.llvm.codegen import casts
from mlcc.targets.llvm.codegen.calls import callee_workspace
from mlcc.targets.llvm.codegen.context import ModuleContext
from mlcc.targets.llvm.codegen.emitter import Emitter
from mlcc.targets.llvm.codegen.ir_text import Value
from mlcc.targets.llvm.codegen.signature import Kernel, llvm_params
from mlcc.targets.llvm.codegen.storage import Storage
from mlcc.targets.llvm.codegen.versions import with_versions
from mlcc.targets.plan.signature import KernelSignature, signature

__all__ = ["Kernel", "KernelSignature", "emit_kernel", "signature"]


def emit_kernel(name: str, ctx: ModuleContext) -> Kernel:
    """Add the kernel of `ctx.functions[name]` to the module, and those that it calls. Raises CompileError."""
    func = ctx.functions.get(name)
    if func is None:
        hint = did_you_mean(name, ctx.functions)
        raise CompileError(error("E0702", f"the module has no PrimFunc `{name}`", help=hint))
    if name in ctx.emitting:
        chain = " -> ".join([*ctx.emitting[ctx.emitting.index(name) :], name])
        raise CompileError(error("E0703", f"PrimFuncs call each other in a circle: {chain}", func.span))
    ctx.emitting.append(name)
    outer_owner, ctx.module.owner = ctx.module.owner, name
    outer, ctx.problems = ctx.problems, []
    try:
        working_on = working("emit", name, len(ctx.kernels), len(ctx.functions))
        with deep_recursion(), ctx.for_cpu(cpu_of(func)), working_on:
            kernel = _emit(name, func, ctx)
            if version_names(func):
                kernel = with_versions(name, func, kernel, ctx)
        if ctx.problems:
            raise CompileError(_first_of_each(ctx.problems))
    except CompileError as exc:
        raise CompileError([placed(diagnostic, func) for diagnostic in exc.diagnostics]) from None
    finally:
        ctx.emitting.pop()
        ctx.problems, ctx.module.owner = outer, outer_owner
    ctx.kernels[name] = kernel
    ctx.finished(name)
    return kernel


def _emit(name: str, func: tir.PrimFunc, ctx: ModuleContext) -> Kernel:
    options = ctx.options
    sig = signature(func)
    known = {*sig.symbols, *(p.var for p in sig.params if p.buffer is None and p.var.dtype.is_int)}
    if options.sanitize:
        known = set()  # shadow memory of symbolic size is no part of the workspace: any kernel may be called by another
    storage = Storage(func.body, known, options.stack_bytes, callee_workspace(func, ctx))
    symbol = f"kernel.{name}.least" if version_names(func) else f"kernel.{name}"
    kernel = Kernel(symbol, sig, storage.workspace)
    noalias = "noalias " if func.attrs.get("tir.noalias") else ""
    types = llvm_params(sig)
    param_attrs = [f"{noalias}noundef" if type == "ptr" else "noundef" for type, _ in types[:-1]]
    fn = ctx.module.function(
        "i32", kernel.symbol, types, param_attrs=[*param_attrs, "noalias align 64"], attrs=ctx.function_attrs
    )
    e = Emitter(fn, ctx, storage)
    _bind_parameters(e, sig, bool(noalias))
    e.workspace = fn.params[-1]
    storage.begin(e)
    e.body(func.body)
    e.finish()
    storage.finish(e)
    return kernel


def _first_of_each(problems: list[Diagnostic]) -> list[Diagnostic]:
    """Without repetitions: copies of a statement (unrolled, vectorized) have one place."""
    return list({(p.code, p.message, p.primary.span): p for p in problems}.values())


def _bind_parameters(e: Emitter, sig: KernelSignature, noalias: bool) -> None:
    values = iter(e.fn.params)
    for param in sig.params:
        value = next(values)
        e.bind(param.var, casts.from_memory(e, value, param.var.dtype))
        if param.buffer is not None:
            e.bind(param.buffer.data, value)
            if noalias:
                e.distinct.add(param.buffer.data)
    for symbol in sig.symbols:
        wide: Value = next(values)
        e.bind(symbol, e.fn.convert("trunc", wide, f"i{symbol.dtype.bits}"))
        e.wide[symbol] = wide
    if sig.result is not None:
        e.result = (sig.result, next(values))
