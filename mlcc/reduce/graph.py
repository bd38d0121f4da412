"""Edits of graph functions: bindings become parameters, constants become parameters, branches become their bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mlcc import ops
from mlcc.ir import relax
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import substitute
from mlcc.reduce.functions import with_function
from mlcc.reduce.program import Program
from mlcc.relax.construct import get_item, make_function, make_seq, make_tuple
from mlcc.relax.queries import used_vars

_PARAMETERS = (relax.TensorStructInfo, relax.TupleStructInfo, relax.ShapeStructInfo, relax.PrimStructInfo)


def graph_functions(program: Program) -> Iterator[tuple[str, relax.Function]]:
    """Yield the graph functions of a program with their names."""
    for name, func in program.module.functions.items():
        if isinstance(func, relax.Function):
            yield name, func


def infer_again(program: Program) -> Program:
    """Return the program with the struct info of all variables inferred from parameters on."""
    for name, func in graph_functions(program):
        program = with_function(program, name, _Rebuild(program, {}).function(func, func.params, lambda var: True))
    return program


class DropBindings:
    """Remove bindings. Variables of removed bindings that are used become parameters; results that are removed are
    left out, or give way to the last variable that is left.

    Removing the last bindings cuts a graph off behind a place, removing the first ones before it.
    """

    def sites(self, program: Program) -> Sequence[tuple[str, relax.Var]]:
        return [
            (name, binding.var)
            for name, func in graph_functions(program)
            for block in reversed(func.body.blocks)
            for binding in reversed(block.bindings)
        ]

    def apply(self, program: Program, chosen: Sequence[tuple[str, relax.Var]]) -> Program | None:
        for name in dict.fromkeys(name for name, _ in chosen):
            dropped = {var for other, var in chosen if other == name}
            func = program.module.functions[name]
            edited = _without_bindings(func, dropped, program) if isinstance(func, relax.Function) else None
            if edited is None:
                return None
            program = with_function(program, name, edited)
        return program


class ConstantsToParameters:
    """Make constants parameters."""

    def sites(self, program: Program) -> Sequence[tuple[str, relax.Constant]]:
        found: dict[relax.Constant, str] = {}
        for name, func in graph_functions(program):
            for node in walk(func):
                if isinstance(node, relax.Constant) and node.data.size > 1:
                    found.setdefault(node, name)
        return [(name, constant) for constant, name in found.items()]

    def apply(self, program: Program, chosen: Sequence[tuple[str, relax.Constant]]) -> Program | None:
        for name in dict.fromkeys(name for name, _ in chosen):
            func = program.module.functions[name]
            if not isinstance(func, relax.Function):
                return None
            params = {c: relax.Var(c.data.key or "c", c.struct_info) for other, c in chosen if other == name}
            rebuilt = _Rebuild(program, dict(params)).function(func, (*func.params, *params.values()), lambda var: True)
            program = with_function(program, name, rebuilt)
        return program


class TakeBranches:
    """Replace an `if` by one of its branches."""

    def sites(self, program: Program) -> Sequence[tuple[str, relax.Var, bool]]:
        return [
            (name, binding.var, first)
            for name, func in graph_functions(program)
            for block in func.body.blocks
            for binding in block.bindings
            if isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.If)
            for first in (True, False)
        ]

    def apply(self, program: Program, chosen: Sequence[tuple[str, relax.Var, bool]]) -> Program | None:
        name, var, first = chosen[0]
        func = program.module.functions[name]
        if len(chosen) > 1 or not isinstance(func, relax.Function):
            return None
        blocks: list[relax.BindingBlock] = []
        for block in func.body.blocks:
            for binding in block.bindings:
                value = binding.value  # type: ignore[attr-defined]
                if binding.var is var and isinstance(value, relax.If):
                    branch = value.true_branch if first else value.false_branch
                    blocks += [*branch.blocks, replace(block, bindings=(relax.VarBinding(var, branch.body),))]
                else:
                    blocks.append(replace(block, bindings=(binding,)))
        body = make_seq(blocks, func.body.body)
        rebuilt = _Rebuild(program, {}).function(replace(func, body=body), func.params, lambda var: True)
        return with_function(program, name, rebuilt)


def _without_bindings(func: relax.Function, dropped: set[relax.Var], program: Program) -> relax.Function | None:
    bindings = [b for block in func.body.blocks for b in block.bindings]
    kept = [b for b in bindings if b.var not in dropped]
    if not kept:
        return None
    result = _kept_result(func.body.body, dropped, kept[-1].var)
    needed = [v for b in kept for v in used_vars(b) if v in dropped]
    params = {v: relax.Var(v.name, v.struct_info) for v in dict.fromkeys(needed)}
    if not all(isinstance(p.struct_info, _PARAMETERS) for p in params.values()):
        return None
    cut = replace(func, body=replace(func.body, body=result))
    return _Rebuild(program, dict(params)).function(cut, (*func.params, *params.values()), lambda v: v not in dropped)


def _kept_result(result: relax.Expr, dropped: set[relax.Var], last: relax.Var) -> relax.Expr:
    """Return the result of a function without what is dropped: fewer fields of a tuple, one of them, or `last`."""
    if not any(v in dropped for v in used_vars(result)):
        return result
    if isinstance(result, relax.Tuple):
        fields = [f for f in result.fields if not any(v in dropped for v in used_vars(f))]
        if fields:
            return fields[0] if len(fields) == 1 else make_tuple(fields)
    return last


class _Rebuild:
    """Builds a function again from its bindings, with expressions replaced, and infers struct info anew."""

    def __init__(self, program: Program, replaced: dict[Any, Any]) -> None:
        self._functions = {
            name: relax.GlobalVar(name, func.struct_info)
            for name, func in program.module.functions.items()
            if isinstance(func, relax.Function)
        }
        self._replaced = replaced

    def function(
        self, func: relax.Function, params: tuple[relax.Var, ...], is_kept: Callable[[relax.Var], bool]
    ) -> relax.Function:
        """Return the function with the bindings of kept variables."""
        visible = set(used_vars(func.body.body))
        blocks = []
        for block in func.body.blocks:
            bindings = [self._binding(b, b.var in visible) for b in block.bindings if is_kept(b.var)]
            blocks.append(replace(block, bindings=tuple(bindings)))
        result = self._value(func.body.body)
        attrs = func.attrs.without("num_input")
        return make_function(params, make_seq(blocks, result), attrs, None, func.is_pure)

    def _binding(self, binding: relax.Binding, is_visible: bool) -> relax.Binding:
        old = binding.var
        cls = relax.Var if is_visible else type(old)
        if isinstance(binding, relax.MatchCast):
            value, info = self._value(binding.value), substitute(binding.struct_info, self._replaced)
            var = cls(old.name, info)
            self._replaced[old] = var
            return replace(binding, var=var, value=value, struct_info=info)
        value = self._value(binding.value)  # type: ignore[attr-defined]
        var = cls(old.name, value.struct_info or old.struct_info)
        self._replaced[old] = var
        return replace(binding, var=var, value=value)

    def _value(self, expr: relax.Expr) -> relax.Expr:
        new: relax.Expr = substitute(expr, self._replaced)
        match new:
            case relax.Call():
                info = ops.infer_struct_info(replace(new, struct_info=None), self._functions)
                return replace(new, struct_info=info or new.struct_info)
            case relax.Tuple(fields=fields):
                return make_tuple(fields)
            case relax.TupleGetItem(tuple_value=value, index=index):
                return get_item(value, index)
        return new
