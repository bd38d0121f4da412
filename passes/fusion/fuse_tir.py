"""The pass `fuse-tir`: merge the TIR calls of each fused function into a single TIR function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.errors import Diagnostic, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.fusion.fused_kernel import FusedKernel, fuse_calls
from mlcc.passes.graph.dead_code import keep_reachable, remove_unused
from mlcc.passes.graph.expand_tuple_arguments import ExpandTupleArguments
from mlcc.passes.graph.relax_mutator import RelaxMutator, map_relax_functions
from mlcc.passes.graph.remove_unused_parameters import RemoveUnusedParameters
from mlcc.passes.manage.manager import Pass, PassContext, Requirement
from mlcc.relax.construct import call_tir, get_item, global_vars, prim_value
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import all_bindings, callees, is_primitive, tir_callee


def _unlowered(module: IRModule) -> list[Diagnostic]:
    """Return the operators inside fused functions that `lower-to-tir` would lower, one finding per operator."""
    problems: dict[str, Diagnostic] = {}
    for name, func in module.functions.items():
        if not (is_primitive(func) and isinstance(func, relax.Function)):
            continue
        for binding, _ in all_bindings(func.body):
            value = binding.value  # type: ignore[attr-defined]
            if not (isinstance(value, relax.Call) and isinstance(value.op, tir.Op)):
                continue
            known = ops.get(value.op.name)
            if known is not None and known.impl.lower is not None:
                message = f"the fused function `{name}` still has the operator `R.{known.short}`"
                problems.setdefault(known.short, error("E0505", message, value.span or binding.span))
    return list(problems.values())


@dataclass(frozen=True)
class FuseTir(Pass):
    """Merge every function that has the attribute Primitive and consists of TIR calls into one TIR function.

    The bodies follow one another, with intermediate results in local buffers. Calls of the function become `call_tir`.
    TIR functions that only fused functions called are removed, as are unused bindings, parameters and private
    functions. Before that, tuples are passed field by field and all functions are canonicalized, as in TVM. A public
    TIR function that only fused functions called is removed, too, unless `keep_public`: then public functions are kept
    for callers from outside.

    Before:  def fused_add_relu(x, b):                    # Primitive
                 lv = R.call_tir(cls.add, (x, b), ...)
                 gv = R.call_tir(cls.relu, (lv,), ...)
    After:   def fused_add_relu(x: T.Buffer, b: T.Buffer, out: T.Buffer): ...
    """

    name: ClassVar[str] = "fuse-tir"
    needs_blocks: ClassVar[bool] = True
    requires: ClassVar[tuple[Requirement, ...]] = (Requirement("lower-to-tir", _unlowered),)
    keep_public: bool = False

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        module = RemoveUnusedParameters().run(ExpandTupleArguments().run(module, ctx), ctx)
        kernels = _kernels(module, self.keep_public)
        builder = ModuleBuilder(IRModule({}, module.attrs, module.name, module.global_infos))
        for name, func in module.functions.items():
            if isinstance(func, relax.Function) and name not in kernels:
                builder.module.functions[name] = _Caller(module, kernels, builder).visit_function(func)
        return _in_module_order(_link_functions(builder.module, module, kernels, self.keep_public), module)


def _kernels(module: IRModule, keep_public: bool) -> dict[str, FusedKernel]:
    """Return the TIR functions that fused functions become; those that cannot be merged are left out."""
    called = {name for func in module.functions.values() for name in callees(func)}
    kernels = {}
    for name, func in module.functions.items():
        if (
            isinstance(func, relax.Function)
            and is_primitive(func)
            and (func.is_private or name in called and not keep_public)
        ):
            kernel = fuse_calls(func, module)
            if kernel is not None:
                kernels[name] = kernel
    return kernels


class _Caller(RelaxMutator):
    """Rewrite the callers of fused functions, and add the TIR functions that they call."""

    def __init__(self, module: IRModule, kernels: dict[str, FusedKernel], builder: ModuleBuilder) -> None:
        super().__init__(module)
        self.kernels = kernels
        self.builder = builder

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call):
            return expr
        if isinstance(expr.op, relax.GlobalVar) and expr.op.name in self.kernels:
            return self.call_kernel(expr, expr.op.name, self.kernels[expr.op.name])
        callee = tir_callee(expr)
        func = self.module.functions.get(callee) if callee is not None else None
        if callee is None or func is None:
            return expr
        name = self.builder.add(func, callee)
        if name == callee:
            return expr
        return replace(expr, args=(global_vars(self.builder.module)[name], *expr.args[1:]))

    def call_kernel(self, call: relax.Call, name: str, kernel: FusedKernel) -> relax.Expr:
        name = self.builder.add(kernel.function, name)
        tensors: list[relax.Expr] = []
        scalars: list[tir.Expr] = []
        for argument in call.args:
            self.flatten(argument, tensors, scalars)
        arguments = [*tensors, *kernel.constants, *map(prim_value, scalars)]
        out: Any = call.struct_info
        return replace(call_tir(name, kernel.function, arguments, out), span=call.span)

    def flatten(self, argument: relax.Expr, tensors: list[relax.Expr], scalars: list[tir.Expr]) -> None:
        """Flatten an argument: fields of tuples are arguments of their own, shapes and scalars symbolic values."""
        match argument.struct_info:
            case relax.TupleStructInfo(fields=fields):
                for index in range(len(fields)):
                    known = isinstance(argument, relax.Tuple)
                    item = argument.fields[index] if known else self.emit(get_item(argument, index))  # type: ignore[attr-defined]
                    self.flatten(item, tensors, scalars)
            case relax.ShapeStructInfo(values=values) if values is not None:
                scalars.extend(values)
            case relax.PrimStructInfo(value=value) if value is not None:
                scalars.append(value)
            case _:
                tensors.append(argument)


def _link_functions(fused: IRModule, module: IRModule, kernels: dict[str, FusedKernel], keep_public: bool) -> IRModule:
    """Add the functions that are still reachable, and remove all others."""
    entries = {n for n, f in module.functions.items() if not f.is_private and n not in kernels}
    called_by_kernels = {callee for name in kernels for callee in callees(module[name])}
    called_by_others = {
        callee for name, func in module.functions.items() if name not in kernels for callee in callees(func)
    }
    if not keep_public:
        entries -= {
            n for n in called_by_kernels - called_by_others if isinstance(module.functions.get(n), tir.PrimFunc)
        }
    result = fused.copy()
    for name, func in module.functions.items():
        if name not in result and name not in kernels:
            result.functions[name] = func
    result = map_relax_functions(result, lambda _, func: remove_unused(func, result))
    return keep_reachable(result, entries)


def _in_module_order(fused: IRModule, module: IRModule) -> IRModule:
    """Restore the order of the original module's functions."""
    result = fused.copy()
    result.functions = {n: fused[n] for n in module if n in fused}
    result.functions.update(fused.functions)
    return result
