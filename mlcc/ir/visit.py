"""Rewriting and collecting over nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mlcc.ir import tir
from mlcc.ir.node import Node, find, is_leaf, map_children, map_value, walk


class Rewriter:
    """Bottom-up rewriting with a memo by identity, so that shared nodes stay shared.

    Subclasses override `rewrite` (called with a node whose children are rewritten) or, to control the descent,
    `visit`. A node that does not change is returned as it is.
    """

    def __init__(self) -> None:
        self._memo: dict[int, tuple[Node, Any]] = {}

    def visit(self, node: Any) -> Any:
        cached = self._memo.get(id(node))
        if cached is not None:
            return cached[1]
        rewritten = self.rewrite(map_children(node, self.visit))
        self._memo[id(node)] = (node, rewritten)  # holding `node` keeps its id from being used again
        return rewritten

    def rewrite(self, node: Any) -> Any:
        return node


class Substitute(Rewriter):
    """Replace nodes by identity: variables, buffers (also where they are bound), or any other node.

    `rewrite` is not called for constants and for variables without a replacement.
    """

    def __init__(self, replacements: Mapping[Any, Any]) -> None:
        super().__init__()
        for old, new in replacements.items():
            self._memo[id(old)] = (old, new)

    def visit(self, node: Any) -> Any:
        cached = self._memo.get(id(node))
        if cached is not None:
            return cached[1]
        if is_leaf(node):
            return node
        rewritten = self.rewrite(map_children(node, self.visit))
        self._memo[id(node)] = (node, rewritten)
        return rewritten


T = TypeVar("T")


def substitute(root: T, replacements: Mapping[Any, Any]) -> T:
    """Return `root`, a node or a tuple of nodes, with nodes replaced.

    A buffer whose shape or data mentions a replaced variable becomes a new buffer.
    """
    return map_value(root, Substitute(replacements).visit) if replacements else root


def fresh_var(var: tir.Var) -> tir.Var:
    """Return a new variable of the same name and type."""
    return tir.Var(var.name, var.dtype, var.pointer)


def renew_vars(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return the function with fresh variables and buffers: two functions never share one."""
    variables = {n for n in walk(func) if isinstance(n, tir.Var)}
    return substitute(func, {v: fresh_var(v) for v in variables})


def rewrite_bottom_up(root: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn(node) -> node` to every node, children first."""

    class Rule(Rewriter):
        def rewrite(self, node: Any) -> Any:
            return fn(node)

    return Rule().visit(root)


def used_vars(root: Any) -> set[tir.Var]:
    """Return all TensorIR variables that occur below `root`, bound or free."""
    return {root} if isinstance(root, tir.Var) else {n for n in walk(root) if isinstance(n, tir.Var)}


def binders(root: Any) -> dict[tir.Var, None]:
    """Return the variables bound below `root`, in order: of loops, axes, `let`s and memory."""
    variables: dict[tir.Var, None] = {}
    for node in find(root, *_BINDING):
        match node:
            case tir.For(var=var) | tir.IterVar(var=var) | tir.Bind(var=var) | tir.Let(var=var):
                variables[var] = None
            case tir.AllocBuffer(buffer=buffer):
                variables[buffer.data] = None
            case tir.MatchBufferRegion(buffer=buffer):  # which gives its offset and its strides their values, too
                variables[buffer.data] = None
                places = (buffer.elem_offset, *(buffer.strides or ()))
                variables |= dict.fromkeys(part for part in places if isinstance(part, tir.Var))
            case tir.DeclBuffer(buffer=buffer, data=data) if data is not buffer.data:
                variables[buffer.data] = None
            case tir.Block(alloc_buffers=buffers):
                variables |= dict.fromkeys(buffer.data for buffer in buffers)
    return variables


_BINDING: tuple[type[Node], ...] = (
    tir.For, tir.IterVar, tir.Bind, tir.Let, tir.AllocBuffer, tir.MatchBufferRegion, tir.DeclBuffer, tir.Block,
)  # fmt: skip


def fresh_binders(root: Any) -> dict[tir.Var, tir.Var]:
    """Return a fresh variable for each one bound below `root`, for an independent copy by substitution."""
    return {var: fresh_var_like(var) for var in binders(root)}


def fresh_var_like(var: tir.Var, suffix: str = "") -> tir.Var:
    """Return a new variable like `var`."""
    return tir.Var(var.name + suffix, var.dtype, var.pointer)


def has_block(stmts: tuple[tir.Stmt, ...]) -> bool:
    """Return True if the statements contain a block, at any depth of loops and branches."""
    stack = list(stmts)
    while stack:
        match stack.pop():
            case tir.BlockRealize():
                return True
            case tir.IfThenElse(then_body=then, else_body=other):
                stack += [*then, *(other or ())]
            case tir.For(body=inner) | tir.While(body=inner) | tir.AttrStmt(body=inner):
                stack += inner
    return False


def uncast(expr: tir.Expr) -> tir.Expr:
    """Return the expression under all casts around it."""
    while isinstance(expr, tir.Cast):
        expr = expr.value
    return expr
