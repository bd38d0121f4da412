"""Python's operators on relax expressions: `x + y`, `t[0]`, `f(x)`."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any

from mlcc.ir import relax

_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "divide", "floordiv": "floor_divide",
    "mod": "floor_mod", "pow": "power",
}  # fmt: skip
_COMPARE = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal"}


def install() -> None:
    """Give relax expressions their operators, and the names that TVM's newer releases have for struct info.

    `==` stays identity.
    """
    for name, operator in _BINARY.items():
        setattr(relax.Expr, f"__{name}__", _binary(operator, False))
        setattr(relax.Expr, f"__r{name}__", _binary(operator, True))
    for name, operator in _COMPARE.items():
        setattr(relax.Expr, f"__{name}__", _binary(operator, False))
    methods: dict[str, Any] = {"__neg__": _negative, "__getitem__": _item, "__call__": _call, "__iter__": _iterate}
    for name, method in methods.items():
        setattr(relax.Expr, name, method)
    relax.Expr.__array_ufunc__ = None  # so that `array + x` is ours, not NumPy's element by element
    relax.Expr.ty = property(lambda self: self.struct_info)
    relax.Function.ret_ty = property(lambda self: self.ret_struct_info)
    relax.Call.ty_args = property(lambda self: self.sinfo_args)
    relax.ShapeExpr.__getitem__ = _dimension
    relax.ShapeExpr.__iter__ = lambda self: (self[i] for i in range(len(self.values)))


def _binary(operator: str, swapped: bool) -> Callable[[relax.Expr, Any], relax.Call]:
    def method(self: relax.Expr, other: Any) -> relax.Call:
        from mlcc.relax import convert
        from mlcc.relax.op import call

        if isinstance(other, Number):
            raise TypeError(f"the dtype of {other} is not known: write relax.const({other}, dtype)")
        if not isinstance(other, relax.Expr) and not convert.is_array(other):
            return NotImplemented
        return call(operator, other, self) if swapped else call(operator, self, other)

    return method


def _negative(self: relax.Expr) -> relax.Call:
    from mlcc.relax.op import call

    return call("negative", self)


def _item(self: relax.Expr, index: int) -> relax.Expr:
    from mlcc.relax.nodes import TupleGetItem

    made: relax.Expr = TupleGetItem(self, index)
    return made


def _dimension(self: relax.ShapeExpr, index: int) -> Any:
    """A dimension as a scalar to compute with; `values` holds the expressions themselves."""
    from mlcc.te.scalar import Scalar

    return Scalar(self.values[index])


def _iterate(self: relax.Expr) -> Any:
    info = self.struct_info
    if not isinstance(info, relax.TupleStructInfo):
        raise TypeError("only tuples and shapes are taken apart")
    return (self[i] for i in range(len(info.fields)))  # type: ignore[index]


def _call(self: relax.Expr, *args: Any) -> relax.Call:
    from mlcc.relax.nodes import Call

    made: relax.Call = Call(self, list(args))
    return made
