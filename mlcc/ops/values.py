"""Python values and TensorIR expressions as relax arguments and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import Span
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import FLOAT32, FLOAT64, INT64, DType
from mlcc.ir.node import Attrs, Node
from mlcc.ops.signature import Param


class InvalidValue(ValueError):
    """A value that a parameter does not take; the message completes "`name` ..."."""


# ---------------------------------------------------------------- expressions


def scalar(value: Any, span: Span | None = None, float_dtype: DType = FLOAT64) -> relax.PrimValue:
    """A scalar as a graph-level value: integers are int64, as the dimensions of tensors are."""
    if isinstance(value, bool):
        value = construct.const(value)
    elif isinstance(value, int):
        value = construct.const(value, INT64)
    elif isinstance(value, float):
        value = construct.const(value, float_dtype)
    return relax.PrimValue(value, relax.PrimStructInfo(value.dtype, value), span=span)


def shape_expr(values: Any, span: Span | None = None) -> relax.ShapeExpr:
    """A shape from numbers and integer expressions, all as int64."""
    dims = tuple(dim(v) for v in values)
    return relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims)), span=span)


def dim(value: Any) -> tir.Expr:
    """One dimension: an int64 expression."""
    if isinstance(value, relax.PrimValue):
        value = value.value
    if isinstance(value, bool) or not isinstance(value, (int, tir.Expr)):
        raise InvalidValue(f"needs integers, not {describe(value)}")
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InvalidValue(f"needs integers of 64 bits, not {value}")
        return construct.const(value, INT64)
    if not value.dtype.is_int:
        raise InvalidValue(f"needs integers, not {value.dtype}")
    return construct.cast(INT64, value) if isinstance(value, tir.IntImm) else value


def tensor_info(dims: Any, dtype: DType | str | None) -> relax.TensorStructInfo:
    """The struct info of a tensor of known shape."""
    shape = shape_expr(dims)
    return relax.TensorStructInfo(shape, None if dtype is None else DType.of(dtype), len(shape.values))


def tuple_expr(fields: Any, span: Span | None = None) -> relax.Tuple:
    """A tuple; its struct info is known if that of every field is."""
    exprs = tuple(expr(f, span) for f in fields)
    infos = [f.struct_info for f in exprs]
    known = None if any(i is None for i in infos) else relax.TupleStructInfo(tuple(i for i in infos if i is not None))
    return relax.Tuple(exprs, known, span=span)


def expr(value: Any, span: Span | None = None) -> relax.Expr:
    """Return any value as a graph-level expression. Raises BadValue if that is impossible."""
    if isinstance(value, relax.Expr):
        return value
    if isinstance(value, tir.StringImm):
        value = value.value
    if isinstance(value, (bool, int, float, tir.Expr)):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidValue(f"takes integers of 64 bits, not {value}")
        return scalar(value, span, FLOAT32)
    if isinstance(value, str):
        return relax.StringImm(value, relax.ObjectStructInfo(), span=span)
    if isinstance(value, DType):
        return relax.DataTypeImm(value, relax.ObjectStructInfo(), span=span)
    if isinstance(value, (tuple, list)):
        return tuple_expr(value, span)
    raise InvalidValue(f"takes an expression, not {describe(value)}")


def argument(param: Param, value: Any, span: Span | None) -> relax.Expr:
    """Convert a value to an argument of the kind of `param`."""
    if isinstance(value, relax.Expr) and not isinstance(value, relax.Tuple):
        return value
    kind = param.kind
    if isinstance(value, relax.Tuple) and not value.fields and kind == "scalar" and param.optional:
        return value  # stands for an omitted scalar
    if kind == "shape":
        if isinstance(value, relax.Tuple):
            return value
        if isinstance(value, (int, tir.Expr)) and not isinstance(value, (bool, tir.StringImm)):
            value = (value,)
        return shape_expr(_sequence(value), span)
    if isinstance(value, relax.Tuple) and not value.fields and kind in ("scalar", "datatype"):
        return value  # stands for an omitted argument
    if kind in ("scalar", "scalars"):
        return _scalars(value, span) if kind == "scalars" else _scalar(value, span)
    if kind in ("exprs", "func") and isinstance(value, (tuple, list, relax.Tuple)):
        return value if isinstance(value, relax.Tuple) else tuple_expr(value, span)
    if kind == "exprs":
        return tuple_expr((value,), span)
    if kind == "func":
        if not isinstance(value, (str, tir.StringImm)):
            raise InvalidValue(f"takes a function or its name, not {describe(value)}")
        return extern(value if isinstance(value, str) else value.value, span)
    if kind == "string":
        text = python_value(value)
        if not isinstance(text, str):
            raise InvalidValue(f"takes a string, not {describe(value)}")
        return relax.StringImm(text, relax.ObjectStructInfo(), span=span)
    if kind == "datatype":
        name = _dtype(value)
        return relax.DataTypeImm(DType.of(name), relax.ObjectStructInfo(), span=span)
    return expr(value, span)


def _scalar(value: Any, span: Span | None) -> relax.PrimValue:
    if isinstance(value, (bool, int, float, tir.Expr)) and not isinstance(value, tir.StringImm):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidValue(f"takes integers of 64 bits, not {value}")
        return scalar(value, span)
    raise InvalidValue(f"takes a scalar, not {describe(value)}")


def _scalars(value: Any, span: Span | None) -> relax.Expr:
    if isinstance(value, relax.Tuple):
        return value
    if not isinstance(value, (tuple, list)):
        value = (value,)
    return tuple_expr([v if isinstance(v, relax.Expr) else _scalar(v, span) for v in value], span)


def extern(name: str, span: Span | None = None) -> relax.ExternFunc:
    """The packed function of that name."""
    return relax.ExternFunc(name, relax.FuncStructInfo(None, relax.ObjectStructInfo()), span=span)


# ---------------------------------------------------------------- attributes


def python_value(value: Any) -> Any:
    """The Python value behind constants: `R.prim_value(3)` and `T.int64(3)` are 3."""
    if isinstance(value, relax.PrimValue):
        return python_value(value.value)
    if isinstance(value, tir.IntImm):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, (tir.FloatImm, tir.StringImm, relax.StringImm)):
        return value.value
    if isinstance(value, relax.DataTypeImm):
        return str(value.value)
    if isinstance(value, relax.Tuple):
        return tuple(python_value(v) for v in value.fields)
    if isinstance(value, relax.ShapeExpr):
        return tuple(python_value(v) for v in value.values)
    if isinstance(value, (tuple, list)):
        return tuple(python_value(v) for v in value)
    return value


def attribute(param: Param, value: Any) -> Any:
    """`value` in the canonical form of `param`: ints, floats, bools, strings, tuples of them, or None."""
    if param.kind == "any":
        return value
    value = python_value(value)
    if value is None:
        if param.optional:
            return None
        raise InvalidValue("cannot be None")
    if param.kind == "dtype" and param.optional and value in ("void", ""):
        return None
    return _CONVERT[param.kind](value, param.count)


def _int(value: Any, count: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidValue(f"takes an integer, not {describe(value)}")
    if not -(2**63) <= value < 2**63:
        raise InvalidValue(f"takes an integer of 64 bits, not {value}")
    return value


def _float(value: Any, count: int = 0) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidValue(f"takes a number, not {describe(value)}")
    try:
        return float(value)
    except OverflowError:
        raise InvalidValue("takes a number that a float can hold") from None


def _bool(value: Any, count: int = 0) -> bool:
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise InvalidValue(f"takes True or False, not {describe(value)}")


def _str(value: Any, count: int = 0) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"takes a string, not {describe(value)}")
    return value


def _dtype(value: Any, count: int = 0) -> str:
    value = python_value(value)
    if isinstance(value, DType):
        return str(value)
    try:
        return str(DType.of(value)) if isinstance(value, str) else _refuse_dtype(value)
    except ValueError as problem:
        raise InvalidValue(f"takes a dtype: {problem}") from None


def _refuse_dtype(value: Any) -> str:
    raise InvalidValue(f"takes a dtype, not {describe(value)}")


def _sequence(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, (tuple, list, relax.Tuple)):
        raise InvalidValue(f"takes a list, not {describe(value)}")
    return value.fields if isinstance(value, relax.Tuple) else tuple(value)


def _ints(value: Any, count: int) -> tuple[int, ...]:
    numbers = tuple(_int(v) for v in value) if isinstance(value, tuple) else (_int(value),)
    if count:
        numbers = numbers * count if len(numbers) == 1 else numbers
        if len(numbers) != count:
            raise InvalidValue(f"takes 1 or {count} integers, not {len(numbers)}")
    return numbers


def _pads(value: Any, count: int) -> tuple[int, ...]:
    numbers = tuple(_int(v) for v in value) if isinstance(value, tuple) else (_int(value),)
    if len(numbers) == 1:
        return numbers * count
    if len(numbers) == count // 2:
        return numbers * 2
    if len(numbers) != count:
        raise InvalidValue(f"takes 1, {count // 2} or {count} integers, not {len(numbers)}")
    return numbers


def _floats(value: Any, count: int) -> tuple[float, ...]:
    numbers = tuple(_float(v) for v in value) if isinstance(value, tuple) else (_float(value),)
    return numbers * count if len(numbers) == 1 and count else numbers


def _sections(value: Any, count: int) -> Any:
    """Convert a number of equal sections, or the indices that split them (which may be symbolic)."""
    if not isinstance(value, tuple):
        return _int(value)
    return tuple(v if isinstance(v, tir.Expr) and v.dtype.is_int else _int(v) for v in value)


_CONVERT: dict[str, Callable[[Any, int], Any]] = {
    "int": _int, "float": _float, "bool": _bool, "str": _str, "dtype": _dtype, "ints": _ints, "pads": _pads,
    "floats": _floats, "sections": _sections,
}  # fmt: skip


# ---------------------------------------------------------------- struct info of results


def result_types(value: Any, dtype: Any, as_list: bool) -> tuple[relax.StructInfo, ...]:
    """The struct infos that a call names for its results.

    Also reads the older form, a shape (or a list of shapes) beside `dtype=`. With `as_list` several are kept apart,
    else they make one tuple.
    """
    if isinstance(value, relax.StructInfo):
        return (value,)
    if isinstance(value, relax.ShapeExpr):
        value = value.values
    if isinstance(value, relax.Tuple):
        value = value.fields
    if not isinstance(value, (tuple, list)):
        raise InvalidValue(f'takes struct info such as `R.Tensor((1, 2), "float32")`, not {describe(value)}')
    if all(isinstance(v, relax.StructInfo) for v in value) and (value or dtype is None):
        return tuple(value) if as_list or len(value) == 1 else (relax.TupleStructInfo(tuple(value)),)
    if all(isinstance(v, (int, tir.Expr, relax.PrimValue)) for v in value):
        if dtype is None:
            raise InvalidValue("is a shape: pass its `dtype=` as well, or `R.Tensor(shape, dtype)`")
        return (tensor_info(value, _dtype(dtype)),)
    dtypes = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype] * len(value)
    if len(dtypes) != len(value):
        raise InvalidValue(f"has {len(value)} shapes, but `dtype` has {len(dtypes)} dtypes")
    fields = [result_types(v, d, False)[0] for v, d in zip(value, dtypes, strict=True)]
    return tuple(fields) if as_list else (relax.TupleStructInfo(tuple(fields)),)


def describe(value: Any) -> str:
    """Describe a value for messages."""
    if value is None or isinstance(value, (bool, int, float)):
        text = repr(value)
        return text if len(text) <= 40 else text[:37] + "..."
    if isinstance(value, str):
        return "a string"
    if isinstance(value, (tuple, list, relax.Tuple)):
        return "a list"
    if isinstance(value, relax.StructInfo):
        return "struct info"
    if isinstance(value, Attrs):
        return "a map"
    if isinstance(value, tir.Expr):
        return f"an expression of {value.dtype}"
    return "an expression" if isinstance(value, Node) else f"{type(value).__name__}"
