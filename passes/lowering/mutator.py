"""Rewriting of TensorIR code: one visit per node, written out for speed, with hooks to override.

Unlike `mlcc.ir.visit.Rewriter` it keeps no memo, so that a rule may depend on where it stands, and a statement may
become several.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.node import Attrs, Node, map_children, map_value, replace
from mlcc.ir.tir import Expr, Stmt

Body = tuple[Stmt, ...]


class TirMutator:
    """Base of rewriters: override `var`, `buffer`, `expr_*`/`stmt_*` by class name, or `expr` and `stmt` themselves.

    A method `stmt_X` returns a statement, or a list of statements to replace it.
    """

    _table: dict[type, Callable[[TirMutator, Any], Any]] = {}

    def __init_subclass__(cls) -> None:
        cls._table = {kind: getattr(cls, name) for kind, name in _METHODS.items()}

    def expr(self, node: Expr) -> Expr:
        """Return the new expression."""
        return self._table[type(node)](self, node)  # type: ignore[no-any-return]

    def stmt(self, node: Stmt) -> Stmt | list[Stmt]:
        return self._table[type(node)](self, node)  # type: ignore[no-any-return]

    def body(self, statements: Body) -> Body:
        """New statements; the same tuple if none changed."""
        rewritten: list[Stmt] = []
        changed = False
        for old in statements:
            new = self.stmt(old)
            if new is old:
                rewritten.append(old)
                continue
            changed = True
            rewritten.extend(new) if isinstance(new, list) else rewritten.append(new)
        return tuple(rewritten) if changed else statements

    def var(self, node: tir.Var) -> Expr:
        """A use of a variable."""
        return node

    def binder(self, node: tir.Var) -> tir.Var:
        """Visit a variable where it is bound."""
        return node

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        """A use of a buffer."""
        return node

    def buffer_binder(self, node: tir.Buffer) -> tir.Buffer:
        """Visit a buffer where it is allocated or declared."""
        return self.buffer(node)

    # ------------------------------------------------------------ expressions

    def exprs(self, nodes: tuple[Expr, ...]) -> tuple[Expr, ...]:
        rewritten = [self.expr(n) for n in nodes]
        for old, new in zip(nodes, rewritten, strict=True):
            if old is not new:
                return tuple(rewritten)
        return nodes

    def leaf(self, node: Expr) -> Expr:
        return node

    def expr_var(self, node: tir.Var) -> Expr:
        return self.var(node)

    def expr_binary(self, node: tir.BinaryOp) -> Expr:
        lhs, rhs = self.expr(node.lhs), self.expr(node.rhs)
        return node if lhs is node.lhs and rhs is node.rhs else type(node)(node.dtype, lhs, rhs, span=node.span)

    def expr_cast(self, node: tir.Cast) -> Expr:
        value = self.expr(node.value)
        return node if value is node.value else tir.Cast(node.dtype, value, span=node.span)

    def expr_not(self, node: tir.Not) -> Expr:
        value = self.expr(node.value)
        return node if value is node.value else tir.Not(node.dtype, value, span=node.span)

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        buffer, indices = self.buffer(node.buffer), self.exprs(node.indices)
        if buffer is node.buffer and indices is node.indices:
            return node
        return tir.BufferLoad(node.dtype, buffer, indices, span=node.span)

    def expr_call(self, node: tir.Call) -> Expr:
        args = self.exprs(node.args)
        return node if args is node.args else tir.Call(node.dtype, node.op, args, span=node.span)

    def expr_let(self, node: tir.Let) -> Expr:
        value = self.expr(node.value)
        var, body = self.binder(node.var), self.expr(node.body)
        return replace(node, var=var, value=value, body=body)

    def expr_generic(self, node: Expr) -> Expr:
        """Select, Ramp, Broadcast, Shuffle: all their nodes are expressions."""
        return map_children(node, self.expr)

    # ------------------------------------------------------------ statements

    def stmt_bind(self, node: tir.Bind) -> Stmt | list[Stmt]:
        value = self.expr(node.value)
        return replace(node, var=self.binder(node.var), value=value)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        buffer, value, indices = self.buffer(node.buffer), self.expr(node.value), self.exprs(node.indices)
        if buffer is node.buffer and value is node.value and indices is node.indices:
            return node
        return tir.BufferStore(buffer, value, indices, span=node.span)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        return replace(node, buffer=self.buffer_binder(node.buffer))

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        data = self.expr(node.data)
        return replace(node, buffer=self.buffer_binder(node.buffer), data=data)

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        value = self.expr(node.value)
        return node if value is node.value else tir.Evaluate(value, span=node.span)

    def stmt_assert(self, node: tir.AssertStmt) -> Stmt | list[Stmt]:
        return replace(node, condition=self.expr(node.condition))

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        condition, then = self.expr(node.condition), self.body(node.then_body)
        other = None if node.else_body is None else self.body(node.else_body)
        return replace(node, condition=condition, then_body=then, else_body=other)

    def stmt_while(self, node: tir.While) -> Stmt | list[Stmt]:
        return replace(node, condition=self.expr(node.condition), body=self.body(node.body))

    def stmt_leaf(self, node: Stmt) -> Stmt | list[Stmt]:
        return node

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        subject, value = (map_value(v, self.node) for v in (node.subject, node.value))
        return replace(node, subject=subject, value=value, body=self.body(node.body))

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        start, extent = self.expr(node.min), self.expr(node.extent)
        step = None if node.step is None else self.expr(node.step)
        annotations = self.annotations(node.annotations)
        return replace(
            node, min=start, extent=extent, step=step, annotations=annotations, var=self.binder(node.var),
            body=self.body(node.body),
        )  # fmt: skip

    def annotations(self, attrs: Attrs) -> Attrs:
        return map_value(attrs, self.node) if attrs else attrs

    def node(self, node: Node) -> Node:
        """Visit a node in an annotation: an expression, a buffer, or a node that contains such."""
        if isinstance(node, Expr):
            return self.expr(node)
        if isinstance(node, tir.Buffer):
            return self.buffer(node)
        return map_children(node, self.node)

    def stmt_realize(self, node: tir.BlockRealize) -> Stmt | list[Stmt]:
        message = f"`{node.block.name}` is a block, but the module must not have any at its stage (`mlcc.stage`)"
        raise CompileError(error("E0545", message, node.block.span))


_LEAVES = (tir.IntImm, tir.FloatImm, tir.StringImm)
_BINARY = (
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.EQ, tir.NE, tir.LT,
    tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)  # fmt: skip
_METHODS: dict[type, str] = {
    **dict.fromkeys(_LEAVES, "leaf"), **dict.fromkeys(_BINARY, "expr_binary"), tir.Var: "expr_var",
    tir.Cast: "expr_cast", tir.Not: "expr_not", tir.BufferLoad: "expr_load", tir.Call: "expr_call", tir.Let: "expr_let",
    tir.Select: "expr_generic", tir.Ramp: "expr_generic", tir.Broadcast: "expr_generic", tir.Shuffle: "expr_generic",
    tir.Reduce: "expr_generic",
    tir.Bind: "stmt_bind", tir.BufferStore: "stmt_store", tir.AllocBuffer: "stmt_alloc", tir.DeclBuffer: "stmt_decl",
    tir.Evaluate: "stmt_evaluate", tir.AssertStmt: "stmt_assert", tir.IfThenElse: "stmt_if", tir.While: "stmt_while",
    tir.Break: "stmt_leaf", tir.Continue: "stmt_leaf", tir.AttrStmt: "stmt_attr", tir.For: "stmt_for",
    tir.BlockRealize: "stmt_realize",
}  # fmt: skip
