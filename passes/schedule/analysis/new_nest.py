"""The loops around a block at a new place, built from the domains of its axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set, from_range, to_range
from mlcc.arith.proofs import factors, is_one
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr
from mlcc.ir.visit import Rewriter
from mlcc.passes.schedule.analysis.axis_domains import AxisDomain


class NewNest:
    """New loops for `block` under the loops `around`, outermost first; `realize` binds its axes there."""

    def __init__(self, block: tir.Block, around: Sequence[tir.For], analyzer: Analyzer) -> None:
        self._block, self._analyzer, self.around = block, analyzer, around
        self._ranges = {f.var: tir.Range(f.min, f.extent) for f in around}
        self.loops: list[tir.For] = []
        self.realize: tir.BlockRealize

    def make(self, domains: Sequence[AxisDomain], preserve_unit_loops: bool) -> tir.Stmt:
        spans: list[tuple[tir.Var, Expr]] = []
        values: list[Expr] = []
        predicate: Expr = tir.TRUE
        plain = Analyzer()
        for axis, domain in zip(self._block.iter_vars, domains, strict=True):
            span = to_range(domain.dom, axis.dom, plain)
            value = span.min
            if preserve_unit_loops or not is_one(span.extent):
                dtype = span.min.dtype if span.min.dtype.bits >= span.extent.dtype.bits else span.extent.dtype
                var = tir.Var(f"ax{len(spans)}", dtype)
                spans.append((var, self._analyzer.simplify(span.extent)))
                value = c.add(span.min, var)
                self._ranges[var] = tir.Range(c.const(0, dtype), span.extent)
                self._analyzer.bind(var, self._ranges[var])
            values.append(_in_axis_dtype(value, axis.var))
            for condition in self._conditions(value, domain.bound):
                predicate = c.logical_and(predicate, condition)
        self.realize = tir.BlockRealize(tuple(values), self._analyzer.simplify(predicate), self._block)
        nest: tir.Stmt = self.realize
        for var, extent in reversed(spans):
            nest = tir.For(var, c.const(0, var.dtype), extent, tir.ForKind.SERIAL, (nest,))
            self.loops.insert(0, nest)
        return nest

    def _conditions(self, value: Expr, bound: Interval) -> list[Expr]:
        """Return the conditions under which `value` lies in `bound`, without those that are provable."""
        conditions = []
        if bound.low is not None and not self._proves(c.sub(value, bound.low), 0):
            conditions.append(c.greater_equal(value, bound.low))
        if bound.high is not None and not self._proves(c.sub(c.add(bound.high, 1), value), 1):
            conditions.append(c.less(value, c.add(bound.high, 1)))
        return conditions

    def _proves(self, room: Expr, least: int) -> bool:
        """Return True if `room >= least` is proved for all iterations and all values of symbols."""
        analyzer = self._analyzer
        if analyzer.prove(c.greater_equal(room, least)):
            return True
        intervals = {var: from_range(span) for var, span in self._ranges.items()}
        low = eval_set(analyzer.simplify(room), intervals, analyzer).low
        if low is None:
            return False
        low = analyzer.simplify(low)
        return analyzer.bound(analyzer.simplify(_Quotients().visit(low))).min >= least


def _in_axis_dtype(value: Expr, axis: tir.Var) -> Expr:
    """Return `value` for an axis that may be narrower than the new loops: its domain holds in its own dtype."""
    return c.cast(axis.dtype, value) if value.dtype.bits > axis.dtype.bits else value


class _Quotients(Rewriter):
    """(x * n + r) // n -> x + r // n; -1 // n -> -1 and 0 // n -> 0, for symbols n > 0: extents of loops that run."""

    def rewrite(self, node: Any) -> Any:
        if not isinstance(node, tir.FloorDiv) or not isinstance(node.rhs, tir.Var):
            return node
        by, quotient, rest = node.rhs, c.const(0, node.dtype), c.const(0, node.dtype)
        for sign, term in _terms(node.lhs):
            parts = factors(term)
            at = next((k for k, part in enumerate(parts) if part is by), None)
            if at is None:
                rest = sign(rest, term)
                continue
            product = c.const(1, node.dtype)
            for part in (*parts[:at], *parts[at + 1 :]):
                product = c.mul(product, part)
            quotient = sign(quotient, product)
        const_rest = tir.const_int(rest)
        return c.add(quotient, rest if const_rest in (0, -1) else c.floordiv(rest, by))


def _terms(value: Expr) -> list[tuple[Callable[[Expr, Expr], Expr], Expr]]:
    """Return the terms of a sum, each with the function (`add` or `sub`) that accumulates it."""
    terms: list[tuple[Callable[[Expr, Expr], Expr], Expr]] = []
    stack: list[tuple[bool, Expr]] = [(True, value)]
    while stack:
        plus, top = stack.pop()
        match top:
            case tir.Add(lhs=a, rhs=b):
                stack += [(plus, b), (plus, a)]
            case tir.Sub(lhs=a, rhs=b):
                stack += [(not plus, b), (plus, a)]
            case _:
                terms.append((c.add if plus else c.sub, top))
    return terms
