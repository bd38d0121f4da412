"""The pass `expand-tuple-arguments`: pass tuples field by field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.passes.graph.signatures import CallSites, canonicalized, change_callees, private_functions, with_params
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import get_item, make_seq, make_tuple, with_bound_result


@dataclass(frozen=True)
class ExpandTupleArguments(Pass):
    """Replace tuple parameters of private functions by one parameter for each field.

    Before:  def f(args: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")))
    After:   def f(args_0: R.Tensor((4,), "float32"), args_1: R.Tensor((4,), "float32"))
    """

    name: ClassVar[str] = "expand-tuple-arguments"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        expanded = {
            name: _expanded(func)
            for name, func in private_functions(module).items()
            if any(isinstance(p.struct_info, relax.TupleStructInfo) for p in func.params)
        }
        if expanded:
            module = change_callees(module, expanded, dict.fromkeys(expanded, _update))
        return canonicalized(module, ctx)


def _expanded(func: relax.Function) -> relax.Function:
    params: list[relax.Var] = []
    bindings: list[relax.Binding] = []

    def expand(param: relax.Var) -> None:
        if not isinstance(param.struct_info, relax.TupleStructInfo):
            params.append(param)
            return
        fields = [relax.Var(f"{param.name}_{i}", info) for i, info in enumerate(param.struct_info.fields)]
        for part in fields:
            expand(part)
        bindings.append(relax.VarBinding(param, make_tuple(fields)))

    for param in func.params:
        expand(param)
    body = with_bound_result(func.body)
    return with_params(func, tuple(params), make_seq((relax.BindingBlock(tuple(bindings)), *body.blocks), body.body))


def _update(sites: CallSites, call: relax.Call) -> relax.Expr:
    args: list[relax.Expr] = []

    def expand(arg: relax.Expr) -> None:
        if not isinstance(arg.struct_info, relax.TupleStructInfo):
            args.append(arg)
        elif isinstance(arg, relax.Tuple):
            for part in arg.fields:
                expand(part)
        else:
            for i in range(len(arg.struct_info.fields)):
                expand(sites.emit(get_item(arg, i)))

    for arg in call.args:
        expand(arg)
    return sites.call(call.op.name, tuple(args))
