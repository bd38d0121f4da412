"""Index expressions rewritten to sums of digits of iterators.

Where a divisor does not divide an iterator's extent, the iterator is padded: a first pass collects, per iterator, what
all its divisors need, and a second one divides the padded iterator. `padding` says where the padding lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import lcm

from mlcc.arith.iter_fuse import Fuser, Level, with_changes, with_scale
from mlcc.arith.iter_nodes import IterMark, IterSplit, IterSum, IterToExpr, Value, whole_split
from mlcc.arith.linear import is_index
from mlcc.arith.proofs import Proofs, is_one, is_zero
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Node, map_children
from mlcc.ir.tir import Expr, IntImm


class NotAffine(Exception):
    """An expression is not a sum of digits. The message for the user is formatted only when printed."""

    def __init__(self, message: str, *parts: object) -> None:
        super().__init__(message)
        self.message, self.parts = message, parts

    def __str__(self) -> str:
        return self.message.format(*self.parts)


@dataclass(slots=True)
class Padding:
    """The padding that divisions require of one iterator."""

    factor: Expr
    left: Expr
    padded: IterMark | None = None


class IterMapRewriter:
    """Rewrites expressions over `iters`; raises NotAffine.

    `lenient`: a remainder of a remainder that does not divide it stays as it is, which is enough to spell an
    expression but says nothing of the values that it takes.
    """

    def __init__(
        self, proofs: Proofs, iters: Mapping[tir.Var, tir.Range], level: Level, simplify_trivial: bool,
        lenient: bool = False,
    ) -> None:  # fmt: skip
        self.proofs = proofs
        self.analyzer = proofs.analyzer
        self.fuser = Fuser(proofs, level)
        self.converter = IterToExpr(proofs)
        self.marks: list[IterMark] = []
        self.lenient = lenient
        self.padding: Expr = c.const(False)
        self.collecting = False  # True in the first of the two passes
        self.needs_padding = False
        self.unpadded: dict[object, IterMark] = {}  # by padded iterator, the original
        self._pads: dict[object, Padding] = {}
        self._vars: dict[tir.Var, IterSum] = {}
        for var, span in iters.items():
            if simplify_trivial and is_one(span.extent):
                self._vars[var] = IterSum((), span.min)
                continue
            mark = IterMark(var if is_zero(span.min) else c.sub(var, span.min), span.extent)
            self._vars[var] = IterSum((whole_split(mark),), span.min)
            self.marks.append(mark)

    def rewrite(self, expr: Expr) -> IterSum:
        """Return the expression as one digit of an iterator (perhaps a fused one) plus a base."""
        value = as_sum(self.visit(expr))
        if not value.args:
            return value
        fused = self.fuser.fuse(value)
        if fused is None:
            raise NotAffine("`{}` is not a fusion of loops: the scales of its terms do not fit their extents", expr)
        return fused

    def digits(self, expr: Expr) -> IterSum:
        """Return the expression as a sum of digits, not fused."""
        return as_sum(self.visit(expr))

    # ------------------------------------------------------------ expressions

    def visit(self, expr: Expr) -> Value:
        match expr:
            case tir.Var():
                return self._vars.get(expr, expr)
            case IntImm():
                return expr
            case tir.Add() | tir.Sub() if is_index(expr.dtype):
                sign = 1 if isinstance(expr, tir.Add) else -1
                return self._add(self.visit(expr.lhs), self.visit(expr.rhs), sign)
            case tir.Mul() if is_index(expr.dtype):
                return self._mul(expr, self.visit(expr.lhs), self.visit(expr.rhs))
            case tir.FloorDiv() | tir.FloorMod() if is_index(expr.dtype):
                return self._divide(expr, self.visit(expr.lhs), self.visit(expr.rhs))
        return map_children(expr, lambda child: self._operand(child, expr))

    def _operand(self, child: Node, parent: Expr) -> Node:
        if not isinstance(child, Expr):
            return child
        value = self.visit(child)
        if isinstance(value, IterSum):
            raise NotAffine("`{}` is neither a sum, a multiple, a quotient nor a remainder of loops", parent)
        return value

    def _add(self, a: Value, b: Value, sign: int) -> Value:
        make = c.add if sign > 0 else c.sub
        if isinstance(a, Expr) and isinstance(b, Expr):
            return make(a, b)
        if isinstance(b, Expr):
            assert isinstance(a, IterSum)
            return a if is_zero(b) else IterSum(a.args, make(a.base, b))
        if is_zero(a) and sign > 0:
            return b
        left = as_sum(a)
        args = list(left.args)
        for digit in b.args:
            self._collect(args, digit, sign)
        return IterSum(tuple(args), make(left.base, b.base))

    def _collect(self, args: list[IterSplit], digit: IterSplit, sign: int) -> None:
        """Add a digit, collecting equal digits by adding their scales."""
        key = self.proofs.key
        for i, old in enumerate(args):
            if (
                old.source is digit.source
                and key(old.lower_factor) == key(digit.lower_factor)
                and key(old.extent) == key(digit.extent)
            ):
                scale = c.add(old.scale, digit.scale) if sign > 0 else c.sub(old.scale, digit.scale)
                args[i] = with_changes(digit, scale=scale)
                return
        args.append(digit if sign > 0 else with_changes(digit, scale=c.sub(c.const(0, digit.scale.dtype), digit.scale)))

    def _mul(self, expr: Expr, a: Value, b: Value) -> Value:
        if isinstance(a, IterSum) and isinstance(b, IterSum):
            raise NotAffine("`{}` multiplies loops by one another", expr)
        if isinstance(a, Expr):
            if isinstance(b, Expr):
                return c.mul(a, b)
            a, b = b, a
        assert isinstance(b, Expr)
        if is_zero(b) or is_one(b):
            return b if is_zero(b) else a
        return with_scale(a, b)

    def _divide(self, expr: tir.BinaryOp, a: Value, b: Value) -> Value:
        floordiv = isinstance(expr, tir.FloorDiv)
        if isinstance(b, IterSum):
            raise NotAffine("`{}` divides by a loop", expr)
        if is_zero(b):
            raise NotAffine("`{}` divides by zero", expr)
        if isinstance(a, Expr):
            return c.floordiv(a, b) if floordiv else c.floormod(a, b)
        if is_one(b):
            return a if floordiv else IntImm(expr.dtype, 0)
        if not a.args:  # of loops that run once
            return c.floordiv(a.base, b) if floordiv else c.floormod(a.base, b)
        if len(a.args) > 1:
            fused = self.fuser.fuse(a)
            if fused is None:
                raise NotAffine("`{}`, which `{}` divides, is not a fusion of loops", expr.lhs, expr)
            a = fused
        split = self._quotient if floordiv else self._remainder
        return split(expr, a.args[0], a.base, b)

    # ------------------------------------------------------------ division of one digit

    def _quotient(self, expr: Expr, digit: IterSplit, base: Expr, by: Expr) -> Value:
        """(digit + base) // by."""
        scale, divisible = digit.scale, self.proofs.divisible
        if not is_one(scale):
            if divisible(scale, by) and divisible(base, by):
                return IterSum((with_changes(digit, scale=c.floordiv(scale, by)),), c.floordiv(base, by))
            if not divisible(by, scale) or not divisible(base, scale):
                raise NotAffine("in `{}` a loop is scaled by {}, which does not match the divisor {}", expr, scale, by)
            by, base = c.floordiv(by, scale), c.floordiv(base, scale)
            digit = with_changes(digit, scale=c.const(1, by.dtype))
        _check_divisor(expr, by)
        digit, left = self._padded(digit, base, by, True)
        mark, simplify = digit.source, self.analyzer.simplify
        if divisible(digit.extent, by):
            # (x // l) % (c * d) // c == (x // (l * c)) % d
            extent = self.proofs.quotient(digit.extent, by)
            quotient = IterSplit(mark, c.mul(digit.lower_factor, by), extent, digit.scale)
        else:
            if not is_one(digit.lower_factor) or not self.proofs.equal(digit.extent, mark.extent):
                mark = IterMark(digit, digit.extent)
            extent = simplify(c.floordiv(c.add(digit.extent, c.sub(by, 1)), by))
            quotient = IterSplit(mark, by, extent, c.const(1, by.dtype))
        return IterSum((quotient,), simplify(c.floordiv(c.sub(base, left), by)))

    def _remainder(self, expr: Expr, digit: IterSplit, base: Expr, by: Expr) -> Value:
        """(digit + base) % by."""
        scale, divisible = digit.scale, self.proofs.divisible
        if not is_one(scale):
            if divisible(scale, by) and divisible(base, by):
                return IntImm(expr.dtype, 0)
            if not divisible(by, scale) or not divisible(base, scale):
                raise NotAffine("in `{}` a loop is scaled by {}, which does not match the divisor {}", expr, scale, by)
            by, base = c.floordiv(by, scale), c.floordiv(base, scale)
        _check_divisor(expr, by)
        if not divisible(digit.extent, by) and self._wraps(digit):
            if self.lenient:
                return expr
            raise NotAffine("in `{}` the remainder is taken of a remainder that {} does not divide", expr, by)
        digit, _ = self._padded(digit, base, by, False)
        # (x // l) % (c * d) % c == (x // l) % c
        return as_sum(IterSplit(digit.source, digit.lower_factor, by, digit.scale))

    def _wraps(self, digit: IterSplit) -> bool:
        """Return True if `source // lower_factor` may reach the extent of the digit, so that its remainder matters."""
        mark, limit = digit.source, digit.source.extent
        original = self.original(mark)
        if original is not None and is_zero(self._pads[self._mark_key(original)].left):
            limit = original.extent  # the iterations beyond are padding
        return not self.proofs.at_least(c.mul(digit.lower_factor, digit.extent), limit)

    # ------------------------------------------------------------ padding

    def _padded(self, digit: IterSplit, base: Expr, by: Expr, quotient: bool) -> tuple[IterSplit, Expr]:
        """Return a digit that starts and ends at multiples of `by`, and its excess over `digit` (`more`).

        The rest of `base` is a multiple of `by`: (digit + base) // by == aligned // by + (base - more) // by.
        """
        simplify, divisible = self.analyzer.simplify, self.proofs.divisible
        left = simplify(c.floormod(base, by))
        mark = digit.source
        pad = self._pads.get(self._mark_key(mark))
        if self.collecting:
            if pad is None:
                one = c.const(1, mark.extent.dtype)
                pad = self._pads[self._mark_key(mark)] = Padding(one, c.const(0, mark.extent.dtype))
            edge = c.add(left, digit.extent)
            right = c.const(0) if divisible(edge, by) else simplify(c.floormod(c.negate(edge), by))
            pad.factor = self._common_multiple(pad.factor, c.mul(by, digit.lower_factor))
            if is_zero(left) and is_zero(right):
                return digit, left
            self.needs_padding = True
            pad.left = c.maximum(pad.left, c.mul(left, digit.lower_factor))
            extent = simplify(c.add(c.add(left, digit.extent), right))
            self.proofs.assume_multiple(extent, by)
            return with_changes(digit, extent=extent), left
        if pad is None or (is_zero(pad.left) and divisible(mark.extent, pad.factor)):
            shift: Expr = c.const(0, mark.extent.dtype)
            aligned = digit
        else:
            if not divisible(pad.factor, digit.lower_factor) or not divisible(pad.factor, by):
                raise NotAffine("the divisors of `{}` have no known common multiple", self.converter.expr(mark.source))
            if not divisible(pad.left, digit.lower_factor):
                raise NotAffine(
                    "`{}` needs a padding of {}, which does not divide", self.converter.expr(digit), pad.left
                )
            shift = c.floordiv(pad.left, digit.lower_factor)
            if pad.padded is None:
                pad.padded = self._pad(mark, pad)
            extent = c.floordiv(pad.padded.extent, digit.lower_factor)
            if quotient and self._wraps(digit):
                if not is_zero(pad.left):
                    raise NotAffine("`{}` would be padded inside a remainder", self.converter.expr(digit))
                extent = digit.extent
            aligned = IterSplit(pad.padded, digit.lower_factor, extent, digit.scale)
        if not divisible(simplify(c.sub(base, shift)), by):
            raise NotAffine("`{} + {}` does not start at a multiple of {}", self.converter.expr(digit), base, by)
        return aligned, shift

    def _pad(self, mark: IterMark, pad: Padding) -> IterMark:
        """Return the padded iterator, and add the condition for its padding to `padding`."""
        left, factor = pad.left, pad.factor
        edge = c.add(mark.extent, left)
        if self.proofs.divisible(edge, factor):
            right: Expr = c.const(0)
        else:
            right = c.floormod(c.negate(edge), factor)
        padded = IterMark(IterSum((whole_split(mark),), left), self.analyzer.simplify(c.add(edge, right)))
        self.proofs.assume_multiple(padded.extent, factor)
        self.unpadded[self._mark_key(padded)] = mark
        source = self.converter.expr(padded.source)
        block, within = c.floordiv(source, factor), c.floormod(source, factor)
        before = c.logical_and(
            c.not_equal(left, 0), c.logical_and(c.equal(block, 0), c.less(within, left))
        )  # the values of the iterator start at `left`
        after = c.logical_and(
            c.not_equal(right, 0),
            c.logical_and(c.equal(block, c.floordiv(edge, factor)), c.greater_equal(within, c.floormod(edge, factor))),
        )
        self.padding = c.logical_or(self.padding, c.logical_or(before, after))
        return padded

    def _mark_key(self, mark: IterMark) -> object:
        """Return a key that is equal for iterators of one source and extent."""
        key, source = self.proofs.key, mark.source
        if isinstance(source, IterSum):
            return ("sum", key(source.base), key(mark.extent), *(self._digit_key(s) for s in source.args))
        if isinstance(source, IterSplit):
            return ("digit", key(mark.extent), self._digit_key(source))
        return (key(source), key(mark.extent))

    def _digit_key(self, digit: IterSplit) -> object:
        key = self.proofs.key
        return (self._mark_key(digit.source), key(digit.lower_factor), key(digit.extent), key(digit.scale))

    def original(self, mark: IterMark) -> IterMark | None:
        """Return the iterator before padding; None if it was not padded."""
        return self.unpadded.get(self._mark_key(mark)) if self.unpadded else None

    def _common_multiple(self, a: Expr, b: Expr) -> Expr:
        """Return a common multiple of two factors, the least one if that can be proved."""
        (x, m), (y, n) = _split_factor(a), _split_factor(b)
        constant = c.const(lcm(m, n), a.dtype)
        equal = self.proofs.equal
        if equal(x, y) or self.proofs.divisible(x, y):
            return c.mul(x, constant)
        if self.proofs.divisible(y, x):
            return c.mul(y, constant)
        return c.mul(c.mul(x, y), constant)


def _check_divisor(expr: Expr, by: Expr) -> None:
    if isinstance(by, IntImm) and by.value < 0:
        raise NotAffine("in `{}` a loop that counts down, or a negative number, takes part in a division", expr)


def as_sum(value: Value | IterSplit) -> IterSum:
    """Return any of the forms as a sum."""
    if isinstance(value, IterSum):
        return value
    if isinstance(value, IterSplit):
        return IterSum((value,), IntImm(value.extent.dtype, 0))
    return IterSum((), value)


def _split_factor(value: Expr) -> tuple[Expr, int]:
    """Return a product as an expression and a constant."""
    match value:
        case IntImm(value=k):
            return c.const(1, value.dtype), k
        case tir.Mul(lhs=x, rhs=IntImm(value=k)) | tir.Mul(lhs=IntImm(value=k), rhs=x):
            return x, k
    return value, 1
