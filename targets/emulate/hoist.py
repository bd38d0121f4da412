"""Hoist collective calls out of expressions: each becomes the value of a binding, or a statement of its own."""

from __future__ import annotations

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.targets.emulate.collectives import is_collective, name_of


def hoist_collectives(body: Body) -> Body:
    """Hoist all collective calls. Raises CompileError for calls in operands that may not be evaluated."""
    return _Hoist().body(body)


class _Hoist(TirMutator):
    def __init__(self) -> None:
        self._before: list[Stmt] = []
        self._lazy = 0  # number of enclosing operands that may not be evaluated

    def stmt(self, node: Stmt) -> Stmt | list[Stmt]:
        outer, self._before = self._before, []
        rewritten = super().stmt(node)
        before, self._before = self._before, outer
        if not before:
            return rewritten
        return [*before, *(rewritten if isinstance(rewritten, list) else [rewritten])]

    def body(self, statements: Body) -> Body:
        outer, self._before = self._before, []
        rewritten = super().body(statements)
        self._before = outer
        return rewritten

    def stmt_bind(self, node: tir.Bind) -> Stmt | list[Stmt]:
        if is_collective(node.value) and isinstance(node.value, tir.Call):
            return tir.Bind(node.var, self._arguments(node.value), span=node.span)
        return super().stmt_bind(node)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        if is_collective(node.value) and isinstance(node.value, tir.Call):
            return tir.Evaluate(self._arguments(node.value), span=node.span)
        return super().stmt_evaluate(node)

    def stmt_while(self, node: tir.While) -> Stmt | list[Stmt]:
        self._lazy += 1
        condition = self.expr(node.condition)
        self._lazy -= 1
        return replace(node, condition=condition, body=self.body(node.body))

    def _arguments(self, node: tir.Call) -> tir.Call:
        args = self.exprs(node.args)
        return node if args is node.args else tir.Call(node.dtype, node.op, args, span=node.span)

    def expr_call(self, node: tir.Call) -> Expr:
        if name_of(node) == "tir.if_then_else":
            return self._choice(node)
        call = self._arguments(node)
        if not is_collective(node):
            return call
        if self._lazy:
            message = f"`T.{name_of(node).removeprefix('tir.')}` cannot be called conditionally inside an expression"
            text = "only some threads of a warp may evaluate this"
            raise CompileError(
                error("E0749", message, node.span, text, help="bind its value in a statement before this one")
            )
        var = tir.Var(name_of(node).removeprefix("tir.").removeprefix("tvm_"), node.dtype)
        self._before.append(tir.Bind(var, call, span=node.span))
        return var

    def _choice(self, node: tir.Call) -> Expr:
        condition = self.expr(node.args[0])
        self._lazy += 1
        rest = self.exprs(node.args[1:])
        self._lazy -= 1
        return tir.Call(node.dtype, node.op, (condition, *rest), span=node.span)

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        if not isinstance(node, (tir.And, tir.Or)):
            return super().expr_binary(node)
        lhs = self.expr(node.lhs)
        self._lazy += 1
        rhs = self.expr(node.rhs)
        self._lazy -= 1
        return type(node)(node.dtype, lhs, rhs, span=node.span)
