"""Converters of numbers known at run time only: those read from data, their arithmetic, and assertions on them.

Most symbolic numbers need no converter: the exporter states them as expressions over sizes.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from mlcc.frontend.aten.graph import NumberMeta
from mlcc.frontend.aten.promotion import RuntimeFloat, as_tensor
from mlcc.frontend.aten.symbols import parse_extent, symbols_of
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir

Scalar = Any  # a Python number, `tir.Expr` of integers or bools, or `Number` for run-time floats


@converts("aten.item", "aten._local_scalar_dense")
def _item(t: Translator, self: relax.Expr) -> Scalar:
    """Return the only element: an integer as a symbol, since extents may depend on it; a float as a tensor."""
    scalar = t.reshape(self, [])
    dtype = t.dtype(scalar)
    stated = t.outputs[0].value if t.outputs and isinstance(t.outputs[0], NumberMeta) else None
    if dtype.startswith(("float", "bfloat")):
        return RuntimeFloat(t.cast(scalar, "float64"))
    if not isinstance(stated, str):
        raise Unsupported("the program does not state the symbol of the number that it reads from a tensor")
    vector = t.emit(t.op.reshape(t.cast(scalar, "int64"), t.shape_expr([1])))
    if dtype == "bool":  # stated as `Eq(u0, 1)`
        unknown = [name for name in symbols_of(stated) if name not in t.symbols]
        if len(unknown) != 1:
            raise Unsupported(f"the program reads the expression `{stated[:80]}` from a tensor")
        t.define(unknown[0], vector)
        return parse_extent(stated, t.symbols)
    if not stated.isidentifier():
        raise Unsupported(f"the program reads the expression `{stated[:80]}` from a tensor")
    return t.define(stated, vector)


@converts("aten._assert_scalar")
def _assert_scalar(t: Translator, self: Scalar, assert_msg: str = "") -> None:
    """Emit the program's assertion as a run-time check."""
    if isinstance(self, tir.Expr):
        t.check(self)
    elif isinstance(self, RuntimeFloat):
        raise Unsupported("assertions on floats that depend on the data are not supported")
    elif not self:
        raise Unsupported(f"its assertion always fails: {assert_msg}")


@converts("aten._assert_async", "aten._functional_assert_async")
def _assert_tensor(t: Translator, self: relax.Expr, **arguments: Any) -> None:
    raise Unsupported("assertions on data are not supported", "remove the assertion from the program")


@converts("aten.sym_constrain_range", "aten.sym_constrain_range_for_size")
def _constrain(t: Translator, size: Scalar, min: int | None = None, max: int | None = None) -> None:
    """Emit a run-time check of the range."""
    if isinstance(size, tir.Expr):
        t.check_range(size, min, max)


# ---------------------------------------------------------------- run-time floats


def _float(t: Translator, value: Scalar) -> relax.Expr:
    return as_tensor(t, value, "float64")


def _arithmetic(name: str, fold: Callable[[Any, Any], Any]) -> None:
    @converts(f"operator.{name}")
    def convert(t: Translator, arg0: Scalar, arg1: Scalar) -> Scalar:
        if not isinstance(arg0, (RuntimeFloat, tir.Expr)) and not isinstance(arg1, (RuntimeFloat, tir.Expr)):
            return fold(arg0, arg1)
        apply: Callable[..., relax.Expr] = getattr(t.op, _OPERATORS[name])
        return RuntimeFloat(t.emit(apply(_float(t, arg0), _float(t, arg1))))


_OPERATORS = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "floor_mod", "pow": "power",
}  # fmt: skip
for _name in _OPERATORS:
    _arithmetic(_name, getattr(operator, _name))


@converts("operator.neg")
def _neg(t: Translator, arg0: Scalar) -> Scalar:
    return RuntimeFloat(t.emit(t.op.negative(_float(t, arg0))))


@converts("torch.sym_float")
def _sym_float(t: Translator, arg0: Scalar) -> Scalar:
    return RuntimeFloat(_float(t, arg0))


@converts("torch.sym_max", "torch.sym_min")
def _extreme(t: Translator, arg0: Scalar, arg1: Scalar) -> Scalar:
    assert t.node is not None
    apply = t.op.maximum if t.node.target.endswith("max") else t.op.minimum
    return RuntimeFloat(t.emit(apply(_float(t, arg0), _float(t, arg1))))


@converts("torch.sym_sqrt", "torch._sym_sqrt", "math.sqrt")
def _sqrt(t: Translator, arg0: Scalar) -> Scalar:
    return RuntimeFloat(t.emit(t.op.sqrt(_float(t, arg0))))
