"""Quasi-affine index expressions as sums of pieces of iterators, and the way back to expressions.

An `IterMark` is an iterator: `source` runs over 0 .. extent - 1. A source is a variable, an expression, or itself a sum
(iterators that were fused). An `IterSplit` is one digit of it, `(source // lower_factor) % extent * scale`, and an
`IterSum` adds digits and a base.
"""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Node, node
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


def whole(mark: IterMark, scale: Expr | None = None) -> IterSplit:
    """All of an iterator as one digit."""
    one = IntImm(mark.extent.dtype, 1)
    return IterSplit(mark, one, mark.extent, one if scale is None else scale)


def is_one(value: object) -> bool:
    return isinstance(value, IntImm) and value.value == 1


def is_zero(value: object) -> bool:
    return isinstance(value, IntImm) and value.value == 0


class Proofs:
    """Questions about factors and extents. Constants, which most are, never reach the analyzer."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer
        self._known: dict[tuple[object, object], bool] = {}

    def key(self, value: Expr) -> object:
        """Equal for structurally equal factors."""
        return value.value if isinstance(value, IntImm) else (self.analyzer.keys.key(value),)

    def equal(self, a: Expr, b: Expr) -> bool:
        """a == b always?"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value == b.value
        return a is b or self.analyzer.prove_equal(a, b)

    def divisible(self, a: Expr, b: Expr) -> bool:
        """Does b divide a?"""
        if isinstance(b, IntImm) and b.value == 0:
            return False
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value % b.value == 0
        pair = (self.key(a), self.key(b))
        found = self._known.get(pair)
        if found is None:
            found = self._known[pair] = self._divides(a, b)
        return found

    def _divides(self, a: Expr, b: Expr) -> bool:
        if self.analyzer.prove_equal(a, b):
            return True
        if not isinstance(b, IntImm) and _divides_terms(self.analyzer, a, b):
            return True
        return self.analyzer.prove(c.equal(c.floormod(a, b), 0))

    def at_least(self, a: Expr, b: Expr) -> bool:
        """a >= b always?"""
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return a.value >= b.value
        return self.analyzer.prove(c.greater_equal(a, b))


def factors(value: Expr) -> list[Expr]:
    """The leaves of a product, left to right."""
    made, stack = [], [value]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Mul):
            stack += [top.rhs, top.lhs]
        else:
            made.append(top)
    return made


def _divides_terms(analyzer: Analyzer, a: Expr, b: Expr) -> bool:
    """Is every factor of b one of each term of a? The constants divide as numbers."""
    stack = [a]
    while stack:
        top = stack.pop()
        if isinstance(top, (tir.Add, tir.Sub)):
            stack += [top.lhs, top.rhs]
        elif not _factor_of(analyzer, b, top):
            return False
    return True


def _factor_of(analyzer: Analyzer, b: Expr, a: Expr) -> bool:
    constant, left = 1, []
    for factor in factors(a):
        if isinstance(factor, IntImm):
            constant *= factor.value
        else:
            left.append(analyzer.keys.key(factor))
    for factor in factors(b):
        if isinstance(factor, IntImm):
            if factor.value == 0 or constant % factor.value:
                return False
            constant //= factor.value
        elif (key := analyzer.keys.key(factor)) in left:
            left.remove(key)
        else:
            return constant == 0
    return True


def product(a: Expr, b: Expr) -> Expr:
    """a * b as (symbol * symbol * ...) * constant."""
    if isinstance(a, IntImm) and isinstance(b, IntImm):
        return c.mul(a, b)
    constant, made = 1, c.const(1, a.dtype)
    for factor in (*factors(a), *factors(b)):
        if isinstance(factor, IntImm):
            constant *= factor.value
        else:
            made = c.mul(made, factor)
    return made if constant == 1 else c.mul(made, c.const(constant, made.dtype))


class Speller:
    """Sums and digits as expressions."""

    def __init__(self, proofs: Proofs) -> None:
        self._proofs = proofs
        self._made: dict[Node, Expr] = {}

    def expr(self, value: Value | IterSplit) -> Expr:
        """`value` as an expression; one that has no iterators is itself."""
        if isinstance(value, Expr):
            return value
        found = self._made.get(value)
        if found is None:
            found = self._made[value] = self._sum(value) if isinstance(value, IterSum) else self._split(value)
        return found

    def _sum(self, value: IterSum) -> Expr:
        made: Expr = c.const(0)
        for arg in value.args:
            made = c.add(made, self.expr(arg))
        return c.add(made, value.base)

    def _split(self, digit: IterSplit) -> Expr:
        mark, equal = digit.source, self._proofs.equal
        source = self.expr(mark.source)
        if is_one(digit.lower_factor) and equal(digit.extent, mark.extent):
            return c.mul(source, digit.scale)
        covered = c.mul(digit.lower_factor, digit.extent)
        if equal(mark.extent, covered):
            if is_one(digit.extent) and not is_one(mark.extent):
                return IntImm(digit.extent.dtype, 0)
            return c.mul(c.floordiv(source, digit.lower_factor), digit.scale)
        full = self._proofs.analyzer.simplify(c.mul(digit.extent, digit.lower_factor))
        return c.mul(c.floordiv(c.floormod(source, full), digit.lower_factor), digit.scale)


def normalize_to_expr(value: Value | IterSplit) -> Expr:
    """A sum or a digit as an expression over its variables."""
    return Speller(Proofs(Analyzer())).expr(value)
