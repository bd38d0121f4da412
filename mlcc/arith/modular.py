"""Residues: `(coeff, base)` says that an expression is `base` modulo `coeff`; coeff 0 says that it is `base`."""

from __future__ import annotations

from math import gcd

from mlcc.arith.linear import is_index
from mlcc.ir import tir
from mlcc.ir.tir import Expr

Residue = tuple[int, int]
ANY: Residue = (1, 0)


def _residue(coeff: int, base: int) -> Residue:
    coeff = abs(coeff)
    return (coeff, base % coeff) if coeff else (0, base)


def union(a: Residue, b: Residue) -> Residue:
    """Return the residue class that contains both."""
    return _residue(gcd(a[0], b[0], abs(a[1] - b[1])), a[1])


def meet(a: Residue, b: Residue) -> Residue:
    """Return the residue class of values in both, or the one with the greater modulus if neither contains the other."""
    if a[0] == 0 or b[0] == 0:
        return a if a[0] == 0 else b
    if a[0] % b[0] == 0:
        return a
    return b if b[0] % a[0] == 0 else (a if a[0] > b[0] else b)


class Residues:
    """Residues of expressions under assumptions on variables."""

    def __init__(self) -> None:
        self._vars: dict[tir.Var, Residue] = {}
        self._memo: dict[int, tuple[Expr, Residue]] = {}

    def bind(self, var: tir.Var, residue: Residue) -> Residue:
        """Set the residue of a variable and return the old one."""
        old = self._vars.get(var, ANY)
        self._vars[var] = residue
        self._memo.clear()
        return old

    def of(self, expr: Expr) -> Residue:
        """Return the residue of an int32 or int64 expression; `ANY` for others."""
        if not is_index(expr.dtype):
            return (0, expr.value) if isinstance(expr, tir.IntImm) else ANY
        cached = self._memo.get(id(expr))
        if cached is None:
            cached = self._memo[id(expr)] = (expr, self._visit(expr))
        return cached[1]

    def _visit(self, expr: Expr) -> Residue:
        match expr:
            case tir.IntImm(value=value):
                return (0, value)
            case tir.Var():
                return self._vars.get(expr, ANY)
            case tir.Select(true_value=a, false_value=b):
                return union(self.of(a), self.of(b))
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, a, b)):
                return union(self.of(a), self.of(b))
            case tir.Call(op=tir.Op(name="tir.likely"), args=(a,)):
                return self.of(a)
            case tir.Call(op=tir.Op(name="tir.shift_left"), args=(a, tir.IntImm(value=n))) if 0 <= n < expr.dtype.bits:
                coeff, base = self.of(a)
                return _residue(coeff << n, base << n)
            case tir.Cast(value=value) if is_index(value.dtype):
                coeff, base = self.of(value)
                if value.dtype.bits <= expr.dtype.bits:
                    return coeff, base
                return _residue(gcd(coeff, 1 << expr.dtype.bits), base)  # truncation removes multiples of that
            case tir.BinaryOp():
                return self._binary(expr)
        return ANY

    def _binary(self, expr: tir.BinaryOp) -> Residue:
        a, b = self.of(expr.lhs), self.of(expr.rhs)
        match expr:
            case tir.Add():
                return _residue(gcd(a[0], b[0]), a[1] + b[1])
            case tir.Sub():
                return _residue(gcd(a[0], b[0]), a[1] - b[1])
            case tir.Mul():
                # (p*x + q) * (r*y + s) == p*r*x*y + p*s*x + r*q*y + q*s
                return _residue(gcd(a[0] * b[0], a[0] * b[1], b[0] * a[1]), a[1] * b[1])
            case tir.Min() | tir.Max():
                return union(a, b)
            case tir.FloorDiv() if b[0] == 0 and b[1] > 0 and a[0] % b[1] == 0:
                return _residue(a[0] // b[1], a[1] // b[1])
            case tir.FloorMod() if b[0] == 0 and b[1] > 0:
                # x % d is x - d * (x // d)
                step = gcd(a[0], b[1])
                return _residue(step, a[1]) if step != b[1] else (0, a[1] % b[1])
        return ANY
