"""Arithmetic of extents: quotients with cancellation, broadcast shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.shape_folding import as_number
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ops.relations import provably_equal

if TYPE_CHECKING:
    from mlcc.frontend.onnx.translate import OnnxTranslator


def cancelled_quotient(t: OnnxTranslator, extents: Sequence[Dim], parts: Sequence[Dim]) -> Dim:
    """Return the product of `extents` divided by that of `parts`. Equal factors cancel, even if a symbol is 0."""
    number, factors = _factors(extents)
    divisor, others = _factors(parts)
    for factor in list(others):
        twin = next((f for f in factors if provably_equal(f, factor)), None)
        if twin is not None:
            factors.remove(twin)
            others.remove(factor)
    shared = math.gcd(number, divisor) or 1
    above, below = _product(number // shared, factors), _product(divisor // shared, others)
    if tir.const_int(c.as_expr(below)) == 0:
        raise Unsupported("an extent of -1 cannot be inferred beside an extent of 0")
    return t.simplify(c.floordiv(above, below))


def _factors(extents: Sequence[Dim]) -> tuple[int, list[tir.Expr]]:
    """Split a product into a number and expressions that are not products."""
    number, factors, todo = 1, [], list(extents)
    while todo:
        extent = as_number(todo.pop())
        if isinstance(extent, int):
            number *= extent
        elif isinstance(extent, tir.Mul):
            todo += [extent.lhs, extent.rhs]
        else:
            factors.append(extent)
    return number, factors


def _product(number: int, factors: Sequence[tir.Expr]) -> tir.Expr:
    product: tir.Expr = c.const(number, "int64")
    for factor in reversed(factors):
        product = c.mul(factor, product)
    return product


def broadcast_shapes(one: Sequence[Dim], other: Sequence[Dim]) -> Sequence[Dim]:
    """Return the shape that two shapes broadcast to; the maximum of two different symbols."""
    rank = max(len(one), len(other))
    left, right = (_padded(shape, rank) for shape in (one, other))
    return [_broadcast_extent(a, b) for a, b in zip(left, right, strict=True)]


def _padded(shape: Sequence[Dim], rank: int) -> list[Dim]:
    return [*[1] * (rank - len(shape)), *(as_number(n) for n in shape)]


def _broadcast_extent(a: Dim, b: Dim) -> Dim:
    if a == 1 or (isinstance(b, int) and b != 1):
        return b
    if b == 1 or isinstance(a, int):
        return a
    assert isinstance(a, tir.Expr) and isinstance(b, tir.Expr)
    return a if provably_equal(a, b) else c.maximum(a, b)
