"""Values as polynomials: a canonical form that does not depend on the order of additions and multiplications."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.passes.recognition.graph import Graph, dtype_of, is_float

Monomial: TypeAlias = tuple[int, ...]  # the numbers of its factors, sorted
Polynomial: TypeAlias = dict[Monomial, float]

_MAX_DEPTH = 12  # most operators between a value and its atoms
_MAX_TERMS = 8
_POWERS = (2.0, 3.0)
_EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-23}


@dataclass(frozen=True)
class Expansion:
    """Expand the values of a graph into polynomials.

    Values numbered in `atoms` are not expanded, nor are operators other than arithmetic. 1 / sqrt(v) equals rsqrt(v).
    `dtype` is that of the results: roundings to it from a wider dtype, and conversions from it to a wider one, are
    ignored.
    """

    graph: Graph
    atoms: Collection[int]
    dtype: DType | None

    def of(self, expr: relax.Expr, depth: int = _MAX_DEPTH) -> Polynomial | None:
        """Expand a value; None if the polynomial has too many terms."""
        g = self.graph
        scalar = g.scalar(expr)
        if scalar is not None:
            return {(): scalar}
        number = g.number(expr)
        call = None if number in self.atoms or depth == 0 else g.call(expr)
        expanded = None if call is None else self._expanded(call, depth - 1)
        if expanded is None:
            return {(g.number(self.narrow(expr)),): 1.0}
        return expanded if len(expanded) <= _MAX_TERMS else None

    def narrow(self, expr: relax.Expr) -> relax.Expr:
        """Return the operand of a widening cast if it has the dtype of the results, else the value itself."""
        cast = self.graph.call(expr, "astype")
        if cast is not None and dtype_of(cast.args[0]) is self.dtype and is_wider(dtype_of(expr), self.dtype):
            return cast.args[0]
        return expr

    def _expanded(self, call: relax.Call, depth: int) -> Polynomial | None:
        """Expand a call in terms of its operands; None if it is an atom."""
        name = call.op.name.removeprefix("relax.")
        if name == "astype":
            pair = dtype_of(call), dtype_of(call.args[0])
            between = self.dtype in pair and (is_wider(*pair) or is_wider(*reversed(pair)))
            return self.of(call.args[0], depth) if between else None
        if name == "divide":
            return self._product(self.of(call.args[0], depth), self.reciprocal(call.args[1]))
        if name == "power":
            return self._power(call, depth)
        if name in ("multiply", "square"):
            return self._product(self.of(call.args[0], depth), self.of(call.args[-1], depth))
        if name == "negative":
            return self._product(self.of(call.args[0], depth), {(): -1.0})
        if name not in ("add", "subtract"):
            return None
        parts = [self.of(arg, depth) for arg in call.args]
        sign = 1.0 if name == "add" else -1.0
        return _sum(parts[0], self._product(parts[1], {(): sign}))

    def _power(self, call: relax.Call, depth: int) -> Polynomial | None:
        exponent = self.graph.scalar(call.args[1])
        if exponent == -0.5:
            return {(self.graph.number_of_key(("relax.rsqrt", self.graph.number(call.args[0]))),): 1.0}
        if exponent not in _POWERS:
            return None
        base = power = self.of(call.args[0], depth)
        for _ in range(int(exponent) - 1):
            power = self._product(power, base)
        return power

    def reciprocal(self, expr: relax.Expr) -> Polynomial | None:
        """Return 1 / value for numbers and square roots, else None."""
        scalar = self.graph.scalar(expr)
        if scalar is not None:
            return {(): 1 / scalar} if scalar else None
        under = square_root(self.graph, expr)
        if under is None:
            return None
        return {(self.graph.number_of_key(("relax.rsqrt", self.graph.number(under))),): 1.0}

    @staticmethod
    def _product(first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
        if first is None or second is None or len(first) * len(second) > _MAX_TERMS:
            return None
        terms: Polynomial = {}
        for a, x in first.items():
            for b, y in second.items():
                key = tuple(sorted(a + b))
                terms[key] = terms.get(key, 0.0) + x * y
        return terms


def _sum(first: Polynomial | None, second: Polynomial | None) -> Polynomial | None:
    if first is None or second is None:
        return None
    terms = dict(first)
    for key, value in second.items():
        terms[key] = terms.get(key, 0.0) + value
    return terms


def square_root(graph: Graph, expr: relax.Expr) -> relax.Expr | None:
    """Match a square root; return its operand, or None."""
    call = graph.call(expr, "sqrt", "power")
    if call is None or call.op.name == "relax.power" and graph.scalar(call.args[1]) != 0.5:
        return None
    return call.args[0]


def is_wider(wide: DType | None, narrow: DType | None) -> bool:
    """Return True if `wide` is a float dtype with more bits than `narrow`."""
    return is_float(wide) and is_float(narrow) and wide.bits > narrow.bits  # type: ignore[union-attr]


def is_close(actual: Polynomial | None, expected: Mapping[Monomial, float], dtype: DType | None) -> bool:
    """Return True if coefficients are equal up to the rounding errors of a dtype."""
    if actual is None:
        return False
    nonzero = {key: value for key, value in actual.items() if value}
    tolerance = 4 * _EPSILON.get(str(dtype), 0.0)
    return nonzero.keys() == expected.keys() and all(
        abs(nonzero[k] - v) <= tolerance * abs(v) for k, v in expected.items()
    )
