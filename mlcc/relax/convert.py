"""Conversion of Python values to IR: numbers, lists, arrays, scalars of tensor expressions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64, DType
from mlcc.ir.tensor_data import TensorData
from mlcc.ops import values
from mlcc.relax.construct import make_tuple, prim_value, shape_expr

Result = TypeVar("Result")

# What TVM's newer releases call the parameters that hold struct info.
NEWER_NAMES = {
    "out_ty": "out_sinfo", "ret_ty": "ret_struct_info", "ty": "struct_info", "ty_args": "sinfo_args",
}  # fmt: skip


def accept_newer_names(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return the function with the names in `NEWER` as aliases of its keyword parameters."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Result:
        return function(*args, **{NEWER_NAMES.get(k, k): v for k, v in kwargs.items()})

    return wrapper


def unwrap(value: Any) -> Any:
    """Return the expression that a scalar of tensor expressions wraps, and NumPy scalars as Python numbers."""
    from mlcc.te.scalar import Value

    if isinstance(value, Value):
        return value.expr
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()
    return value


def dimension(value: Any) -> tir.Expr:
    """Convert one dimension of a shape. Raises TypeError unless it is an int64."""
    value = unwrap(value)
    if isinstance(value, relax.PrimValue):
        value = value.value
    if isinstance(value, relax.Expr):
        info = value.struct_info
        if not isinstance(info, relax.PrimStructInfo) or info.value is None:
            raise TypeError(f"a dimension must be an integer expression, not the variable `{_name(value)}`")
        value = info.value
    try:
        dim = values.dim(value)
    except values.InvalidValue as problem:
        raise TypeError(f"a shape {problem}") from None
    if dim.dtype is not INT64:
        help = f'; make it with te.var("{dim.name}", "int64")' if isinstance(dim, tir.Var) else ""
        raise TypeError(f"dimensions must be int64, but `{dim}` is {dim.dtype}{help}")
    return dim


def _name(value: relax.Expr) -> str:
    return value.name if isinstance(value, relax.Var) else type(value).__name__


def dimensions(shape: Any) -> relax.ShapeExpr:
    """A list of dimensions as a shape."""
    if isinstance(shape, relax.ShapeExpr):
        return shape
    if not isinstance(shape, (list, tuple)):
        raise TypeError(f"a shape must be a list of dimensions, not {values.describe(shape)}")
    return shape_expr(dimension(d) for d in shape)


def as_expr(value: Any) -> relax.Expr:
    """Convert a value to a graph-level expression: lists become tuples, arrays constants, None an empty object.

    Raises TypeError for what has no meaning as one.
    """
    value = unwrap(value)
    if isinstance(value, relax.Expr):
        return value
    if isinstance(value, (list, tuple)):
        return make_tuple(as_expr(v) for v in value)
    if value is None:
        return relax.Call(tir.Op("relax.null_value"), (), struct_info=relax.ObjectStructInfo())
    if isinstance(value, tir.Expr) and not isinstance(value, tir.StringImm):
        return prim_value(value)
    if is_array(value):
        return constant(value)
    try:
        return values.expr(value)
    except values.InvalidValue:
        raise TypeError(f"{type(value).__name__} is not a relax expression; relax.const makes one from data") from None


def is_array(value: Any) -> bool:
    """Return True for an array of NumPy or a tensor of another library."""
    return not isinstance(value, type) and (hasattr(value, "__dlpack__") or hasattr(value, "__array__"))


def array_of(value: Any) -> Any:
    """A NumPy array of the same data."""
    import numpy as np

    if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack__"):
        return np.asarray(value)
    return np.from_dlpack(value)


def constant(value: Any, dtype: DType | None = None) -> relax.Constant:
    """Return an array as a constant, with the array's dtype unless another is given."""
    array = array_of(value)
    if dtype is None:
        dtype = DType.of(str(array.dtype))
    if str(array.dtype) == str(dtype) and array.dtype.kind == "V":  # a type that NumPy lacks, from an extension
        array = array.astype("float32")
    from mlcc.ir.narrow_floats import encode

    data = TensorData(dtype, array.shape, encode(array, dtype))
    shape = shape_expr(values.dim(n) for n in array.shape)
    return relax.Constant(data, relax.TensorStructInfo(shape, dtype, len(array.shape)))


def struct_info(value: Any, what: str) -> relax.StructInfo:
    """`value` if it is struct info. Raises TypeError otherwise."""
    if not isinstance(value, relax.StructInfo):
        help = '; write relax.TensorStructInfo(shape, "float32")' if isinstance(value, (list, tuple)) else ""
        raise TypeError(f"{what} must be struct info, not {values.describe(value)}{help}")
    return value


def dtype_of(value: Any) -> DType:
    """Convert the name of a dtype, or a NumPy dtype. Raises TypeError for any other value."""
    if isinstance(value, DType):
        return value
    try:
        return DType.of(value if isinstance(value, str) else _numpy_name(value))
    except (ValueError, TypeError):
        raise TypeError(f"{value!r} is not a dtype") from None


def _numpy_name(value: Any) -> str:
    import numpy as np

    return str(np.dtype(value))
