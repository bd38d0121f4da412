"""Rewrite rules for what has no linear form: min, max, comparisons, logic, choices, casts and vectors.

A rule is its equation, over mathematical integers; where one needs a sign or an order, it is proved first from the
bounds of variables. Those that only move constants, factors and terms are data, in `rules`. Rules on index types
assume that arithmetic does not overflow. Floating arithmetic is left alone, and so is that of other integer types,
where only constants fold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mlcc.arith.linear import is_index
from mlcc.arith.rules import EQUAL, LESS, MAX, MIN, Rules
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL
from mlcc.ir.node import field_names, map_children
from mlcc.ir.tir import Expr, IntImm

if TYPE_CHECKING:
    from mlcc.arith.analyzer import Analyzer

MAKE: dict[type, Callable[[Expr, Expr], Expr]] = {
    tir.Add: c.add, tir.Sub: c.sub, tir.Mul: c.mul, tir.Div: c.div, tir.Mod: c.truncmod,
    tir.FloorDiv: c.floordiv, tir.FloorMod: c.floormod, tir.Min: c.minimum, tir.Max: c.maximum,
    tir.EQ: c.equal, tir.NE: c.not_equal, tir.LT: c.less, tir.LE: c.less_equal, tir.GT: c.greater,
    tir.GE: c.greater_equal, tir.And: c.logical_and, tir.Or: c.logical_or,
}  # fmt: skip


class RewriteSimplifier:
    """Rewrites an expression bottom-up; `rules` rewrites one node whose operands are already simplified."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.analyzer = analyzer

    def visit(self, expr: Expr) -> Expr:
        """Return the simplified expression; the same object if nothing applies."""
        match expr:
            case tir.Var():
                return self.analyzer.values.get(expr, expr)
            case tir.BinaryOp():
                return self._binary(expr)
            case tir.Select():
                return self._select(expr)
            case tir.Not():
                return self._not(expr)
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, _, _)):
                return self._if_then_else(expr)
            case tir.Call(op=tir.Op(name="tir.likely"), args=(value,)):
                inner = self.visit(value)
                return inner if isinstance(inner, IntImm) else _with_fields(expr, args=(inner,))
            case tir.Call() | tir.BufferLoad():
                name = "args" if isinstance(expr, tir.Call) else "indices"
                return _with_fields(expr, **{name: tuple(self._visit_if_expr(a) for a in getattr(expr, name))})
            case tir.Cast(dtype=dtype, value=value):
                inner = self.visit(value)
                return expr if inner is value else c.cast(dtype, inner)
            case tir.Broadcast() | tir.Ramp() | tir.Shuffle() | tir.Let():
                return map_children(expr, self._visit_if_expr)
        return expr

    def _visit_if_expr(self, node: Any) -> Any:
        return self.visit(node) if isinstance(node, Expr) else node

    def _binary(self, expr: tir.BinaryOp) -> Expr:
        match expr:
            case tir.LT(lhs=x, rhs=tir.Add(lhs=tir.Min() | tir.Max() as y, rhs=IntImm(value=1))) if is_index(x.dtype):
                return self.visit(c.less_equal(x, y))  # before the 1 goes into the choice
        a, b = self.visit(expr.lhs), self.visit(expr.rhs)
        make = MAKE[type(expr)]
        if isinstance(expr, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)) and isinstance(b, IntImm) and b.value == 0:
            return expr
        rewritten = self.rules(type(expr), a, b, make)
        unchanged = type(rewritten) is type(expr) and rewritten.lhs is expr.lhs and rewritten.rhs is expr.rhs
        return expr if unchanged else rewritten

    def rules(self, kind: type, a: Expr, b: Expr, make: Callable[[Expr, Expr], Expr]) -> Expr:
        """Return `kind(a, b)` rewritten; the operands are simplified."""
        rule = _RULES.get(kind)
        if rule is not None and not (_is_constant(a) and _is_constant(b)):
            rewritten = rule(self, a, b)
            if rewritten is not None:
                return rewritten
        return make(a, b)

    # ------------------------------------------------------------ arithmetic that canonical form does not cover

    def _vector_sum(self, a: Expr, b: Expr) -> Expr | None:
        """Element by element: ramp(b, s) + x == ramp(b + x, s); broadcast(x) + broadcast(y) == broadcast(x + y)."""
        return self._vector(a, b, c.add, lambda s, t: c.add(s, t), (True, True))

    def _vector_sub(self, a: Expr, b: Expr) -> Expr | None:
        return self._vector(a, b, c.sub, lambda s, t: c.sub(s, t), (True, True))

    def _vector_product(self, a: Expr, b: Expr) -> Expr | None:
        """ramp(b, s) * x == ramp(b * x, s * x)."""
        if isinstance(a, tir.Broadcast) and isinstance(b, tir.Ramp):
            a, b = b, a
        if isinstance(a, tir.Ramp) and isinstance(b, tir.Broadcast) and is_index(a.dtype.element):
            base, stride = c.mul(a.base, b.value), c.mul(a.stride, b.value)
            return tir.Ramp(a.dtype, self.visit(base), self.visit(stride), a.lanes)
        return self._vector(a, b, c.mul, None, (False, False))

    def _vector(
        self, a: Expr, b: Expr, make: Callable[[Expr, Expr], Expr], strides: Callable[[Expr, Expr], Expr] | None,
        ramps: tuple[bool, bool],
    ) -> Expr | None:  # fmt: skip
        if a.dtype.lanes == 1 or not is_index(a.dtype.element):
            return None
        one, two = _progression(a), _progression(b)
        if one is None or two is None:
            return None
        (x, s), (y, t) = one, two
        if isinstance(a, tir.Broadcast) and isinstance(b, tir.Broadcast):
            return tir.Broadcast(a.dtype, self.visit(make(x, y)), a.lanes)
        if strides is None or not all(ramps):
            return None
        stride = self.visit(strides(s, t))
        base = self.visit(make(x, y))
        if isinstance(stride, IntImm) and stride.value == 0:
            return tir.Broadcast(a.dtype, base, a.dtype.lanes)
        return tir.Ramp(a.dtype, base, stride, a.dtype.lanes)

    # ------------------------------------------------------------ min and max

    def _min(self, a: Expr, b: Expr) -> Expr | None:
        return self._extreme(a, b, tir.Min, tir.Max, c.minimum)

    def _max(self, a: Expr, b: Expr) -> Expr | None:
        return self._extreme(a, b, tir.Max, tir.Min, c.maximum)

    def _extreme(
        self, a: Expr, b: Expr, kind: type[tir.BinaryOp], dual: type[tir.BinaryOp], make: Callable[[Expr, Expr], Expr]
    ) -> Expr | None:  # fmt: skip
        """The laws of a distributive lattice, for min; those for max are dual."""
        if not is_index(a.dtype):
            return None
        same, low = self.analyzer.same, kind is tir.Min
        if same(a, b):
            return a
        order = self.analyzer.compare_operands(a, b)
        if order.max <= 0:
            return a if low else b
        if order.min >= 0:
            return b if low else a
        for x, y in ((a, b), (b, a)):
            if isinstance(x, (tir.Min, tir.Max)) and (same(x.lhs, y) or same(x.rhs, y)):
                return x if isinstance(x, kind) else y  # absorption
        if isinstance(b, kind) and not isinstance(a, kind):
            a, b = b, a
        if isinstance(a, (tir.Min, tir.Max)) and isinstance(a, kind):
            # an operand that the new one decides goes: min(min(x, y), z) == min(x, z) where z <= y
            for keep, other in ((a.lhs, a.rhs), (a.rhs, a.lhs)):
                order = self.analyzer.compare_operands(other, b)
                if (order.max <= 0) if low else (order.min >= 0):
                    return a
                if (order.min >= 0) if low else (order.max <= 0):
                    return self.visit(make(keep, b))
        if isinstance(a, kind) and isinstance(a.rhs, IntImm) and not isinstance(b, IntImm):
            return make(self.visit(make(a.lhs, b)), a.rhs)  # constants outward
        if type(a) is dual and type(b) is dual:
            for x, y in ((a.lhs, a.rhs), (a.rhs, a.lhs)):
                for u, v in ((b.lhs, b.rhs), (b.rhs, b.lhs)):
                    if same(x, u):  # distribution
                        return self.visit(dual(a.dtype, make(y, v), x))
        return self._apply_rules(MIN if low else MAX, a, b)

    def _apply_rules(self, rules: Rules, a: Expr, b: Expr) -> Expr | None:
        """Apply the first matching rule to an operator's operands and rewrite its result; None if no rule matches."""
        applied = rules.apply(a, b, self.analyzer.same)
        return None if applied is None else self.visit(applied)

    # ------------------------------------------------------------ comparisons

    def _eq(self, a: Expr, b: Expr) -> Expr | None:
        """a == b, decided by the bounds and residues of a - b."""
        if not is_index(a.dtype):
            if self.analyzer.same(a, b) and not a.dtype.is_float:
                return _bool_constant(True, a)
            return None
        order = self.analyzer.compare(a, b)
        if order.min == order.max == 0:
            return _bool_constant(True, a)
        if order.min > 0 or order.max < 0 or self.analyzer.differ(a, b):
            return _bool_constant(False, a)
        if isinstance(a, IntImm):
            a, b = b, a
        rewritten = self._apply_rules(EQUAL, a, b)
        if rewritten is not None:
            return rewritten
        if isinstance(a, tir.Sub) and isinstance(b, IntImm) and b.value == 0:
            return c.equal(a.lhs, a.rhs)
        return c.equal(a, b)

    def _ne(self, a: Expr, b: Expr) -> Expr | None:
        if a.dtype.is_float:
            return None
        equal = self._eq(a, b)
        if equal is None:
            return None
        return _negated(equal)

    def _le(self, a: Expr, b: Expr) -> Expr | None:
        """a <= b == not b < a; a == b where a >= b."""
        if not is_index(a.dtype):
            return _bool_constant(True, a) if self.analyzer.same(a, b) and not a.dtype.is_float else None
        order = self.analyzer.compare(a, b)
        if order.min == 0 < order.max:
            return self.visit(c.equal(a, b))  # a >= b is known
        greater = self._lt(b, a, divide=False)  # TVM divides by common factors in `<` alone
        match greater:
            case None:
                return None
            case tir.LT(lhs=x, rhs=tir.Add(lhs=y, rhs=IntImm(value=1))):
                return c.less(y, x)  # not x < y + 1
        return _negated(greater)

    def _lt(self, a: Expr, b: Expr, divide: bool = True) -> Expr | None:
        """a < b, decided by the bounds of a - b; else common factors cancel and the constant moves to the right."""
        if not is_index(a.dtype):
            return _bool_constant(False, a) if self.analyzer.same(a, b) and not a.dtype.is_float else None
        order = self.analyzer.compare(a, b)
        if order.max < 0:
            return _bool_constant(True, a)
        if order.min >= 0:
            return _bool_constant(False, a)
        match a, b:
            case _, tir.Add(lhs=x, rhs=IntImm(value=1)) if not isinstance(a, IntImm):
                return self.visit(c.less_equal(a, x))
        divided = self._lt_divided(a, b) if divide else None
        return self._lt_moved(a, b) if divided is None else divided

    def _lt_moved(self, a: Expr, b: Expr) -> Expr | None:
        """a < b with constants and factors moved across; extended by classes that know the linear form."""
        return self._apply_rules(LESS, a, b)

    def _again(self, a: Expr, b: Expr) -> Expr:
        return self.visit(c.less(a, b))

    def _lt_divided(self, a: Expr, b: Expr) -> Expr | None:
        """Overridden by classes that know the linear form."""
        return None

    # ------------------------------------------------------------ logic and choices

    def _and(self, a: Expr, b: Expr) -> Expr | None:
        """x and x == x; x and not x == False."""
        if self.analyzer.same(a, b):
            return a
        if a.dtype is BOOL and self._opposite(a, b):
            return IntImm(BOOL, 0)
        return None

    def _or(self, a: Expr, b: Expr) -> Expr | None:
        """x or x == x; x or not x == True."""
        if self.analyzer.same(a, b):
            return a
        if a.dtype is BOOL and self._opposite(a, b):
            return IntImm(BOOL, 1)
        return None

    def _opposite(self, a: Expr, b: Expr) -> bool:
        negation = isinstance(a, tir.Not) or isinstance(b, tir.Not) or _is_negatable_compare(a)
        return negation and self.analyzer.same(_negated(a), b) and _is_pure(a)

    def _not(self, expr: tir.Not) -> Expr:
        value = self.visit(expr.value)
        if value is expr.value and not isinstance(value, (tir.Not, tir.CompareOp, IntImm, tir.And, tir.Or)):
            return expr
        return _negated(value)

    def _select(self, expr: tir.Select) -> Expr:
        condition = self.visit(expr.condition)
        if isinstance(condition, IntImm):
            return self.visit(expr.true_value if condition.value else expr.false_value)
        a, b = self._branches(condition, expr.true_value, expr.false_value)
        if self.analyzer.same(a, b):
            return a
        return _with_fields(expr, condition=condition, true_value=a, false_value=b)

    def _if_then_else(self, expr: tir.Call) -> Expr:
        condition = self.visit(expr.args[0])
        if isinstance(condition, IntImm):
            return self.visit(expr.args[1] if condition.value else expr.args[2])
        a, b = self._branches(condition, expr.args[1], expr.args[2])
        if self.analyzer.same(a, b) and _is_pure(condition):
            return a
        return _with_fields(expr, args=(condition, a, b))

    def _branches(self, condition: Expr, yes: Expr, no: Expr) -> tuple[Expr, Expr]:
        with self.analyzer.constraint(condition):
            a = self.visit(yes)
        with self.analyzer.constraint(_negated(condition)):
            b = self.visit(no)
        return a, b


_RULES: dict[type, Callable[[RewriteSimplifier, Expr, Expr], Expr | None]] = {
    tir.Add: RewriteSimplifier._vector_sum, tir.Sub: RewriteSimplifier._vector_sub,
    tir.Mul: RewriteSimplifier._vector_product,
    tir.Min: RewriteSimplifier._min, tir.Max: RewriteSimplifier._max, tir.EQ: RewriteSimplifier._eq,
    tir.NE: RewriteSimplifier._ne,
    tir.LT: RewriteSimplifier._lt, tir.LE: RewriteSimplifier._le, tir.GT: lambda self, a, b: self.visit(c.less(b, a)),
    tir.GE: lambda self, a, b: self.visit(c.less_equal(b, a)), tir.And: RewriteSimplifier._and,
    tir.Or: RewriteSimplifier._or,
}  # fmt: skip


def _progression(value: Expr) -> tuple[Expr, Expr] | None:
    """Return base and stride of a vector whose lanes are an arithmetic progression, else None."""
    match value:
        case tir.Broadcast(value=base):
            return base, IntImm(base.dtype, 0)
        case tir.Ramp(base=base, stride=stride):
            return base, stride
    return None


def _is_constant(expr: Expr) -> bool:
    return isinstance(expr, (IntImm, tir.FloatImm))


def _bool_constant(value: bool, like: Expr) -> Expr:
    return c.const(value, BOOL.with_lanes(like.dtype.lanes))


def _is_pure(expr: Expr) -> bool:
    """Return True if there are no calls, whose effects or failures must be kept."""
    stack: list[Any] = [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Call):
            return False
        if isinstance(top, (tir.BinaryOp, tir.Not, tir.Cast, tir.Select)):
            stack += [v for v in (getattr(top, n) for n in field_names(type(top))) if isinstance(v, Expr)]
    return True


def _is_negatable_compare(expr: Expr) -> bool:
    return isinstance(expr, tir.CompareOp) and not expr.lhs.dtype.is_float


_OPPOSITE = {tir.LT: tir.GE, tir.GE: tir.LT, tir.GT: tir.LE, tir.LE: tir.GT, tir.EQ: tir.NE, tir.NE: tir.EQ}


def _negated(expr: Expr) -> Expr:
    """Return the negation, pushed into integer comparisons, `and` and `or`."""
    match expr:
        case tir.Not(value=value):
            return value
        case tir.LT(lhs=a, rhs=b) if not a.dtype.is_float:
            return c.less_equal(b, a)
        case tir.LE(lhs=a, rhs=b) if not a.dtype.is_float:
            return c.less(b, a)
        case tir.CompareOp(dtype=dtype, lhs=a, rhs=b) if not a.dtype.is_float or isinstance(expr, (tir.EQ, tir.NE)):
            return _OPPOSITE[type(expr)](dtype, a, b)  # of floats too: == and != are opposites for NaN as well
        case tir.And(lhs=a, rhs=b):
            return c.logical_or(_negated(a), _negated(b))
        case tir.Or(lhs=a, rhs=b):
            return c.logical_and(_negated(a), _negated(b))
        case tir.Broadcast(dtype=dtype, value=value, lanes=lanes):
            return tir.Broadcast(dtype, _negated(value), lanes)
    if expr.dtype.lanes > 1:
        return tir.Not(expr.dtype, expr)
    return c.logical_not(expr)


negated = _negated


def _with_fields(old: Expr, **fields: Any) -> Expr:
    """Return a copy with other fields; the same object if they are the same, element by element."""
    from mlcc.ir.node import replace

    for name, value in list(fields.items()):
        old_value = getattr(old, name)
        if isinstance(value, tuple) and all(x is y for x, y in zip(old_value, value, strict=True)):
            fields[name] = old_value
    return replace(old, **fields)
