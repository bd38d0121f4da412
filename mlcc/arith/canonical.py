"""Canonical simplification: index arithmetic through the forms of `linear`, everything else by `rewrite`."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING

from mlcc.arith.linear import UNBOUNDED, Linear, Sum, Term, is_index, to_expr, to_sum, to_term, with_mode
from mlcc.arith.quotients import quotient_difference, split_constant
from mlcc.arith.rewrite import MAKE, RewriteSimplifier
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm

if TYPE_CHECKING:
    pass


class SimplifierCache:
    """Cached results under one set of assumptions, by structural key."""

    __slots__ = ("differences", "exprs", "linear")

    def __init__(self) -> None:
        self.linear: dict[int, Linear] = {}
        self.exprs: dict[int, Expr] = {}
        self.differences: dict[tuple[int, int], Expr] = {}


class CanonicalSimplifier(RewriteSimplifier):
    """Visits an expression bottom-up, keeping +, -, *, // and % in linear form between the nodes."""

    def visit(self, expr: Expr) -> Expr:
        if isinstance(expr, IntImm):
            return expr
        key = self.analyzer.keys.key(expr)
        simplified = self.analyzer.known.exprs.get(key)
        if simplified is None:
            simplified = self._from_linear(self.linear(expr))
            if self.analyzer.keys.key(simplified) == key:
                simplified = expr
            self.analyzer.known.exprs[key] = simplified
        elif simplified is not expr and self.analyzer.keys.key(simplified) == key:
            return expr
        return simplified

    def _from_linear(self, form: Linear) -> Expr:
        """Return a linear form as an expression. If it is one difference of quotients, that becomes a remainder."""
        whole = to_expr(form)
        if isinstance(form, Sum) and _has_quotient(form):
            rest, base = split_constant(whole)
            if isinstance(rest, tir.Sub):
                (x, m), (y, n) = split_constant(rest.lhs), split_constant(rest.rhs)
                remainder = quotient_difference(x, y, self.analyzer.same)
                if remainder is not None:
                    return to_expr(self.linear(c.add(remainder, c.wrap(base + m - n, whole.dtype))))
        return whole

    def linear(self, expr: Expr) -> Linear:
        """Return the simplified expression, still in linear form if it has one.

        Results are cached by structure: rules build equal operands as new objects over and over.
        """
        if isinstance(expr, IntImm):
            return expr
        key = self.analyzer.keys.key(expr)
        form = self.analyzer.known.linear.get(key)
        if form is None:
            form = self.analyzer.known.linear[key] = self._linear(expr)
        return form

    def _linear(self, expr: Expr) -> Linear:
        rule = _ARITHMETIC.get(type(expr))
        if rule is not None and is_index(expr.dtype):
            return rule(self, expr)  # type: ignore[arg-type]
        rewritten = super().visit(expr)
        rule = _ARITHMETIC.get(type(rewritten)) if rewritten is not expr and is_index(rewritten.dtype) else None
        return rewritten if rule is None else rule(self, rewritten)  # type: ignore[arg-type]

    def difference(self, a: Expr, b: Expr) -> Expr:
        """a - b in canonical form."""
        pair = (self.analyzer.keys.key(a), self.analyzer.keys.key(b))
        difference = self.analyzer.known.differences.get(pair)
        if difference is None:
            total = to_sum(self.linear(a), self.analyzer.keys)
            total.add(to_sum(self.linear(b), self.analyzer.keys), -1)
            difference = self.analyzer.known.differences[pair] = self._from_linear(total)
        return difference

    def difference_as_remainders(self, a: Expr, b: Expr) -> Expr | None:
        """Return a - b with each pair of opposite quotients rewritten as a remainder; None if there is no such pair."""
        difference = to_sum(self.linear(a), self.analyzer.keys)
        difference.add(to_sum(self.linear(b), self.analyzer.keys), -1)
        for one in difference.terms:
            for two in difference.terms:
                if one.scale <= 0 or one.scale != -two.scale or not _is_quotient(one) or one.lower != two.lower:
                    continue
                steps = quotient_difference(one.with_scale(1).expr(), two.expr(-1), self.analyzer.same)
                if steps is not None:
                    rest = [t for t in difference.terms if t is not one and t is not two]
                    left = Sum(difference.dtype, difference.keys, rest, difference.base)
                    left.add(to_sum(self.linear(steps), self.analyzer.keys).scaled(one.scale))
                    return self._from_linear(left)
        return None

    def _lt_moved(self, a: Expr, b: Expr) -> Expr | None:
        """Constants are collected at one side: x + c < y + d == x < y + (d - c), or x + (c - d) < y."""
        one, two = to_sum(self.linear(a), self.analyzer.keys), to_sum(self.linear(b), self.analyzer.keys)
        left, right = one.base, two.base
        if not one.terms or not two.terms:
            one.base, two.base = (left - right, 0) if not one.terms else (0, right - left)
        else:
            less = min(left, right)
            one.base, two.base = left - less, right - less
        if (one.base, two.base) != (left, right):
            return self._again(one.expr(), two.expr())
        return super()._lt_moved(a, b)

    def _lt_divided(self, a: Expr, b: Expr) -> Expr | None:
        """d*x + r < d*c == x < c where 0 <= r < d."""
        gap = to_sum(self.linear(a), self.analyzer.keys)
        gap.add(to_sum(self.linear(b), self.analyzer.keys), -1)
        scales = [abs(t.scale) for t in gap.terms if abs(t.scale) > 1]
        divisor = gcd(gap.base, *scales)
        if not scales or divisor <= 1:
            return None
        even, rest = gap.split(divisor)
        if not rest.is_zero and not self._is_within(rest.expr(), divisor):
            return None
        return self._again(even.divided(divisor).expr(), IntImm(a.dtype, 0))

    # ------------------------------------------------------------ sums and products

    def _add(self, op: tir.BinaryOp, sign: int = 1) -> Linear:
        a, b = self.linear(op.lhs), self.linear(op.rhs)
        if isinstance(a, IntImm) and isinstance(b, IntImm):
            return IntImm(op.dtype, c.wrap(a.value + sign * b.value, op.dtype))
        total = to_sum(a, self.analyzer.keys)
        if isinstance(b, IntImm):
            total.base += sign * b.value
        elif isinstance(b, Sum):
            total.add(b, sign)
        else:
            total.add_term(to_term(b), sign)
        return self._move_into_min_max(total)

    def _move_into_min_max(self, total: Sum) -> Linear:
        """max(x, y - k) + k == max(x + k, y), likewise for min: the constant moves inside where it cancels."""
        if not total.base:
            return total
        for at, term in enumerate(total.terms):
            index = term.index
            if term.scale == 1 and term.plain and isinstance(index, (tir.Min, tir.Max)):
                if total.base not in (-_constant_addend(index.lhs), -_constant_addend(index.rhs)):
                    continue
                k = IntImm(total.dtype, total.base)
                moved = MAKE[type(index)](self.visit(c.add(index.lhs, k)), self.visit(c.add(index.rhs, k)))
                rest = Sum(total.dtype, total.keys, [*total.terms[:at], *total.terms[at + 1 :]], 0)
                rest.add_term(Term(moved))
                return rest
        return total

    def _sub(self, op: tir.BinaryOp) -> Linear:
        return self._add(op, -1)

    def _mul(self, op: tir.BinaryOp) -> Linear:
        a, b = self.linear(op.lhs), self.linear(op.rhs)
        if isinstance(a, IntImm):
            a, b = b, a
        if isinstance(b, IntImm):
            if isinstance(a, IntImm):
                return IntImm(op.dtype, c.wrap(a.value * b.value, op.dtype))
            if b.value == 0:
                return b
            if isinstance(a, Sum):
                return a.scaled(b.value)
            term = to_term(a)
            return term.with_scale(term.scale * b.value)
        collected = product(to_expr(a), to_expr(b))
        return (
            Term(collected.lhs, scale=collected.rhs.value)
            if isinstance(collected, tir.Mul) and isinstance(collected.rhs, IntImm)
            else collected
        )

    # ------------------------------------------------------------ division

    def _floordiv(self, op: tir.BinaryOp) -> Linear:
        """(c*x + r) // c == x + r // c, and r // c == 0 where 0 <= r < c."""
        a, b = self.linear(op.lhs), self.linear(op.rhs)
        divisor = _positive_constant(b)
        if divisor is None or isinstance(a, IntImm):
            return self._general_division(op, a, b, c.floordiv)
        if divisor == 1:
            return a
        if isinstance(a, Sum):
            match a.terms:
                case [Term(index, lower, upper, 1, True)] if lower > 1 and upper == UNBOUNDED:
                    # (x // l + k) // c == (x + k*l) // (l*c)
                    inner = c.add(index, IntImm(op.dtype, a.base * lower))
                    return self.linear(c.floordiv(inner, IntImm(op.dtype, lower * divisor)))
            even, rest = a.split(divisor)
            total = even.divided(divisor)
            if rest.is_zero:
                return total
            quotient = self._quotient(rest.expr(), divisor)
            if quotient is not None:
                total.base += quotient
                return total
            distributed = self._distribute_division(rest, divisor)
            if distributed is not None:
                total.add(distributed)
                return total
            common, coarse, _ = self._factor_out(rest, divisor)
            whole = rest.base // divisor
            if common == 1 and whole and len({abs(t.scale) for t in rest.terms}) == 1:
                # (g*x + r + c*k) // c == (g*x + r) // c + k
                smaller = rest.copy()
                smaller.base -= whole * divisor
                factor, small, fine = self._factor_out(smaller, divisor)
                if factor > 1 and not fine.is_zero:
                    common, coarse = factor, small
                    total.base += whole
            total.add_term(divide(to_term(coarse), divisor // common, True))
            return total
        quotient = self._quotient(to_expr(a), divisor)
        if quotient is not None:
            return IntImm(op.dtype, quotient)
        distributed = self._distribute_division(to_sum(a, self.analyzer.keys), divisor)
        return divide(to_term(a), divisor, True) if distributed is None else distributed

    def _distribute_division(self, value: Sum, divisor: int) -> Sum | None:
        """Distribute value // divisor over terms if the rest has one quotient: x * 360 // 16 == x * 22 for x < 2."""
        if not any(abs(t.scale) > divisor for t in value.terms):
            return None
        left = Sum(value.dtype, value.keys, [t.with_scale(t.scale % divisor) for t in value.terms])
        left.base = value.base % divisor
        quotient = self._quotient(left.expr(), divisor)
        if quotient is None:
            return None
        terms = [t.with_scale(t.scale // divisor) for t in value.terms if t.scale // divisor]
        return Sum(value.dtype, value.keys, terms, value.base // divisor + quotient)

    def _quotient(self, expr: Expr, divisor: int) -> int | None:
        """Return the quotient expr // divisor if its bounds leave only one value."""
        low, high = self.analyzer.bound(expr)
        return low // divisor if low // divisor == high // divisor else None

    def _factor_out(self, rest: Sum, divisor: int) -> tuple[int, Sum, Sum]:
        """Return g, x and r: rest == g*x + r, g a divisor of `divisor` and 0 <= r < g; g is 1 if none is greater."""
        scale = abs(rest.terms[0].scale)
        if scale > 1 and divisor % scale == 0 and _has_uniform_scale(rest, scale):
            return scale, rest.divided(scale), Sum(rest.dtype, rest.keys)
        common = gcd(divisor, *(t.scale for t in rest.terms if abs(t.scale) > 1))
        if common > 1 and any(abs(t.scale) > 1 for t in rest.terms):
            even, fine = rest.split(common)
            lone = not fine.terms and divisor % scale != 0  # (n*4 + 1) // 6 is as simple as it gets
            if not fine.is_zero and not lone and self._is_within(fine.expr(), common):
                return common, even.divided(common), fine
        return 1, rest, Sum(rest.dtype, rest.keys)

    def _floormod(self, op: tir.BinaryOp) -> Linear:
        """(c*x + r) % c == r % c, and r % c == r where 0 <= r < c."""
        a, b = self.linear(op.lhs), self.linear(op.rhs)
        divisor = _positive_constant(b)
        if divisor is None or isinstance(a, IntImm):
            return self._general_division(op, a, b, c.floormod)
        if isinstance(a, Sum) and not (len(a.terms) == 1 and a.base == 0):
            _, rest = a.split(divisor)
            quotient = self._quotient(rest.expr(), divisor)
            if quotient is not None:
                rest.base -= quotient * divisor
                return rest
            rest.base %= divisor
            scale = abs(rest.terms[0].scale)
            if scale > divisor and _has_uniform_scale(rest, scale):
                rest = rest.divided(scale).scaled(scale % divisor)  # k*x % c == (k % c) * x % c
            common, inner, fine = self._factor_out(rest, divisor)
            if common > 1:
                # (g*x + r) % (g*d) == g * (x % d) + r
                remainder = fine.copy()
                remainder.add(
                    to_sum(self._reduce(to_term(inner), divisor // common, True), self.analyzer.keys).scaled(common)
                )
                return remainder
            return self._reduce(to_term(rest), divisor, True)
        term = a.terms[0] if isinstance(a, Sum) else to_term(a)
        if term.scale < 0 and term.plain and divisor % term.scale == 0 and -term.scale != divisor:
            # (x * -s) % c == (x % (c / -s)) * -s
            within = c.floormod(term.with_scale(1).expr(), divisor // term.scale)
            return Term(within, scale=term.scale)
        if abs(term.scale) > divisor or term.scale < -1:
            term = term.with_scale(term.scale % divisor)  # (k*x) % c == (k % c * x) % c
        quotient = self._quotient(term.expr(), divisor)
        if quotient is not None:
            remainder = to_sum(term, self.analyzer.keys)
            remainder.base -= quotient * divisor
            return remainder
        return self._reduce(term, divisor, True)

    def _div(self, op: tir.BinaryOp) -> Linear:
        """As floordiv, but a sum is split only if both parts are >= 0, since rounding is toward zero."""
        a, b = self.linear(op.lhs), self.linear(op.rhs)
        divisor = _positive_constant(b)
        if divisor is None or isinstance(a, IntImm):
            return self._general_division(op, a, b, c.div)
        if divisor == 1:
            return a
        if isinstance(a, Sum):
            even, rest = a.split(divisor)
            if rest.is_zero:
                return even.divided(divisor)
            remainder = rest.expr()
            if self._is_nonnegative(even.expr()) and self._is_nonnegative(remainder):
                quotient = even.divided(divisor)
                if isinstance(remainder, IntImm):
                    quotient.base += remainder.value // divisor
                elif not self._is_within(remainder, divisor):
                    quotient.add_term(divide(to_term(rest), divisor, False))
                return quotient
        elif self._is_within(to_expr(a), divisor):
            return IntImm(op.dtype, 0)
        return divide(to_term(a), divisor, False)

    def _mod(self, op: tir.BinaryOp) -> Linear:
        a, b = self.linear(op.lhs), self.linear(op.rhs)
        divisor = _positive_constant(b)
        if divisor is None or isinstance(a, IntImm):
            return self._general_division(op, a, b, c.truncmod)
        if isinstance(a, Sum):
            even, rest = a.split(divisor)
            if rest.is_zero:
                return IntImm(op.dtype, 0)
            remainder = rest.expr()
            if self._is_nonnegative(even.expr()) and self._is_nonnegative(remainder):
                if self._is_within(remainder, divisor) or isinstance(remainder, IntImm):
                    return c.truncmod(remainder, b) if isinstance(remainder, IntImm) else rest  # type: ignore[arg-type]
                a = rest
        elif self._is_within(to_expr(a), divisor):
            return a
        return self._reduce(to_term(a), divisor, False)

    def _general_division(self, op: tir.BinaryOp, a: Linear, b: Linear, make: Callable[[Expr, Expr], Expr]) -> Expr:
        """Return an operation by a divisor that is not a positive constant."""
        divisor = to_expr(b)  # n - n is 0 only as an expression
        if isinstance(divisor, IntImm) and divisor.value == 0:
            return op
        return self.rules(type(op), to_expr(a), divisor, make)

    def _is_nonnegative(self, expr: Expr) -> bool:
        return self.analyzer.bound(expr).min >= 0

    def _is_within(self, expr: Expr, limit: int) -> bool:
        """Return True if 0 <= expr < limit is proved."""
        bound = self.analyzer.bound(expr)
        return bound.min >= 0 and bound.max < limit

    def _reduce(self, term: Term, divisor: int, floor: bool) -> Linear:
        """Return term % divisor."""
        term = with_mode(term, floor)
        if term.scale % divisor == 0:
            return IntImm(term.index.dtype, 0)
        if term.scale > 0 and divisor % term.scale == 0:
            # (x * s) % (d * s) == (x % d) * s, and (x // l) % d == (x % (l * d)) // l
            upper = term.lower * (divisor // term.scale)
            if term.upper == UNBOUNDED:
                return Term(term.index, term.lower, upper, term.scale, term.floor)
            if term.upper % upper == 0:
                return self._narrow(term, upper, floor)
            if upper % term.upper == 0:
                return term
        return Term(term.expr(), upper=divisor, floor=floor)

    def _narrow(self, term: Term, upper: int, floor: bool) -> Linear:
        """x % u % v == x % v where v divides u; the smaller modulus may simplify x further."""
        if upper == term.upper:
            return term
        make = c.floormod if floor else c.truncmod
        inner = to_term(self.linear(make(term.index, IntImm(term.index.dtype, upper))))
        if term.lower != 1:
            inner = divide(inner, term.lower, floor)
        return inner.with_scale(inner.scale * term.scale)


_ARITHMETIC: dict[type, Callable[[CanonicalSimplifier, tir.BinaryOp], Linear]] = {
    tir.Add: CanonicalSimplifier._add, tir.Sub: CanonicalSimplifier._sub, tir.Mul: CanonicalSimplifier._mul,
    tir.FloorDiv: CanonicalSimplifier._floordiv,
    tir.FloorMod: CanonicalSimplifier._floormod, tir.Div: CanonicalSimplifier._div, tir.Mod: CanonicalSimplifier._mod,
}  # fmt: skip


def product(a: Expr, b: Expr) -> Expr:
    """Return a * b with the constant factors collected at the right."""
    factor = 1
    rest: Expr = IntImm(a.dtype, 1)
    stack = [b, a]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Mul):
            stack += [top.rhs, top.lhs]
        elif isinstance(top, IntImm):
            factor *= top.value
        else:
            rest = c.mul(rest, top)
    return rest if factor == 1 else c.mul(rest, IntImm(a.dtype, c.wrap(factor, a.dtype)))


def divide(term: Term, divisor: int, floor: bool) -> Term:
    """Return term // divisor."""
    term = with_mode(term, floor)
    if term.scale % divisor == 0:
        return term.with_scale(term.scale // divisor)
    if term.scale > 0 and divisor % term.scale == 0:
        # (x * s) // (d * s) == x // d, and x // l // d == x // (l * d)
        lower = term.lower * (divisor // term.scale)
        if term.upper == UNBOUNDED or term.upper % lower == 0:
            return Term(term.index, lower, term.upper, 1, term.floor)
        if term.upper <= lower:
            return Term(IntImm(term.index.dtype, 0), scale=0)
        make = c.floormod if floor else c.truncmod
        index = make(term.index, IntImm(term.index.dtype, term.upper))
        return Term(index, lower=lower, floor=floor)
    return Term(term.expr(), lower=divisor, floor=floor)


def _has_uniform_scale(total: Sum, scale: int) -> bool:
    """Return True if all terms have the given absolute scale, and the constant too unless it is 0."""
    return all(abs(t.scale) == scale for t in total.terms) and abs(total.base) in (0, scale)


def _constant_addend(expr: Expr) -> int:
    """Return the constant addend of an expression."""
    return split_constant(expr)[1]


def _has_quotient(value: Linear) -> bool:
    """Return True if some term divides by a constant, as `quotient_difference` needs. Builds no expression."""
    terms = value.terms if isinstance(value, Sum) else [value] if isinstance(value, Term) else []
    return any(map(_is_quotient, terms)) or isinstance(value, tir.FloorDiv)


def _is_quotient(term: Term) -> bool:
    return term.lower != 1 and term.upper == UNBOUNDED


def _positive_constant(value: Linear) -> int | None:
    return value.value if isinstance(value, IntImm) and value.value > 0 else None
