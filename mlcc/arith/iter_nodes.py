"""Quasi-affine index expressions as sums of pieces of iterators, and the way back to expressions.

An `IterMark` is an iterator: `source` runs over 0 .. extent - 1. A source is a variable, an expression, or itself a sum
(iterators that were fused). An `IterSplit` is one digit of it, `(source // lower_factor) % extent * scale`, and an
`IterSum` adds digits and a base.
"""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.proofs import Proofs, is_one, product
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Node, node, walk
from mlcc.ir.tir import Expr, IntImm


@node
class IterMark(Node):
    """An iterator: `source` takes the values 0 .. extent - 1."""

    source: Expr | IterSplit | IterSum
    extent: Expr


@node
class IterSplit(Node):
    """`(source // lower_factor) % extent * scale`."""

    source: IterMark
    lower_factor: Expr
    extent: Expr
    scale: Expr


@node
class IterSum(Node):
    """The sum of `args` and `base`; no iterator occurs in `base`."""

    args: tuple[IterSplit, ...]
    base: Expr


Value = Expr | IterSum  # of a subexpression: without iterators, or with


def whole_split(mark: IterMark, scale: Expr | None = None) -> IterSplit:
    """Return a whole iterator as one digit."""
    one = IntImm(mark.extent.dtype, 1)
    return IterSplit(mark, one, mark.extent, one if scale is None else scale)


class IterToExpr:
    """Converts sums and digits to expressions."""

    def __init__(self, proofs: Proofs) -> None:
        self._proofs = proofs
        self._exprs: dict[Node, Expr] = {}

    def expr(self, value: Value | IterSplit) -> Expr:
        """Return `value` as an expression; one without iterators is returned unchanged."""
        if isinstance(value, Expr):
            return value
        spelled = self._exprs.get(value)
        if spelled is None:
            spelled = self._exprs[value] = self._sum(value) if isinstance(value, IterSum) else self._split(value)
        return spelled

    def _sum(self, value: IterSum) -> Expr:
        total: Expr = c.const(0)
        for arg in value.args:
            total = c.add(total, self.expr(arg))
        return c.add(total, value.base)

    def _split(self, digit: IterSplit) -> Expr:
        mark, lower, extent = digit.source, digit.lower_factor, digit.extent
        source = self.expr(mark.source)
        if is_one(lower) and self._same(extent, mark.extent):
            return c.mul(source, digit.scale)
        if self._covers(digit):
            if is_one(extent) and not is_one(mark.extent):
                return IntImm(extent.dtype, 0)
            return c.mul(c.floordiv(source, lower), digit.scale)
        full = product(extent, lower)
        if not any(isinstance(part, tir.FloorDiv) for part in walk(full)):
            full = self._proofs.analyzer.simplify(full)  # which would join quotients of quotients
        return c.mul(c.floordiv(c.floormod(source, full), lower), digit.scale)

    def _same(self, a: Expr, b: Expr) -> bool:
        """Return True if both are equal for TVM, which does not reorder factors: `n * m` is not `m * n`.

        Printed texts depend on it.
        """
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        return a is b or self._proofs.analyzer.prove_equal(a, b)

    def _covers(self, digit: IterSplit) -> bool:
        """Return True if the digit is the highest one of its iterator."""
        mark, lower, extent = digit.source, digit.lower_factor, digit.extent
        if self._same(mark.extent, c.mul(lower, extent)) or self._same(mark.extent, c.mul(extent, lower)):
            return True
        if isinstance(mark.extent, IntImm) or not self._proofs.padded(mark.extent, lower):
            return False
        return self._same(extent, self._proofs.quotient(mark.extent, lower))


def normalize_to_expr(value: Value | IterSplit) -> Expr:
    """Return a sum or a digit as an expression over its variables."""
    return IterToExpr(Proofs(Analyzer())).expr(value)
