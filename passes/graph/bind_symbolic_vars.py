"""The pass `bind-symbolic-vars`: replace symbolic sizes by numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.passes.graph.bind_params import relax_function
from mlcc.passes.graph.symbolic import bind_symbols, info_symbols
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import make_function


@dataclass(frozen=True)
class BindSymbolicVars(Pass):
    """Bind symbolic variables of a function's parameters to sizes, by name; with `func=null` those of every function.

    Before:  def main(x: R.Tensor((n, 784), "float32"))
    After:   def main(x: R.Tensor((16, 784), "float32"))        # bind-symbolic-vars{vars={"n": 16}}
    """

    name: ClassVar[str] = "bind-symbolic-vars"
    vars: Mapping[str, int]
    func: str | None = "main"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        new_module = module.copy()
        if self.func is not None:
            chosen = relax_function(module, self.func, self.name)
            new_module.functions[self.func] = self._bound(module, self.func, chosen, self.vars)
            return new_module
        used: set[str] = set()
        for name, func in module.functions.items():
            if isinstance(func, relax.Function):
                sizes = {key: value for key, value in self.vars.items() if key in _by_name(func)}
                used.update(sizes)
                if sizes:
                    new_module.functions[name] = self._bound(module, name, func, sizes)
        unused = [key for key in self.vars if key not in used]
        if unused:
            raise CompileError([error("E0508", f"no function has a symbolic variable `{key}`", None) for key in unused])
        return new_module

    def _bound(self, module: IRModule, name: str, func: relax.Function, sizes: Mapping[str, int]) -> relax.Function:
        by_name = _by_name(func)
        errors = []
        values: dict[tir.Var, tir.Expr] = {}
        for key, value in sizes.items():
            candidates = by_name.get(key, [])
            if len(candidates) != 1:
                count_text = "several symbolic variables" if candidates else "no symbolic variable"
                help = did_you_mean(key, by_name) or f"its variables are {', '.join(by_name) or 'none'}"
                errors.append(
                    error("E0508", f"the parameters of `{name}` have {count_text} `{key}`", func.span, help=help)
                )
            elif value < 0:
                errors.append(error("E0508", f"`{key}` cannot be {value}: sizes are not negative", func.span))
            else:
                values[candidates[0]] = c.const(value, candidates[0].dtype)
        if errors:
            raise CompileError(errors)
        bound: relax.Function = bind_symbols(func, values, {}, module)
        return make_function(bound.params, bound.body, bound.attrs, bound.ret_struct_info, bound.is_pure)


def _by_name(func: relax.Function) -> dict[str, list[tir.Var]]:
    """Return the symbolic variables of a function's parameters by name."""
    by_name: dict[str, list[tir.Var]] = {}
    for var in dict.fromkeys(v for p in func.params for v in info_symbols(p.struct_info)):
        by_name.setdefault(var.name, []).append(var)
    return by_name
