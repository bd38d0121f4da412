"""The analyzer: simplification, bounds, residues and proofs under assumptions on variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mlcc.arith.bounds import INF, Bound, Bounds
from mlcc.arith.canonical import CanonicalSimplifier, SimplifierCache
from mlcc.arith.linear import is_index
from mlcc.arith.modular import ANY, Residue, Residues, meet
from mlcc.arith.structural_keys import StructuralKeys
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm


class Analyzer:
    """Simplifies and proves under assumptions: `bind` sets a range or value, `constraint` scopes a condition.

    By default a minimum or maximum folds if the bounds of the difference of its operands decide it. With
    `differences=False` it folds only where TVM's simplifier folds it: by the bounds of each operand, or by a constant
    difference. `min(x, x + y)` then stays, even where y is known to be non-negative.
    """

    def __init__(self, differences: bool = True) -> None:
        self._differences = differences
        self.keys = StructuralKeys()
        self.values: dict[tir.Var, Expr] = {}
        self._residues = Residues()
        self._bounds = Bounds(self.keys, self._residues.of)
        self.known = SimplifierCache()
        self._bindings = 0  # how often a variable was bound that expressions had been simplified with

    @property
    def _canonical(self) -> CanonicalSimplifier:
        """A new simplifier for each query: storing one would create a reference cycle."""
        return CanonicalSimplifier(self)

    def _clear_cache(self) -> None:
        """Drop cached results after a change of the assumptions."""
        if self.known.linear or self.known.exprs or self.known.differences:
            self.known = SimplifierCache()

    # ------------------------------------------------------------ assumptions

    def bind(self, var: tir.Var, known: tir.Range | Expr | int) -> None:
        """Assume that `var` lies in a range, or equals a value."""
        self._before_rebinding(var)
        if isinstance(known, tir.Range) and tir.const_int(known.extent) == 1:
            known = known.min
        if isinstance(known, tir.Range):
            if isinstance(known.min, IntImm) and isinstance(known.extent, IntImm):
                first = known.min.value
                self._bounds.bind(var, Bound(first, max(first + known.extent.value - 1, first)))
                return
            low, size = self.bound(known.min), self.bound(known.extent)
            high = c.add(known.min, c.sub(known.extent, 1))
            top = self.bound(self.simplify(high)).max
            self._bounds.bind(var, Bound(low.min, max(min(top, low.max + size.max - 1), low.min)))
            return
        value = self.simplify(c.as_expr(known, var.dtype))
        self.values[var] = value
        self._bounds.bind(var, self.bound(value))
        self._bind_residue(var, self._residues.of(value))

    def bind_bound(self, var: tir.Var, low: int, high: int) -> None:
        """Assume low <= var <= high."""
        self._before_rebinding(var)
        self._bounds.bind(var, Bound(low, high))

    def _before_rebinding(self, var: tir.Var) -> None:
        if not self.keys.seen(var):
            return  # nothing that was simplified mentions it
        self._bindings += 1
        self._clear_cache()

    @contextmanager
    def constraint(self, condition: Expr) -> Iterator[None]:
        """Assume `condition` inside the `with`."""
        before, bindings = self.known, self._bindings
        undo: list[Callable[[], None]] = []
        self._assume(condition, undo)
        try:
            yield
        finally:
            for step in reversed(undo):
                step()
            self.known = before if bindings == self._bindings else SimplifierCache()

    def _assume(self, condition: Expr, undo: list[Callable[[], None]]) -> None:
        match condition:
            case tir.And(lhs=a, rhs=b):
                self._assume(a, undo)
                self._assume(b, undo)
            case tir.Call(op=tir.Op(name="tir.likely"), args=(a,)):
                self._assume(a, undo)
            case tir.EQ(lhs=tir.FloorMod(lhs=tir.Var() as var, rhs=IntImm(value=coeff)), rhs=IntImm(value=base)) if (
                coeff > 0 and is_index(var.dtype)
            ):
                old = self._residues.bind(var, ANY)
                self._bind_residue(var, meet(old, (coeff, base % coeff)))
                undo.append(lambda: self._bind_residue(var, old))
            case tir.CompareOp(lhs=a, rhs=b) if is_index(a.dtype):
                self._assume_order(condition, a, b, undo)

    def _bind_residue(self, var: tir.Var, residue: Residue) -> None:
        self._clear_cache()
        self._residues.bind(var, residue)
        self._bounds.forget()  # bounds of remainders follow from residues

    def _assume_order(self, condition: Expr, a: Expr, b: Expr, undo: list[Callable[[], None]]) -> None:
        """Assume bounds of a and b, and of the non-constant part of a - b and its negation; append to `undo`."""
        match condition:
            case tir.LT():
                limits = Bound(-INF, -1)
            case tir.LE():
                limits = Bound(-INF, 0)
            case tir.GT():
                limits = Bound(1, INF)
            case tir.GE():
                limits = Bound(0, INF)
            case tir.EQ():
                limits = Bound(0, 0)
            case _:
                return
        rest, constant = self._split_difference(a, b)
        mirrored = self.simplify(c.sub(IntImm(rest.dtype, 0), rest))
        self._clear_cache()
        for x, y in ((a, b), (b, a)):
            other = self.bound(y)
            if x is b:
                limits = Bound(-limits.max, -limits.min)
            low = limits.min + other.min if limits.min > -INF else -INF
            high = limits.max + other.max if limits.max < INF else INF
            if not isinstance(x, IntImm):
                undo.append(self._bounds.assume(x, Bound(low, high)))
        if not isinstance(rest, IntImm):
            if limits.min > -INF:
                limits = Bound(limits.min, limits.max)
            limits = Bound(-limits.max, -limits.min)  # of a - b again
            low = limits.min - constant if limits.min > -INF else -INF
            high = limits.max - constant if limits.max < INF else INF
            undo.append(self._bounds.assume(rest, Bound(low, high)))
            undo.append(self._bounds.assume(mirrored, Bound(-high, -low)))

    def _split_difference(self, a: Expr, b: Expr) -> tuple[Expr, int]:
        """Return a - b as an expression plus a constant."""
        difference = self.difference(a, b)
        match difference:
            case tir.Add(lhs=rest, rhs=IntImm(value=k)):
                return rest, k
            case tir.Sub(lhs=rest, rhs=IntImm(value=k)):
                return rest, -k
        return difference, 0

    # ------------------------------------------------------------ questions

    def simplify(self, expr: Expr) -> Expr:
        """Return an equal expression in canonical form."""
        if isinstance(expr, tir.IntImm) or (isinstance(expr, tir.Var) and expr not in self.values):
            return expr
        simplified = self._canonical.visit(expr)
        return simplified if simplified is expr else self._canonical.visit(simplified)

    def same(self, a: Expr, b: Expr) -> bool:
        """Return True if both are structurally equal."""
        return self.keys.same(a, b)

    def bound(self, expr: Expr) -> Bound:
        """Return constant bounds of an expression."""
        return self._bounds.of(expr)

    def modular_set(self, expr: Expr) -> Residue:
        """Return (coeff, base): expr is base modulo coeff."""
        return self._residues.of(expr)

    def difference(self, a: Expr, b: Expr) -> Expr:
        """Return a - b in canonical form."""
        return self._canonical.difference(a, b)

    def compare(self, a: Expr, b: Expr) -> Bound:
        """Return bounds of a - b: the meet of those of the canonical difference and those from each side by itself."""
        direct = self._difference_of_bounds(a, b)
        if direct.max < 0 or direct.min > 0 or isinstance(b, IntImm) and not self._bounds.assuming:
            return direct
        rest, constant = self._split_difference(a, b)
        bounds = self.bound(rest)
        return direct.meet(Bound(bounds.min + constant, bounds.max + constant))

    def compare_operands(self, a: Expr, b: Expr) -> Bound:
        """Return the bounds of a - b that decide the minimum and the maximum of both."""
        if self._differences:
            return self.compare(a, b)
        direct = self._difference_of_bounds(a, b)
        if direct.max <= 0 or direct.min >= 0:
            return direct
        difference = self.difference(a, b)
        return Bound(difference.value, difference.value) if isinstance(difference, IntImm) else direct

    def _difference_of_bounds(self, a: Expr, b: Expr) -> Bound:
        """Return bounds of a - b from those of a and of b."""
        one, two = self.bound(a), self.bound(b)
        return Bound(one.min - two.max, one.max - two.min)

    def differ(self, a: Expr, b: Expr) -> bool:
        """Return True if the residues of both prove that a != b."""
        coeff, base = self.modular_set(self.difference(a, b))
        return base % coeff != 0 if coeff else base != 0

    def prove(self, condition: Expr) -> bool:
        """Return True if `condition` is proved to hold always; False means unknown."""
        if isinstance(condition, IntImm):
            return condition.value != 0
        simplified = self.simplify(condition)
        if isinstance(simplified, tir.CompareOp) and is_index(simplified.lhs.dtype):
            return self._prove_order(simplified)
        return isinstance(simplified, IntImm) and simplified.value != 0

    def _prove_order(self, condition: tir.CompareOp) -> bool:
        """Prove a comparison that does not simplify to a constant.

        x - y compared with 0 is tried as x against y. Else the difference of quotients is rewritten and bounded.
        """
        sides = (condition.lhs, condition.rhs)
        match sides:
            case tir.Sub(lhs=x, rhs=y), IntImm(value=0):
                sides = (x, y)
            case IntImm(value=0), tir.Sub(lhs=x, rhs=y):
                sides = (y, x)
        if sides[0] is not condition.lhs:
            moved = self.simplify(type(condition)(condition.dtype, *sides))
            if isinstance(moved, IntImm):
                return moved.value != 0
        gap = self._canonical.difference_as_remainders(condition.lhs, condition.rhs)
        if gap is None:
            return False
        bound = self.bound(gap)
        match condition:
            case tir.LT():
                return bound.max < 0
            case tir.LE():
                return bound.max <= 0
        return isinstance(condition, tir.EQ) and bound == (0, 0)

    def prove_equal(self, a: Expr, b: Expr) -> bool:
        """Return True if a == b is proved."""
        if a is b:
            return True
        difference = self.difference(a, b)
        if isinstance(difference, IntImm):
            return difference.value == 0
        return self.bound(difference) == (0, 0)

    def prove_at_least(self, expr: Expr, least: int) -> bool:
        """Return True if expr >= least is proved."""
        return self.bound(expr).min >= least or self.bound(self.simplify(expr)).min >= least


def simplify(expr: Expr) -> Expr:
    """Return `expr` simplified without assumptions on its variables."""
    return Analyzer().simplify(expr)
