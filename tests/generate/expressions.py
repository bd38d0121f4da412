"""Random scalar and vector expressions of every dtype, defined for all values that their variables can take."""

from __future__ import annotations

import random
from collections.abc import Callable

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, DType

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64", "float16", "bfloat16")
DTYPES = (*INTS, *FLOATS, "bool")

_FLOAT_CALLS = ("exp", "tanh", "sqrt", "sigmoid", "floor", "ceil", "trunc", "nearbyint", "fabs", "cos", "sin", "log1p")
_FOLDED = ("floor", "ceil", "trunc", "nearbyint", "fabs")


class Expressions:
    """Makes expressions from a source of leaves: `leaf(dtype)` gives a load or a variable of a dtype, or None."""

    def __init__(self, rng: random.Random, leaf: Callable[[DType], tir.Expr | None], raw: bool = True) -> None:
        self.rng = rng
        self.leaf = leaf
        self.raw = raw  # with nodes that construction would fold

    def constant(self, dtype: DType) -> tir.Expr:
        rng = self.rng
        if dtype.lanes > 1:
            return tir.Broadcast(dtype, self.constant(dtype.element), dtype.lanes)
        if dtype.is_bool:
            return c.const(rng.random() < 0.5, BOOL)
        if dtype.is_float:
            return c.const(rng.choice([0.0, 1.0, -1.5, 0.1, 3.0, -0.25, 100.0, rng.uniform(-2, 2)]), dtype)
        low = 0 if dtype.is_uint else -3
        return c.const(rng.choice([0, 1, 2, 7, 100, rng.randint(low, 5)]), dtype)

    def make(self, dtype: DType, depth: int) -> tir.Expr:
        """An expression of about `depth` levels."""
        made = self._make(dtype, depth)
        too_large = isinstance(made, tir.IntImm) and made.value >= 2**63  # TVM's constants are int64 inside
        return self.constant(dtype) if too_large and not self.raw else made

    def _make(self, dtype: DType, depth: int) -> tir.Expr:
        rng = self.rng
        if depth <= 0 or rng.random() < 0.1:
            found = self.leaf(dtype) if rng.random() < 0.8 else None
            return found if found is not None else self.constant(dtype)
        if dtype.lanes > 1:
            return self._vector(dtype, depth)
        if rng.random() < 0.15:
            return self._any(dtype, depth)
        if dtype.is_bool:
            return self._bool(depth)
        return self._float(dtype, depth) if dtype.is_float else self._int(dtype, depth)

    def _vector(self, dtype: DType, depth: int) -> tir.Expr:
        rng = self.rng
        if rng.random() < 0.3:
            return tir.Broadcast(dtype, self.make(dtype.element, depth - 1), dtype.lanes)
        if str(dtype.element) == "int32" and rng.random() < 0.2:
            return tir.Ramp(dtype, self.make(dtype.element, depth - 1), c.const(rng.randint(1, 3)), dtype.lanes)
        a, b = self.make(dtype, depth - 1), self.make(dtype, depth - 1)
        if rng.random() < 0.2:
            condition = self.make(BOOL.with_lanes(dtype.lanes), depth - 1)
            return tir.Select(dtype, condition, a, b)
        if dtype.is_bool:
            return rng.choice([tir.And, tir.Or])(dtype, a, b)
        return rng.choice([c.add, c.sub, c.mul, c.minimum, c.maximum])(a, b)

    def _any(self, dtype: DType, depth: int) -> tir.Expr:
        """What every dtype has: choices, conversions, local names, and nodes that construction would fold."""
        rng = self.rng
        kind = rng.randrange(5)
        if kind == 0:
            condition = self.make(BOOL, depth - 1)
            return tir.Select(dtype, condition, self.make(dtype, depth - 1), self.make(dtype, depth - 1))
        if kind == 1:
            condition = self.make(BOOL, depth - 1)
            if isinstance(condition, tir.IntImm):
                condition = self._bool(1)
            if not isinstance(condition, tir.IntImm):
                return c.call(
                    dtype, "if_then_else", condition, self.make(dtype, depth - 1), self.make(dtype, depth - 1)
                )
        if kind == 2:
            var = tir.Var(rng.choice(["t", "x", "y_1"]), DType.of(rng.choice(["int32", "float32", str(dtype)])))
            value = self.make(var.dtype, depth - 1)
            outer, self.leaf = self.leaf, lambda d: var if d is var.dtype else outer(d)
            body = self.make(dtype, depth - 1)
            self.leaf = outer
            return tir.Let(dtype, var, value, body)
        if kind == 3 and not dtype.is_bool:
            node = rng.choice([tir.Add, tir.Mul, *([tir.Sub, tir.Min, tir.Max] if self.raw else [])])
            return node(dtype, self.constant(dtype), self.constant(dtype))
        source = DType.of(rng.choice(DTYPES))
        return tir.Cast(dtype, self.make(source, depth - 1)) if source is not dtype else self.make(dtype, depth - 1)

    def _bool(self, depth: int) -> tir.Expr:
        rng = self.rng
        kind = rng.randrange(5)
        if kind == 0:
            return c.logical_not(self.make(BOOL, depth - 1))
        if kind <= 2:
            a, b = self.make(BOOL, depth - 1), self.make(BOOL, depth - 1)
            return rng.choice([c.logical_and, c.logical_or])(a, b)
        dtype = DType.of(rng.choice(["int32", "float32", rng.choice(INTS), rng.choice(FLOATS)]))
        compare = rng.choice([c.less, c.less_equal, c.greater, c.greater_equal, c.equal, c.not_equal])
        return compare(self.make(dtype, depth - 1), self.make(dtype, depth - 1))

    def _float(self, dtype: DType, depth: int) -> tir.Expr:
        rng = self.rng
        a = self.make(dtype, depth - 1)
        if rng.random() < 0.25 and dtype.kind == "float" and dtype.bits >= 32:
            name = rng.choice(_FLOAT_CALLS)
            folds = name in _FOLDED and isinstance(a, tir.FloatImm)
            return c.call(dtype, name, a) if self.raw or not folds else a
        b = self.make(dtype, depth - 1)
        build = rng.choice([c.add, c.sub, c.mul, c.minimum, c.maximum, c.div])
        return build(a, self._nonzero(dtype) if build is c.div else b)

    def _nonzero(self, dtype: DType) -> tir.Expr:
        return c.const(
            self.rng.choice([1.5, 2.0, 0.5, 3.0]) if dtype.is_float else self.rng.choice([1, 2, 3, 7]), dtype
        )

    def _int(self, dtype: DType, depth: int) -> tir.Expr:
        rng = self.rng
        a = self.make(dtype, depth - 1)
        kind = rng.randrange(4)
        if kind == 0:
            build = rng.choice([c.floordiv, c.floormod, c.truncmod, c.div])
            return build(a, self._nonzero(dtype))
        b = self.make(dtype, depth - 1)
        if kind == 1 and not (isinstance(a, tir.IntImm) and isinstance(b, tir.IntImm)):
            name = rng.choice(["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"])
            if name.startswith("shift") and isinstance(a, tir.IntImm) and not self.raw:
                return a
            count = c.const(rng.randint(0 if self.raw else 1, 6), dtype)
            return c.call(dtype, name, a, count if name.startswith("shift") else b)
        return rng.choice([c.add, c.sub, c.mul, c.minimum, c.maximum])(a, b)
