"""The pass `remove-unused-outputs`: results that no caller uses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from mlcc.ir import construct as c
from mlcc.ir import relax
from mlcc.ir.module import IRModule
from mlcc.passes.graph.signatures import CallSites, Update, canonicalized, change_callees, private_functions
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.relax.construct import get_item, make_function, make_seq, make_tuple, prim_value
from mlcc.relax.queries import all_bindings, operands


@dataclass(frozen=True)
class RemoveUnusedOutputs(Pass):
    """Remove fields of private functions' results that no caller uses.

    Before:  def f(...): return (a, b)          # everywhere: f(...)[0]
    After:   def f(...): return a
    """

    name: ClassVar[str] = "remove-unused-outputs"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        used = _used_fields(module)
        reduced: dict[str, relax.Function] = {}
        updates: dict[str, Update] = {}
        for name, mask in used.items():
            if not all(mask):
                func = module[name]
                assert isinstance(func, relax.Function)
                reduced[name], updates[name] = _reduced(func, mask), _updater(mask)
        if reduced:
            module = change_callees(module, reduced, updates)
        return canonicalized(module, ctx)


def _used_fields(module: IRModule) -> dict[str, list[bool]]:
    """Return for each private function with a tuple result which fields are used."""
    masks = {
        name: [False] * len(func.ret_struct_info.fields)
        for name, func in private_functions(module).items()
        if isinstance(func.ret_struct_info, relax.TupleStructInfo)
    }
    for func in module.functions.values():
        if masks and isinstance(func, relax.Function):
            values = {b.var: b.value for b, _ in all_bindings(func.body)}  # type: ignore[attr-defined]
            _UseMarker(masks, values).mark(func.body)
    return masks


@dataclass
class _UseMarker:
    masks: dict[str, list[bool]]
    values: dict[relax.Var, relax.Expr] = field(default_factory=dict)

    def mark(self, root: Any) -> None:
        stack = [root]
        while stack:
            top = stack.pop()
            if isinstance(top, relax.TupleGetItem):
                mask = self.mask(top.tuple_value)
                if mask is not None:
                    mask[top.index] = True
                if not isinstance(top.tuple_value, relax.Var):
                    stack.extend(operands(top.tuple_value))
            elif isinstance(top, relax.Var):
                mask = self.mask(top)
                if mask is not None:
                    mask[:] = [True] * len(mask)
            elif isinstance(top, relax.Binding):
                stack.append(top.value)  # type: ignore[attr-defined]
            elif isinstance(top, relax.Function):
                stack.append(top.body)
            else:
                stack.extend(operands(top))

    def mask(self, expr: Any) -> list[bool] | None:
        while isinstance(expr, relax.Var) and expr in self.values:
            expr = self.values[expr]
        if isinstance(expr, relax.Call) and isinstance(expr.op, relax.GlobalVar):
            return self.masks.get(expr.op.name)
        return None


def _reduced(func: relax.Function, mask: list[bool]) -> relax.Function:
    before = relax.Var("previous_outputs", func.body.struct_info)
    last = relax.BindingBlock((relax.VarBinding(before, func.body.body),))
    used_vars = [relax.Var("output", get_item(before, i).struct_info) for i, used in enumerate(mask) if used]
    used_items = [get_item(before, i) for i, used in enumerate(mask) if used]
    used_block = relax.BindingBlock(tuple(relax.VarBinding(v, i) for v, i in zip(used_vars, used_items, strict=True)))
    result = used_vars[0] if len(used_vars) == 1 else make_tuple(used_vars)
    body = make_seq((*func.body.blocks, last, used_block), result)
    return make_function(func.params, body, func.attrs, None, func.is_pure, func.span)


def _updater(mask: list[bool]) -> Update:
    def update(sites: CallSites, call: relax.Call) -> relax.Expr:
        new_call = sites.emit(sites.call(call.op.name, call.args))
        placeholder = prim_value(c.const(float("nan"), "float64"))
        indices = iter(range(sum(mask)))
        single = sum(mask) == 1
        fields = [
            placeholder if not used else new_call if single else sites.emit(get_item(new_call, next(indices)))
            for used in mask
        ]
        return make_tuple(fields)

    return update
