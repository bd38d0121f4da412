"""Outlining of groups of operations into functions, shared by all fusion passes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.node import Attrs, replace
from mlcc.passes.graph.relax_mutator import RelaxMutator
from mlcc.passes.graph.symbolic import free_symbols, info_symbols, mentioned_symbols, renew_symbols
from mlcc.relax.construct import (
    CALL_TIR,
    CALL_TIR_INPLACE,
    PRIMITIVE,
    call_function,
    get_item,
    make_function,
    make_seq,
    make_tuple,
    shape_expr,
)
from mlcc.relax.module_builder import ModuleBuilder
from mlcc.relax.queries import call_arguments, tir_callee, used_vars

# operands that are repeated inside a fused function instead of passed to it
_INLINE = (relax.ShapeExpr, relax.PrimValue, relax.StringImm, relax.DataTypeImm, relax.GlobalVar, relax.ExternFunc)


@dataclass(frozen=True)
class Style:
    """The form of the function built for a group.

    `bind_constants` is True for constants inside the function and False for constants passed as arguments; None binds
    only those that an operator takes as a number. `full_names` keeps the prefix of operators in the function's name.
    `attrs` are the function's attributes.
    """

    attrs: Attrs
    bind_constants: bool | None = None
    full_names: bool = False


FUSED = Style(Attrs({PRIMITIVE: True}))


class Grouper(RelaxMutator):
    """Rewrite one function, and add the functions of its groups to the builder.

    Subclasses decide which bindings of a dataflow block form a group, and in which style.
    """

    def __init__(self, builder: ModuleBuilder) -> None:
        super().__init__(builder.module)
        self.builder = builder

    def groups(self, block: relax.DataflowBlock) -> Sequence[Hashable]:
        """Return the group of each binding."""
        raise NotImplementedError

    def style(self, group: Any) -> Style | None:
        """Return the form of a group's function, or None for a group that is left as it is."""
        raise NotImplementedError

    def anchor(self, bindings: list[relax.VarBinding]) -> relax.VarBinding:
        """Return the binding that a kernel is named after in reports: the last one by default."""
        return bindings[-1]

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if not isinstance(block, relax.DataflowBlock):
            return super().visit_block(block)
        groups = self.groups(block)
        members: dict[Hashable, list[Any]] = {}
        for binding, group in zip(block.bindings, groups, strict=True):
            members.setdefault(group, []).append(binding)
        styles = {
            group: self.style(group) if len(bindings) == 1 else self.style(group) or FUSED
            for group, bindings in members.items()
        }
        if not any(styles.values()):
            return super().visit_block(block)
        escaping = _escaping_vars(block, groups)
        self._binding_stack.append([])
        self.in_dataflow = True
        for group in _topological_order(block, groups):
            style = styles[group]
            if style is None:
                self.visit_binding(members[group][0])
            elif escaping[group]:
                self.call_kernel(members[group], escaping[group], style)  # a kernel that nothing uses is dropped
        self.in_dataflow = False
        return replace(block, bindings=tuple(self._binding_stack.pop()))

    def call_kernel(self, bindings: list[relax.VarBinding], outputs: list[relax.Var], style: Style) -> None:
        """Emit the call that replaces the bindings of one group; other groups use the variables `outputs`."""
        kernel = make_kernel(bindings, outputs, style)
        name = self.builder.add(kernel.function, kernel.name)
        arguments = []
        for argument in kernel.arguments:
            operand = self.visit(argument)
            arguments.append(self.emit(operand) if isinstance(operand, relax.TupleGetItem) else operand)
        call = call_function(name, self.builder.module[name], tuple(arguments))
        call = replace(call, span=self.anchor(bindings).span)  # the source location of the kernel
        if len(outputs) == 1:
            (binding,) = [b for b in bindings if b.var is outputs[0]]
            self.rebind(binding, call)
            return
        results = self.emit(call)
        for binding in bindings:
            if binding.var in outputs:
                self.rebind(binding, get_item(results, outputs.index(binding.var)))


def _escaping_vars(block: relax.DataflowBlock, groups: Sequence[Hashable]) -> dict[Hashable, list[relax.Var]]:
    """Return the variables of each group that are used outside it: in other groups, or outside the block."""
    group_of = {b.var: g for b, g in zip(block.bindings, groups, strict=True)}
    escaping: dict[Hashable, dict[relax.Var, None]] = {group: {} for group in groups}
    for binding, group in zip(block.bindings, groups, strict=True):
        for var in used_vars(binding.value):  # type: ignore[attr-defined]
            producer = group_of.get(var, group)
            if producer is not group:
                escaping[producer].setdefault(var)
        if not isinstance(binding.var, relax.DataflowVar):
            escaping[group].setdefault(binding.var)
    return {group: list(variables) for group, variables in escaping.items()}


def ordering_dependences(block: relax.BindingBlock) -> dict[relax.Var, list[relax.Var]]:
    """Return, for each binding, the earlier bindings that it depends on other than by using their values.

    These are anti and flow dependences of calls that write in place: reads of the overwritten value before the call
    stay before it, later reads stay behind it. A binding that mentions a symbol also depends on the cast that defines
    it.
    """
    dependences = _symbols_defined(block)
    written = [set(written_in_place(b.value)) for b in block.bindings]  # type: ignore[attr-defined]
    if not any(written):
        return dependences
    uses = [set(used_vars(b.value)) for b in block.bindings]  # type: ignore[attr-defined]
    for index, targets in enumerate(written):
        for other, used in enumerate(uses if targets else ()):
            if other != index and used & targets:
                first, second = sorted((index, other))
                dependences.setdefault(block.bindings[second].var, []).append(block.bindings[first].var)
    return dependences


def _symbols_defined(block: relax.BindingBlock) -> dict[relax.Var, list[relax.Var]]:
    """Return, for each binding, the casts that define symbols it mentions."""
    casts: dict[relax.Var, list[relax.Var]] = {}
    cast_of: dict[tir.Var, relax.Var] = {}
    for binding in block.bindings:
        if cast_of:
            mentioned = (*mentioned_symbols(binding.value), *mentioned_symbols(binding.var.struct_info))  # type: ignore[attr-defined]
            casts[binding.var] = list(dict.fromkeys(cast_of[v] for v in mentioned if v in cast_of))
        if isinstance(binding, relax.MatchCast):
            for symbol in info_symbols(binding.struct_info):
                cast_of.setdefault(symbol, binding.var)
    return casts


def written_in_place(value: Any) -> list[relax.Var]:
    """Return the operands that a call writes into."""
    if not (isinstance(value, relax.Call) and value.op == CALL_TIR_INPLACE and isinstance(value.args[1], relax.Tuple)):
        return []
    operands = value.args[1].fields
    chosen = [operands[i] for i in value.attrs.get("inplace_indices", ()) if 0 <= i < len(operands)]
    return [v for v in chosen if isinstance(v, relax.Var)]


def _topological_order(block: relax.DataflowBlock, groups: Sequence[Hashable]) -> list[Hashable]:
    """Return the groups so that each follows those it uses, as close to the order of bindings as possible."""
    group_of = {b.var: g for b, g in zip(block.bindings, groups, strict=True)}
    dependences = ordering_dependences(block)
    uses: dict[Hashable, list[Hashable]] = {}
    for binding, group in zip(block.bindings, groups, strict=True):
        before = dependences.get(binding.var, ())
        for var in (*used_vars(binding.value), *before):  # type: ignore[attr-defined]
            other = group_of.get(var)
            if other is not None and other is not group:
                uses.setdefault(group, []).append(other)
    ordered: dict[Hashable, None] = {}
    for first in groups:
        stack = [(first, iter(uses.get(first, ())))]
        entered = {first}
        while stack:
            group, remaining = stack[-1]
            following = next((g for g in remaining if g not in ordered and g not in entered), None)
            if following is None:
                ordered.setdefault(group)
                stack.pop()
            else:
                entered.add(following)
                stack.append((following, iter(uses.get(following, ()))))
    return list(ordered)


# ---------------------------------------------------------------- the function of a group


@dataclass(frozen=True)
class Kernel:
    """A fused function, its preferred name, and the arguments that a caller passes."""

    function: relax.Function
    name: str
    arguments: list[relax.Expr]


def make_kernel(bindings: list[relax.VarBinding], outputs: list[relax.Var], style: Style = FUSED) -> Kernel:
    """Return the function of some bindings that computes `outputs`, a tuple if there are several.

    Operands from outside become parameters, in order of first use. If only fields of a tuple are used, the fields are
    passed. Symbolic variables that no parameter defines are passed as a shape.
    """
    external = _external_operands(bindings, style)
    substitutions: dict[relax.Expr, relax.Expr] = {}
    fields: dict[tuple[relax.Expr, int], relax.Var] = {}
    params: list[relax.Var] = []
    arguments: list[relax.Expr] = []
    constants = 0
    for operand, used_fields in external.items():
        if isinstance(operand, relax.Var):
            name = operand.name
        else:
            name, constants = f"param_{constants}", constants + 1
        for index in (None,) if used_fields is None else used_fields:
            argument = operand if index is None else get_item(operand, index)
            param = relax.Var(name if index is None else f"{name}_{index}", argument.struct_info)
            params.append(param)
            arguments.append(argument)
            if index is None:
                substitutions[operand] = param
            else:
                fields[operand, index] = param
    body = _function_body(bindings, outputs, substitutions, fields)
    function = make_function(tuple(params), body, style.attrs)
    symbols = free_symbols(function)
    if symbols:
        shape = shape_expr(symbols)
        arguments.append(shape)
        params.append(relax.Var("tir_vars", shape.struct_info))
        function = make_function(tuple(params), body, style.attrs)
    name = "fused" + "".join(_name_part(b.value, style.full_names) for b in bindings)
    return Kernel(renew_symbols(function), name, arguments)


def _external_operands(bindings: list[relax.VarBinding], style: Style) -> dict[relax.Expr, list[int] | None]:
    """Return variables and constants from outside, in order of first use, each with its used fields.

    The fields are None for operands that are used as a whole.
    """
    inner = {b.var for b in bindings}
    operands: dict[relax.Expr, list[int] | None] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value not in inner:
            used = operands.setdefault(value.tuple_value, [])
            if used is not None and value.index not in used:
                used.append(value.index)
            continue
        for operand in _leaves(value, style):
            if operand not in inner:
                operands[operand] = None  # keeps the position of an earlier use
    return operands


def _leaves(value: relax.Expr, style: Style) -> Iterable[relax.Expr]:
    """Yield the variables of an operation, and the constants that are passed as arguments."""
    stack = list(reversed(call_arguments(value) if isinstance(value, relax.Call) else [value]))
    while stack:
        top = stack.pop()
        if isinstance(top, relax.Tuple):
            stack.extend(reversed(top.fields))
        elif isinstance(top, relax.TupleGetItem):
            stack.append(top.tuple_value)
        elif not isinstance(top, _INLINE) and not _is_bound(top, value, style):
            yield top


def _is_bound(expr: relax.Expr, user: relax.Expr, style: Style) -> bool:
    """Return True for a constant that stays in the function: by default a scalar operand of an operator."""
    if style.bind_constants is not None:
        return style.bind_constants and isinstance(expr, relax.Constant)
    in_operator = isinstance(user, relax.Call) and user.op not in (CALL_TIR, CALL_TIR_INPLACE)
    return in_operator and isinstance(expr, relax.Constant) and expr.data.shape == ()


def _function_body(
    bindings: list[relax.VarBinding], outputs: list[relax.Var], substitutions: dict[relax.Expr, relax.Expr],
    fields: dict[tuple[relax.Expr, int], relax.Var],
) -> relax.SeqExpr:  # fmt: skip
    new_bindings = []
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and (value.tuple_value, value.index) in fields:
            substitutions[binding.var] = fields[value.tuple_value, value.index]
            continue
        is_output = binding.var in outputs
        kind = relax.Var if is_output else relax.DataflowVar
        var = kind("gv" if is_output else binding.var.name, binding.var.struct_info)
        new_bindings.append(relax.VarBinding(var, _with_operands(value, substitutions)))
        substitutions[binding.var] = var
    results = [substitutions[v] for v in outputs]
    return make_seq(
        [relax.DataflowBlock(tuple(new_bindings))], results[0] if len(results) == 1 else make_tuple(results)
    )


def _with_operands(expr: Any, substitutions: dict[relax.Expr, relax.Expr]) -> Any:
    """Rebuild an operation over other operands of the same struct info."""
    if expr in substitutions:
        return substitutions[expr]
    match expr:
        case relax.Call(args=args):
            return replace(expr, args=tuple(_with_operands(a, substitutions) for a in args))
        case relax.Tuple(fields=fields):
            return replace(expr, fields=tuple(_with_operands(f, substitutions) for f in fields))
        case relax.TupleGetItem(tuple_value=value):
            return replace(expr, tuple_value=_with_operands(value, substitutions))
    return expr


def _name_part(value: relax.Expr, full_names: bool) -> str:
    """Return the part of a fused function's name that stands for one operation."""
    callee = tir_callee(value)
    if callee is None and isinstance(value, relax.Call):
        name = str(getattr(value.op, "name", ""))
        callee = name.replace(".", "_") if full_names else name.rpartition(".")[2].removeprefix("fused_")
    return f"_{callee}" if callee else ""
