"""Fusion: operations that belong in one kernel move into functions of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.node import Attrs, replace
from mlcc.ops import FusionKind
from mlcc.passes.fusion_graph import Group, Node, partition
from mlcc.passes.graph import (
    CALL_TIR,
    CALL_TIR_INPLACE,
    PRIMITIVE,
    Mutator,
    call_arguments,
    call_function,
    get_item,
    is_primitive,
    make_function,
    make_seq,
    same_info,
    shape_expr,
    tir_callee,
    used_vars,
)
from mlcc.passes.manager import Pass, PassContext
from mlcc.passes.op_pattern import kind_of
from mlcc.passes.symbolic import free_symbols, renew_symbols
from mlcc.relax.module_builder import ModuleBuilder

# operands that are written again inside a fused function instead of passed to it
_INLINE = (relax.ShapeExpr, relax.PrimValue, relax.StringImm, relax.DataTypeImm, relax.GlobalVar, relax.ExternFunc)


@dataclass(frozen=True)
class Fuse(Pass):
    """Group operations of dataflow blocks into functions with the attribute Primitive, one kernel each.

    Works on operators and on `call_tir` alike: kinds come from the operator table, the attribute `op_pattern`, or the
    blocks of the TIR function. An operation joins the one that all paths from it lead to, so nothing is computed
    twice. Functions that have the attribute are left alone. Level 0 fuses nothing.

    Before:  lv = R.matmul(x, w)
             lv1 = R.add(lv, b)
             gv = R.nn.relu(lv1)
    After:   gv = cls.fused_matmul_add_relu(x, w, b)
    """

    name: ClassVar[str] = "fuse"
    level: int = 2

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        if self.level <= 0:
            return module.copy()
        builder = ModuleBuilder(module)
        kinds = _Kinds(module)
        for name in sorted(module):
            func = module[name]
            if isinstance(func, relax.Function) and not is_primitive(func) and "Codegen" not in func.attrs:
                builder.module.functions[name] = _Fuser(builder, kinds).visit_function(func)
        return builder.module


class _Kinds:
    """Fusion kinds of the values that bindings have."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self._of_function: dict[str, FusionKind] = {}

    def of(self, value: relax.Expr) -> FusionKind:
        if isinstance(value, relax.TupleGetItem):
            return FusionKind.INJECTIVE
        if not isinstance(value, relax.Call):
            return FusionKind.OPAQUE
        callee = tir_callee(value)
        if callee is None:
            return _operator_kind(value)
        plain = value.op == CALL_TIR and isinstance(value.args[1], relax.Tuple)
        return self._function(callee) if plain else FusionKind.OPAQUE

    def _function(self, name: str) -> FusionKind:
        if name not in self._of_function:
            func = self.module.functions.get(name)
            self._of_function[name] = kind_of(func) if isinstance(func, tir.PrimFunc) else FusionKind.OPAQUE
        return self._of_function[name]


def _operator_kind(call: relax.Call) -> FusionKind:
    """The kind of an operator's call; opaque if it could not be lowered."""
    known = ops.get(call.op.name) if isinstance(call.op, tir.Op) else None
    if known is None or known.impl.lower is None or not known.pure:
        return FusionKind.OPAQUE
    if not all(_is_known(e.struct_info) for e in (*call.args, call)):
        return FusionKind.OPAQUE
    tensors = [a for a in call.args if isinstance(a.struct_info, relax.TensorStructInfo)]
    if known.kind is FusionKind.BROADCAST and any(_same_shape(a, call) for a in tensors):
        return FusionKind.ELEMWISE  # it follows the layout of one of its operands
    return known.kind


def _is_known(info: relax.StructInfo | None) -> bool:
    """Whether all shapes in a struct info are known expressions."""
    match info:
        case relax.TensorStructInfo():
            return info.dims is not None and info.dtype is not None
        case relax.ShapeStructInfo(values=values):
            return values is not None
        case relax.TupleStructInfo(fields=fields):
            return all(map(_is_known, fields))
        case relax.PrimStructInfo():
            return True
    return info is not None and not isinstance(info, relax.FuncStructInfo)


def _same_shape(a: relax.Expr, b: relax.Expr) -> bool:
    left, right = a.struct_info, b.struct_info
    if not (isinstance(left, relax.TensorStructInfo) and isinstance(right, relax.TensorStructInfo)):
        return False
    return same_info(left.shape.struct_info if left.shape else None, right.shape.struct_info if right.shape else None)


class _Fuser(Mutator):
    """Rewrites one function; new functions go to the builder."""

    def __init__(self, builder: ModuleBuilder, kinds: _Kinds) -> None:
        super().__init__(builder.module)
        self.builder = builder
        self.kinds = kinds

    def visit_block(self, block: relax.BindingBlock) -> relax.BindingBlock:
        if not isinstance(block, relax.DataflowBlock):
            return super().visit_block(block)
        groups = self.groups(block)
        if len(set(groups)) == len(groups):
            return super().visit_block(block)
        used = {v for b in block.bindings for v in used_vars(b.value)}  # type: ignore[attr-defined]
        members: dict[Group, list[Any]] = {}
        for binding, group in zip(block.bindings, groups, strict=True):
            members.setdefault(group, []).append(binding)
        self._made.append([])
        self.in_dataflow = True
        for group in _by_dependence(block, groups):
            if len(members[group]) == 1:
                self.visit_binding(members[group][0])
            elif members[group][-1].var in used or not isinstance(members[group][-1].var, relax.DataflowVar):
                self.call_kernel(members[group])  # a kernel that nothing uses is dropped
        self.in_dataflow = False
        return replace(block, bindings=tuple(self._made.pop()))  # type: ignore[no-any-return]

    def groups(self, block: relax.DataflowBlock) -> list[Group]:
        """The group of each binding of a block."""
        nodes: list[Node] = []
        producer: dict[relax.Var, Node] = {}
        for index, binding in enumerate(block.bindings):
            value = binding.value  # type: ignore[attr-defined]
            plain = isinstance(binding, relax.VarBinding)
            kind = self.kinds.of(value) if plain else FusionKind.OPAQUE
            node = Node(index, kind, not isinstance(binding.var, relax.DataflowVar))
            for var in used_vars(value):
                if var in producer:
                    producer[var].users.append((node, kind))
            nodes.append(node)
            producer[binding.var] = node
        return partition(nodes)

    def call_kernel(self, bindings: list[relax.VarBinding]) -> None:
        """Emit the call that stands for the bindings of one group; the last one is the only one that others use."""
        kernel = make_kernel(bindings)
        name = self.builder.add(kernel.function, kernel.name)
        arguments = []
        for argument in kernel.arguments:
            made = self.visit(argument)
            arguments.append(self.emit(made) if isinstance(made, relax.TupleGetItem) else made)
        call = call_function(name, self.builder.module[name], tuple(arguments))
        self.rebind(bindings[-1], call)


def _by_dependence(block: relax.DataflowBlock, groups: list[Group]) -> list[Group]:
    """The groups in an order in which each stands behind those it uses, as near to the order of bindings as can be."""
    group_of = {b.var: g for b, g in zip(block.bindings, groups, strict=True)}
    uses: dict[Group, list[Group]] = {}
    for binding, group in zip(block.bindings, groups, strict=True):
        for var in used_vars(binding.value):  # type: ignore[attr-defined]
            other = group_of.get(var)
            if other is not None and other is not group:
                uses.setdefault(group, []).append(other)
    done: dict[Group, None] = {}
    for first in groups:
        stack = [(first, iter(uses.get(first, ())))]
        entered = {first}
        while stack:
            group, remaining = stack[-1]
            following = next((g for g in remaining if g not in done and g not in entered), None)
            if following is None:
                done.setdefault(group)
                stack.pop()
            else:
                entered.add(following)
                stack.append((following, iter(uses.get(following, ()))))
    return list(done)


# ---------------------------------------------------------------- the function of a group


@dataclass(frozen=True)
class Kernel:
    """A fused function, the name it asks for, and what a caller passes to it."""

    function: relax.Function
    name: str
    arguments: list[relax.Expr]


def make_kernel(bindings: list[relax.VarBinding]) -> Kernel:
    """The function of some bindings, of which only the last one's variable is used elsewhere.

    Operands from outside become parameters, in order of first use. Of a tuple of which only fields are used, the
    fields are passed. Symbolic variables that no parameter defines are passed as a shape.
    """
    outer = _outer_operands(bindings)
    stands_for: dict[relax.Expr, relax.Expr] = {}
    fields: dict[tuple[relax.Expr, int], relax.Var] = {}
    params: list[relax.Var] = []
    arguments: list[relax.Expr] = []
    constants = 0
    for operand, used_fields in outer.items():
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
                stands_for[operand] = param
            else:
                fields[operand, index] = param
    body = _body(bindings, stands_for, fields)
    function = make_function(tuple(params), body, Attrs({PRIMITIVE: True}))
    symbols = free_symbols(function)
    if symbols:
        shape = shape_expr(symbols)
        arguments.append(shape)
        params.append(relax.Var("tir_vars", shape.struct_info))
        function = make_function(tuple(params), body, Attrs({PRIMITIVE: True}))
    name = "fused" + "".join(_name_part(b.value) for b in bindings)
    return Kernel(renew_symbols(function), name, arguments)


def _outer_operands(bindings: list[relax.VarBinding]) -> dict[relax.Expr, list[int] | None]:
    """Variables and constants from outside, in order of first use; with the fields used, if not used as a whole."""
    inner = {b.var for b in bindings}
    found: dict[relax.Expr, list[int] | None] = {}
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and value.tuple_value not in inner:
            used = found.setdefault(value.tuple_value, [])
            if used is not None and value.index not in used:
                used.append(value.index)
            continue
        for operand in _leaves(value):
            if operand not in inner:
                found[operand] = None  # keeps the place of an earlier use of a field
    return found


def _leaves(value: relax.Expr) -> Iterable[relax.Expr]:
    """The variables, and the constants that are passed, in an operation."""
    stack = list(reversed(call_arguments(value) if isinstance(value, relax.Call) else [value]))
    while stack:
        top = stack.pop()
        if isinstance(top, relax.Tuple):
            stack.extend(reversed(top.fields))
        elif isinstance(top, relax.TupleGetItem):
            stack.append(top.tuple_value)
        elif not isinstance(top, _INLINE) and not _is_scalar_operand(top, value):
            yield top


def _is_scalar_operand(expr: relax.Expr, user: relax.Expr) -> bool:
    """A scalar constant of an operator, which becomes a number inside the kernel."""
    in_operator = isinstance(user, relax.Call) and user.op not in (CALL_TIR, CALL_TIR_INPLACE)
    return in_operator and isinstance(expr, relax.Constant) and expr.data.shape == ()


def _body(
    bindings: list[relax.VarBinding], stands_for: dict[relax.Expr, relax.Expr],
    fields: dict[tuple[relax.Expr, int], relax.Var],
) -> relax.SeqExpr:  # fmt: skip
    made = []
    for binding in bindings:
        value = binding.value
        if isinstance(value, relax.TupleGetItem) and (value.tuple_value, value.index) in fields:
            stands_for[binding.var] = fields[value.tuple_value, value.index]
            continue
        last = binding is bindings[-1]
        kind = relax.Var if last else relax.DataflowVar
        var = kind("gv" if last else binding.var.name, binding.var.struct_info)
        made.append(relax.VarBinding(var, _with_operands(value, stands_for)))
        stands_for[binding.var] = var
    result = stands_for[bindings[-1].var]
    return make_seq([relax.DataflowBlock(tuple(made))], result)


def _with_operands(expr: Any, stands_for: dict[relax.Expr, relax.Expr]) -> Any:
    """An operation with other operands of the same struct info."""
    if expr in stands_for:
        return stands_for[expr]
    match expr:
        case relax.Call(args=args):
            return replace(expr, args=tuple(_with_operands(a, stands_for) for a in args))
        case relax.Tuple(fields=fields):
            return replace(expr, fields=tuple(_with_operands(f, stands_for) for f in fields))
        case relax.TupleGetItem(tuple_value=value):
            return replace(expr, tuple_value=_with_operands(value, stands_for))
    return expr


def _name_part(value: relax.Expr) -> str:
    """What an operation adds to the name of a fused function."""
    callee = tir_callee(value)
    if callee is None and isinstance(value, relax.Call):
        callee = str(getattr(value.op, "name", "")).rpartition(".")[2].removeprefix("fused_")
    return f"_{callee}" if callee else ""
