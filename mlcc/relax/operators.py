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
    for cls, members in _MEMBERS.items():
        for name, member in members.items():
            setattr(cls, name, member)


def _binary(operator: str, swapped: bool) -> Callable[[relax.Expr, Any], Any]:
    def method(self: relax.Expr, other: Any) -> Any:
        from mlcc.relax import convert
        from mlcc.relax.op_call import call

        if isinstance(other, Number):
            raise TypeError(f"the dtype of {other} is not known: write relax.const({other}, dtype)")
        if not isinstance(other, relax.Expr) and not convert.is_array(other):
            return NotImplemented
        operands = (other, self) if swapped else (self, other)
        return call(operator, *operands)

    return method


def _negative(self: relax.Expr) -> relax.Call:
    from mlcc.relax.op_call import call

    return call("negative", self)


def _item(self: relax.Expr, index: int) -> relax.Expr:
    from mlcc.relax.nodes import TupleGetItem

    return TupleGetItem.make(self, index)


def _dimension(self: relax.ShapeExpr, index: int) -> Any:
    """A dimension as a scalar to compute with; `values` holds the expressions themselves."""
    from mlcc.te.scalar import Scalar

    return Scalar(self.values[index])


def _iterate(self: relax.Expr) -> Any:
    info = self.struct_info
    if not isinstance(info, relax.TupleStructInfo):
        raise TypeError("only tuples and shapes can be unpacked")
    return (self[i] for i in range(len(info.fields)))


def _call(self: relax.Expr, *args: Any) -> relax.Call:
    from mlcc.relax.nodes import Call

    return Call.make(self, list(args))


_MEMBERS: dict[type, dict[str, Any]] = {
    relax.Expr: {
        "__neg__": _negative, "__getitem__": _item, "__call__": _call, "__iter__": _iterate,
        "__array_ufunc__": None,  # so that `array + x` is ours, not NumPy's element by element
        "ty": property(lambda self: self.struct_info),
    },
    relax.ShapeExpr: {
        "__getitem__": _dimension, "__iter__": lambda self: (self[i] for i in range(len(self.values))),
    },
    relax.Function: {"ret_ty": property(lambda self: self.ret_struct_info)},
    relax.Call: {"ty_args": property(lambda self: self.sinfo_args)},
}  # fmt: skip
