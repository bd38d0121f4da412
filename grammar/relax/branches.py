"""`if` in relax functions: both branches bind one name, which is the value of the whole."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.errors import Label
from mlcc.grammar.context import Skip
from mlcc.grammar.relax import expr as relax_expr
from mlcc.grammar.relax.scope import BlockCollector, FunctionWalk
from mlcc.grammar.syntax import tree
from mlcc.ir import relax
from mlcc.ir.node import replace
from mlcc.ops.relations import common_supertype

Statements = Callable[[tree.Body], None]


def if_statement(fw: FunctionWalk, cst: tree.If, statements: Statements) -> None:
    """Walk an `if`, its branches by `statements`, and bind its value."""
    walk = fw.walk
    if fw.out.in_dataflow:
        walk.fail("E0417", "`if` is not allowed inside a dataflow block", cst.condition, help="end the block before it")
    if not cst.other:
        help = "its value is that of one branch"
        walk.fail("E0417", "an `if` of a relax function must have an `else`", cst.condition, help=help)
    condition = _condition(fw, cst.condition)
    before = len(walk.diagnostics)
    then, name, place = _branch(fw, statements, cst, cst.then, "then")
    other, second, at = _branch(fw, statements, cst, cst.other, "else")
    if name != second:
        related = (Label(walk.span(place), f"the other branch ends by binding `{name}`"),)
        label = "bind the same name in both branches"
        walk.fail("E0417", f"this branch ends by binding `{second}`", at, label, related=related)
    if len(walk.diagnostics) != before:
        raise Skip
    info = common_supertype(_known(then), _known(other))
    branch = relax.If(condition, then, other, info, span=walk.span(cst.condition))
    var = fw.variable(name, place.start, info, walk.span(place))
    fw.out.bindings.append(relax.VarBinding(var, branch, span=walk.span(cst.condition)))
    fw.define(place, var)


def _known(branch: relax.SeqExpr) -> relax.StructInfo:
    return branch.struct_info or relax.ObjectStructInfo()


def _condition(fw: FunctionWalk, cst: tree.Expr) -> relax.Expr:
    """Evaluate a condition: a bool scalar, or a bool tensor without dimensions."""
    test = fw.leaf(relax_expr.expression(fw, cst))
    info = test.struct_info
    if isinstance(info, relax.TensorStructInfo):
        wrong = info.ndim not in (-1, 0) or not (info.dtype is None or info.dtype.is_bool)
    elif isinstance(info, relax.PrimStructInfo):
        wrong = not info.dtype.is_bool
    else:
        wrong = info is not None and not isinstance(info, relax.ObjectStructInfo)
    if wrong:
        fw.walk.note("E0417", "a condition must be a single bool", cst, help="a tensor without dimensions, or a scalar")
    return test


def _branch(
    fw: FunctionWalk, statements: Statements, cst: tree.If, body: tree.Body, which: str
) -> tuple[relax.SeqExpr, str, tree.Name]:
    """A branch as a sequence, the name that it binds last, and where."""
    walk = fw.walk
    saved, fw.out = fw.out, BlockCollector()
    before = len(walk.diagnostics)
    fw.inside += 1
    try:
        with fw.scope.frame(", and is visible in that branch only"):
            statements(body)
        fw.out.close()
        blocks = fw.out.blocks
    finally:
        fw.inside -= 1
        fw.out = saved
    if len(walk.diagnostics) != before:
        raise Skip
    last = blocks[-1].bindings[-1] if blocks and blocks[-1].bindings else None
    if last is None or isinstance(last.var, relax.DataflowVar) or last.var.span is None or last.var.name == "_":
        at: tree.Stmt = body[-1] if body else cst
        help = "bind the same name in both branches"
        walk.fail("E0417", "a branch must end by binding its value to a name", at, help=help)
    place = tree.Name(last.var.span.start, last.var.span.end, last.var.name)
    return _as_sequence(blocks, last, which), last.var.name, place


_COMPUTING = (relax.Call, relax.TupleGetItem, relax.If, relax.Function, relax.SeqExpr)


def _as_sequence(blocks: list[relax.BindingBlock], last: relax.Binding, which: str) -> relax.SeqExpr:
    """The value of a branch is that of its last binding, which is dropped if it computes nothing."""
    rest = blocks[-1].bindings[:-1]
    computes = not isinstance(last, relax.VarBinding) or isinstance(last.value, _COMPUTING)
    if not computes and not isinstance(blocks[-1], relax.DataflowBlock):
        body: relax.Expr = last.value  # type: ignore[attr-defined]
        info = last.var.struct_info or body.struct_info
        new_blocks = [*blocks[:-1], replace(blocks[-1], bindings=rest)] if rest else blocks[:-1]
        return relax.SeqExpr(tuple(new_blocks), body, info, span=last.span)
    var = type(last.var)(f"{last.var.name}_{which}", last.var.struct_info, span=last.var.span)
    new_blocks = [*blocks[:-1], replace(blocks[-1], bindings=(*rest, replace(last, var=var)))]
    return relax.SeqExpr(tuple(new_blocks), var, var.struct_info, span=last.span)
