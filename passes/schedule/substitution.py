"""Rewrites shared by several primitives: substitution in a subtree, added predicates, simplified bindings.

Each keeps the record of which block became which, for `Rebuild.reuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import eval_set, from_range
from mlcc.arith.iter_map import iter_map_simplify
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, IntImm
from mlcc.ir.visit import Substitute, used_vars
from mlcc.passes.schedule.tree import Body, Stmt

Reuse = dict[tir.Block, tir.Block]


class TrackedSubstitute(Substitute):
    """Substitution of nodes by identity that notes in `reuse` each block of which it makes another."""

    def __init__(self, replacements: Mapping[Any, Any], reuse: Reuse | None = None) -> None:
        super().__init__(replacements)
        self.reuse: Reuse = {} if reuse is None else reuse
        self.replaced = replacements.keys()

    def keep(self, nodes: Iterable[tir.Stmt]) -> None:
        """Keep statements known to mention nothing that is replaced, without visiting them."""
        self._memo.update((id(node), (node, node)) for node in nodes)

    def visit(self, node: Any) -> Any:
        rewritten = super().visit(node)
        if rewritten is not node and isinstance(node, tir.Block):
            self.reuse[node] = rewritten
        return rewritten


def substitute_vars(body: Body, values: Mapping[tir.Var, Expr], reuse: Reuse) -> Body:
    """Return `body` with variables replaced, each value cast to the dtype of its variable."""
    rewriter = TrackedSubstitute({v: c.cast(v.dtype, value) for v, value in values.items()}, reuse)
    return tuple(rewriter.visit(stmt) for stmt in body)


def map_realizes(body: Body, change: Callable[[tir.BlockRealize], Stmt]) -> Body:
    """Apply `change` to the outermost blocks of some statements."""
    mapped = tuple(_mapped(stmt, change) for stmt in body)
    return body if all(new is old for new, old in zip(mapped, body, strict=True)) else mapped


def _mapped(stmt: Stmt, change: Callable[[tir.BlockRealize], Stmt]) -> Stmt:
    match stmt:
        case tir.BlockRealize():
            return change(stmt)
        case tir.IfThenElse(then_body=then, else_body=other):
            otherwise = None if other is None else map_realizes(other, change)
            return replace(stmt, then_body=map_realizes(then, change), else_body=otherwise)
        case tir.For() | tir.While() | tir.AttrStmt():
            return replace(stmt, body=map_realizes(stmt.body, change))
    return stmt


def add_predicate(body: Body, predicate: Expr) -> Body:
    """Add `predicate` to the predicates of the outermost blocks."""
    return map_realizes(body, lambda r: replace(r, predicate=c.logical_and(r.predicate, predicate)))


def simplify_bindings(stmt: Stmt, above: Iterable[tir.For], preserve_unit_iters: bool, reuse: Reuse) -> Stmt:
    """Simplify the bindings of the blocks in `stmt` to canonical maps of loops.

    `above` are the loops around `stmt`. Blocks without axes are looked into; others keep their inside.
    """
    ranges = {loop.var: tir.Range(loop.min, loop.extent) for loop in above}
    return _BindingSimplifier(ranges, not preserve_unit_iters, reuse).stmt(stmt)


class _BindingSimplifier:
    def __init__(self, ranges: dict[tir.Var, tir.Range], simplify_trivial: bool, reuse: Reuse) -> None:
        self._ranges, self._simplify_trivial = ranges, simplify_trivial
        self._analyzer = Analyzer()
        self._reuse = reuse
        self._origin = {new: old for old, new in reuse.items()}

    def body(self, body: Body) -> Body:
        stmts = tuple(self.stmt(stmt) for stmt in body)
        return body if all(new is old for new, old in zip(stmts, body, strict=True)) else stmts

    def stmt(self, stmt: Stmt) -> Stmt:
        rewritten: Any = stmt
        match stmt:
            case tir.For(var=var):
                self._ranges[var] = tir.Range(stmt.min, stmt.extent)
                rewritten = replace(stmt, body=self.body(stmt.body))
                del self._ranges[var]
            case tir.BlockRealize(values=()):
                rewritten = replace(stmt, block=self._opaque(stmt.block))
            case tir.BlockRealize():
                values = iter_map_simplify(
                    stmt.values, self._ranges, stmt.predicate,
                    analyzer=self._analyzer, simplify_trivial=self._simplify_trivial,
                )  # fmt: skip
                if any(new is not old for new, old in zip(values, stmt.values, strict=True)):
                    rewritten = replace(stmt, values=values)
            case tir.IfThenElse(then_body=then, else_body=other):
                otherwise = None if other is None else self.body(other)
                rewritten = replace(stmt, then_body=self.body(then), else_body=otherwise)
            case tir.While() | tir.AttrStmt():
                rewritten = replace(stmt, body=self.body(stmt.body))
        return rewritten  # type: ignore[no-any-return]

    def _opaque(self, block: tir.Block) -> tir.Block:
        init = None if block.init is None else self.body(block.init)
        new_block: tir.Block = replace(block, init=init, body=self.body(block.body))
        if new_block is not block:
            self._reuse[self._origin.get(block, block)] = new_block
        return new_block


def proves_below(analyzer: Analyzer, value: Expr, limit: Expr, ranges: Mapping[tir.Var, tir.Range]) -> bool:
    """Return True if `value < limit` is proved for variables in `ranges`, whose ends may be symbolic."""
    if analyzer.prove(c.less(value, limit)):
        return True
    if isinstance(limit, IntImm) and all(isinstance(r.extent, IntImm) for r in ranges.values()):
        return False
    room = analyzer.simplify(c.sub(limit, value))
    least = eval_set(room, {var: from_range(span) for var, span in ranges.items()}, analyzer).low
    return least is not None and analyzer.bound(analyzer.simplify(least)).min >= 1


def used_by(body: Body | Stmt | Expr, variables: Iterable[tir.Var]) -> list[tir.Var]:
    """Return those of `variables` that occur below `body`, in their order."""
    used = used_vars(body)
    return [var for var in variables if var in used]
