"""Rewriting of buffer accesses, with the loops, axes and conditions around each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import iter_map_simplify
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import map_children, replace
from mlcc.passes.schedule.tree import Body, Stmt

Indices = tuple[tir.Expr, ...]


class AccessRewriter:
    """Rewrite a block: `access` may change the buffer and the indices of each load and store, `inner_block` a nested
    block after its body, `replaced` and `following` replace a statement or append others to it.

    `reuse` records which block became which.
    """

    def __init__(self) -> None:
        self.reuse: dict[tir.Block, tir.Block] = {}
        self._iters: dict[tir.Var, tir.Range] = {}
        self._conditions: list[tir.Expr] = []
        self._analyzer = Analyzer()
        self._plain = Analyzer()

    def access(self, buffer: tir.Buffer, indices: Indices) -> tuple[tir.Buffer, Indices]:
        return buffer, indices

    def inner_block(self, old: tir.Block, new: tir.Block) -> tir.Block:
        return new

    def replaced(self, stmt: Stmt) -> Stmt:
        return stmt

    def following(self, stmt: Stmt) -> Body:
        return ()

    def simplified(self, indices: Indices) -> Indices:
        """Return the indices as maps of the enclosing loops and axes; a plain variable stays, even if constant."""
        condition: tir.Expr = tir.TRUE
        for part in self._conditions:
            condition = c.logical_and(condition, part)
        simple = iter_map_simplify(indices, self._iters, condition, "surjective", self._analyzer)
        return tuple(
            old if isinstance(new, tir.IntImm) and isinstance(old, tir.Var) else new
            for old, new in zip(indices, simple, strict=True)
        )

    def block(self, block: tir.Block) -> tir.Block:
        """Return the rewritten `block`."""
        for axis in block.iter_vars:
            self._bind_iter(axis.var, axis.dom)
        init = None if block.init is None else self._body(block.init)
        new_block = self.inner_block(block, replace(block, init=init, body=self._body(block.body)))
        for axis in block.iter_vars:
            del self._iters[axis.var]
        if new_block is not block:
            self.reuse[block] = new_block
        return new_block

    def _bind_iter(self, var: tir.Var, span: tir.Range) -> None:
        self._iters[var] = span
        self._analyzer.bind(var, span)

    # ------------------------------------------------------------ statements

    def _body(self, body: Body) -> Body:
        stmts: list[Stmt] = []
        for stmt in body:
            stmts += (self._stmt(stmt),)
            stmts += self.following(stmt)
        return (
            body if len(stmts) == len(body) and all(a is b for a, b in zip(stmts, body, strict=True)) else tuple(stmts)
        )

    def _stmt(self, stmt: Stmt) -> Stmt:
        stmt = self.replaced(stmt)
        rewritten: Any = stmt
        match stmt:
            case tir.For():
                low, size = self._expr(stmt.min), self._expr(stmt.extent)
                self._bind_iter(stmt.var, tir.Range(low, size))
                rewritten = replace(stmt, min=low, extent=size, body=self._body(stmt.body))
                del self._iters[stmt.var]
            case tir.BlockRealize(block=block):
                values = tuple(self._expr(v) for v in stmt.values)
                same = all(a is b for a, b in zip(values, stmt.values, strict=True))
                predicate = self._expr(stmt.predicate)
                values = stmt.values if same else values
                rewritten = replace(stmt, values=values, predicate=predicate, block=self.block(block))
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                condition = self._expr(condition)
                with self._under(condition):
                    then = self._body(then)
                if other is not None:
                    with self._under(self._plain.simplify(c.logical_not(condition))):
                        other = self._body(other)
                rewritten = replace(stmt, condition=condition, then_body=then, else_body=other)
            case tir.While() | tir.AttrStmt():
                rewritten = map_children(replace(stmt, body=self._body(stmt.body)), self._leaf)
            case tir.BufferStore():
                buffer, indices = self.access(stmt.buffer, self._all(stmt.indices))
                rewritten = replace(stmt, buffer=buffer, value=self._expr(stmt.value), indices=indices)
            case _:
                rewritten = map_children(stmt, self._leaf)
        return rewritten  # type: ignore[no-any-return]

    def _leaf(self, node: Any) -> Any:
        return self._expr(node) if isinstance(node, tir.Expr) else node

    @contextmanager
    def _under(self, condition: tir.Expr) -> Iterator[None]:
        self._conditions.append(condition)
        with self._analyzer.constraint(condition):
            yield
        self._conditions.pop()

    # ------------------------------------------------------------ expressions

    def _all(self, exprs: tuple[tir.Expr, ...]) -> tuple[tir.Expr, ...]:
        rewritten = tuple(self._expr(e) for e in exprs)
        return exprs if all(a is b for a, b in zip(rewritten, exprs, strict=True)) else rewritten

    def _expr(self, expr: tir.Expr) -> tir.Expr:
        match expr:
            case tir.Var() | tir.IntImm() | tir.FloatImm() | tir.StringImm():
                return expr
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, yes, no)):
                condition = self._expr(condition)
                with self._under(condition):
                    yes = self._expr(yes)
                with self._under(self._plain.simplify(c.logical_not(condition))):
                    no = self._expr(no)
                same = all(a is b for a, b in zip((condition, yes, no), expr.args, strict=True))
                return expr if same else replace(expr, args=(condition, yes, no))
        rewritten = map_children(expr, self._leaf)
        if isinstance(rewritten, tir.BufferLoad):
            buffer, indices = self.access(rewritten.buffer, rewritten.indices)
            return replace(rewritten, buffer=buffer, indices=indices)
        return rewritten
