"""The pass `lambda-lift`: turn nested functions into functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.graph.symbolic import free_symbols, renew_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import function_info, make_function, make_tuple, shape_expr
from mlcc.relax.queries import all_bindings, operands, used_vars

_MAKE, _INVOKE, _INVOKE_PURE = (
    tir.Op(f"relax.{name}") for name in ("make_closure", "invoke_closure", "invoke_pure_closure")
)


@dataclass(frozen=True)
class LambdaLift(Pass):
    """Lift nested functions out of the functions that contain them.

    Captured variables become additional parameters, which `R.make_closure` binds.

    Before:  def main(x, y):
                 def inner(a): return R.add(a, x)
                 z = inner(y)
    After:   def main(x, y):
                 inner = R.make_closure(cls.main_inner, (x,))
                 z = R.invoke_pure_closure(inner, (y,), ...)
             def main_inner(a, x): return R.add(a, x)
    """

    name: ClassVar[str] = "lambda-lift"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        names = _unique_names(module)
        if not names:
            return module
        new_module = module.copy()
        for name, func in module.functions.items():
            if isinstance(func, relax.Function):
                new_module.functions[name] = _Lifter(new_module, names).visit_function(func)
        return _with_closures_from_calls(new_module)


# ---------------------------------------------------------------- names

_Place = tuple[str, ...]  # the path: the module's function, then the variables of nested ones


def _nested(module: IRModule) -> Iterator[tuple[relax.Function, _Place]]:
    """Yield every function bound inside a function, with its path; outer ones first, in order."""
    for name, func in module.functions.items():
        stack: list[tuple[Any, _Place]] = [(func.body, (name,))] if isinstance(func, relax.Function) else []
        while stack:
            top, path = stack.pop()
            if isinstance(top, relax.VarBinding) and isinstance(top.value, relax.Function):
                inner = (*path, top.var.name)
                yield top.value, inner
                stack.append((top.value.body, inner))
            elif isinstance(top, (relax.SeqExpr, relax.If, relax.BindingBlock, relax.Binding)):
                stack += [(child, path) for child in reversed(list(operands(top)))]


def _unique_names(module: IRModule) -> dict[relax.Function, str]:
    """Return the shortest unique names for the functions to lift. Raise CompileError E0516."""
    nested = dict(_nested(module))
    names: dict[relax.Function, str] = {}
    used_names = set(module)
    for func in nested:
        symbol = func.attrs.get("global_symbol")
        if symbol is not None and (symbol in used_names or symbol in names.values()):
            message = (
                f"`lambda-lift`: the module already has a function `{symbol}`, so that the nested one cannot be lifted"
            )
            raise CompileError(error("E0516", message, func.span))
        if symbol is not None:
            names[func] = str(symbol)
    counts: dict[str, int] = {}

    def counted(path: _Place) -> str:
        short = f"{path[0]}_{path[-1]}"
        counts[short] = counts.get(short, -1) + 1
        return f"{short}_{counts[short]}"

    def long(path: _Place) -> str | None:
        return "_".join(path) if len(path) > 2 else None

    naming_schemes: list[Callable[[_Place], str | None]] = [lambda p: f"{p[0]}_{p[-1]}", long, counted]
    for scheme in naming_schemes:
        proposed = {func: scheme(path) for func, path in nested.items() if func not in names}
        proposals = list(proposed.values())
        used = used_names | set(names.values())
        for func, name in proposed.items():
            if name is not None and name not in used and proposals.count(name) == 1:
                names[func] = name
    for func, path in nested.items():  # on a clash with names of the module
        number = 0
        while func not in names:
            name = f"{path[0]}_{path[-1]}_{number}"
            if name not in used_names and name not in names.values():
                names[func] = name
            number += 1
    return names


# ---------------------------------------------------------------- lifting


class _ClosureCalls(RelaxMutator):
    """Turn calls of variables that hold closures (objects) into `invoke_closure`."""

    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Call) or not isinstance(expr.op, relax.Var):
            return expr
        if not isinstance(expr.op.struct_info, relax.ObjectStructInfo):
            return expr
        info = expr.struct_info or relax.ObjectStructInfo()
        op = _INVOKE_PURE if expr.op in self.pure else _INVOKE
        return relax.Call(op, (expr.op, make_tuple(expr.args)), sinfo_args=(info,), struct_info=info, span=expr.span)

    def infer(self, call: relax.Call) -> relax.Call:
        if isinstance(call.op, relax.Var) and isinstance(call.op.struct_info, relax.ObjectStructInfo):
            return call
        return super().infer(call)

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.pure: set[relax.Var] = set()

    def retype(self, var: relax.Var, info: relax.StructInfo | None) -> relax.Var:
        new_var = super().retype(var, info)
        if isinstance(var.struct_info, relax.FuncStructInfo) and var.struct_info.purity:
            self.pure.add(new_var)
        return new_var


class _Lifter(_ClosureCalls):
    """Lift functions; `lifted` maps the variables of functions being lifted to their names and captured values."""

    def __init__(self, module: IRModule, names: dict[relax.Function, str]) -> None:
        super().__init__(module)
        self.names = names
        self.lifted: dict[relax.Var, tuple[relax.GlobalVar, tuple[relax.Expr, ...]]] = {}

    def visit_binding(self, binding: relax.Binding) -> None:
        if isinstance(binding, relax.VarBinding) and binding.value in self.names:
            assert isinstance(binding.value, relax.Function)
            self.lift(binding, binding.value)
        else:
            super().visit_binding(binding)

    def visit(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Var) and expr in self.lifted:
            callee, captured = self.lifted[expr]
            return self.emit(_closure(callee, captured)) if captured else callee
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.Var) and expr.op in self.lifted:
            callee, captured = self.lifted[expr.op]
            return self.infer(replace(expr, op=callee, args=(*self._all(expr.args), *captured)))
        return super().visit(expr)

    def lift(self, binding: relax.VarBinding, func: relax.Function) -> None:
        name = self.names[func]
        captured = [v for v in _captured(func) if v is not binding.var and v not in self.lifted]
        captured_values = {self.remap.get(v, v): None for v in captured}
        inner = {v: relax.Var(v.name, self.remap.get(v, v).struct_info) for v in captured}
        free = free_symbols(replace(func, params=(*func.params, *inner.values())))  # symbols that no parameter defines
        shapes = tuple(relax.Var(f"param_{s.name}", shape_expr((s,)).struct_info) for s in free)
        params = (*func.params, *inner.values(), *shapes)
        info = relax.FuncStructInfo(
            tuple(p.struct_info or relax.ObjectStructInfo() for p in params),
            func.ret_struct_info or relax.ObjectStructInfo(),
            func.is_pure,
        )
        callee = relax.GlobalVar(name, info)
        outer_remap, outer_own = dict(self.remap), dict(self.lifted)
        self.remap.update(inner)
        self.lifted[binding.var] = callee, (*inner.values(), *shapes)
        body = self.visit_scope(func.body)
        self.remap, self.lifted = outer_remap, outer_own
        result_info = None if isinstance(func.ret_struct_info, relax.FuncStructInfo) else func.ret_struct_info
        lifted = renew_symbols(make_function(params, body, func.attrs, result_info, func.is_pure, func.span))
        self.module.functions[name] = lifted
        callee = relax.GlobalVar(name, function_info(lifted))
        if self._global_vars is not None:
            self._global_vars[name] = callee
        if captured or free:
            self.rebind(binding, _closure(callee, (*captured_values, *(shape_expr((s,)) for s in free))))
        else:
            self.lifted[binding.var] = callee, ()


def _closure(callee: relax.GlobalVar, captured: tuple[relax.Expr, ...]) -> relax.Call:
    return ops.bind_call("make_closure", (callee, make_tuple(captured)))


def _captured(func: relax.Function) -> list[relax.Var]:
    """Return the variables of enclosing scopes that a function uses, in order of use."""
    local_vars = set(func.params)
    for binding, _ in all_bindings(func.body):
        local_vars.add(binding.var)
        value = getattr(binding, "value", None)
        if isinstance(value, relax.Function):
            local_vars.update(value.params)
    return [v for v in dict.fromkeys(used_vars(func.body)) if v not in local_vars]


def _with_closures_from_calls(module: IRModule) -> IRModule:
    """Update the callers of functions whose result has become a closure, up to a fixed point."""
    while True:
        new_module = module.copy()
        for name, func in module.functions.items():
            if isinstance(func, relax.Function):
                changed = _CallResultUpdater(module).visit_function(func)
                if isinstance(changed.ret_struct_info, relax.FuncStructInfo) and _returns_object(changed):
                    changed = make_function(changed.params, changed.body, changed.attrs, None, changed.is_pure)
                new_module.functions[name] = changed
        if new_module.functions == module.functions:
            return module
        module = new_module


def _returns_object(func: relax.Function) -> bool:
    return isinstance(func.body.struct_info, relax.ObjectStructInfo)


class _CallResultUpdater(_ClosureCalls):
    def rewrite(self, expr: relax.Expr) -> relax.Expr:
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar):
            callee = self.module.functions.get(expr.op.name)
            if isinstance(expr.struct_info, relax.FuncStructInfo) and isinstance(callee, relax.Function):
                return self.infer(replace(expr, op=relax.GlobalVar(expr.op.name, function_info(callee))))
        return super().rewrite(expr)
