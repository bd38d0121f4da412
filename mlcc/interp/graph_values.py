"""Values of graph-level programs, and their checks against struct info."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.errors import CallError, Span, error
from mlcc.interp import arithmetic
from mlcc.interp.memory import Storage, View, compact_strides
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import is_narrow
from mlcc.ops.relations import evaluate

Sizes = dict[tir.Var, int]


@dataclass(slots=True)
class Tensor:
    """An array in memory, and which of its elements were written."""

    storage: Storage
    shape: tuple[int, ...]
    dtype: DType

    @staticmethod
    def of(array: np.ndarray, dtype: DType) -> Tensor:
        """A tensor over an array of the storage type; a strided array is copied."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        return Tensor(Storage.of(array, "tensor"), array.shape, dtype)

    @staticmethod
    def fresh(shape: tuple[int, ...], dtype: DType, name: str = "result") -> Tensor:
        """Return uninitialized memory."""
        size = 1
        for extent in shape:
            size *= extent
        return Tensor(Storage.fresh(size, dtype, name), shape, dtype)

    def copy(self) -> Tensor:
        """Return a copy of the elements in new memory."""
        return Tensor.of(self.checked(None, "the argument").copy(), self.dtype)

    def view(self) -> View:
        """As an argument of a TensorIR function."""
        data = self.storage.typed(arithmetic.stored(self.dtype))
        strides = compact_strides(self.shape)
        return View(self.storage, data, self.dtype, self.shape, strides, 0, "tensor", is_narrow(self.dtype), {})

    def stored(self) -> np.ndarray:
        """The elements as they lie in memory."""
        return self.storage.typed(arithmetic.stored(self.dtype)).reshape(self.shape)

    def checked(self, span: Span | None, what: str) -> np.ndarray:
        """The elements, if all of them were written."""
        defined = self.storage.defined
        if defined is not None and not defined.all():
            place = tuple(int(n) for n in np.unravel_index(int(np.argmin(defined)), self.shape or (1,)))
            message = f"{what} has elements that were never written, the first at {place[: len(self.shape)]}"
            raise CallError(error("E0871", message, span))
        return self.stored()

    def values(self, span: Span | None = None) -> np.ndarray:
        """The elements as numbers, 16-bit and narrower floats as float32."""
        stored = self.checked(span, "the argument")
        if self.dtype.is_float and self.dtype.bits < 32:
            return np.asarray(arithmetic.from_memory(stored, self.dtype), np.float32)
        return stored


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape as a value."""

    dims: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Closure:
    """A function and the variables that were bound where it was made."""

    function: relax.Function
    values: dict[relax.Var, Any]
    sizes: Sizes


def dims_of(dims: tuple[tir.Expr, ...], sizes: Mapping[tir.Var, int], span: Span | None) -> tuple[int, ...]:
    """Dimensions as numbers."""
    extents = []
    for dim in dims:
        value = evaluate(dim, dict(sizes))
        if value is None:
            raise CallError(error("E0872", "a dimension has no value here", dim.span or span))
        extents.append(value)
    return tuple(extents)


class Mismatch(ValueError):
    """A value does not match its struct info; the message says how."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def match_struct_info(info: relax.StructInfo | None, value: Any, sizes: Sizes, name: str) -> None:
    """Check a value against struct info, binding symbolic sizes that stand alone. Raises Mismatch."""
    pending: list[tuple[tir.Expr, int, str]] = []
    _match(info, value, sizes, name, pending)
    for expr, size, where in pending:  # sizes that are expressions come last: their variables are bound by then
        wanted = evaluate(expr, sizes)
        if wanted is not None and wanted != size:
            raise Mismatch("E0806", f"{where} is {size}, it should be {wanted}")


def _match(info: Any, value: Any, sizes: Sizes, name: str, pending: list[tuple[tir.Expr, int, str]]) -> None:
    match info:
        case relax.TensorStructInfo():
            if not isinstance(value, Tensor):
                raise Mismatch("E0803", f"{name} should be a tensor")
            if info.dtype is not None and info.dtype is not value.dtype:
                raise Mismatch("E0804", f"{name} is {value.dtype}, it should be {info.dtype}")
            if info.ndim >= 0 and info.ndim != len(value.shape):
                raise Mismatch("E0805", f"{name} has {len(value.shape)} dimensions, it should have {info.ndim}")
            _match_dims(info.dims, value.shape, sizes, name, pending)
        case relax.ShapeStructInfo(values=values, ndim=ndim):
            if not isinstance(value, Shape):
                raise Mismatch("E0803", f"{name} should be a shape")
            if ndim >= 0 and ndim != len(value.dims):
                raise Mismatch("E0805", f"{name} has {len(value.dims)} dimensions, it should have {ndim}")
            _match_dims(values, value.dims, sizes, name, pending)
        case relax.PrimStructInfo(dtype=dtype, value=symbol):
            if not isinstance(value, (np.generic, bool, int, float)):
                raise Mismatch("E0803", f"{name} should be one {dtype}")
            if symbol is not None and (dtype.is_int or dtype.is_bool):
                _match_dims((symbol,), (int(value),), sizes, name, pending)
            elif isinstance(symbol, tir.Var):
                sizes.setdefault(symbol, value)  # type: ignore[arg-type]  # a float: no size, but a scalar by name too
        case relax.TupleStructInfo(fields=fields):
            if not isinstance(value, tuple) or len(value) != len(fields):
                raise Mismatch("E0803", f"{name} should be a tuple of {len(fields)}")
            for at, (part, item) in enumerate(zip(fields, value, strict=True)):
                _match(part, item, sizes, f"{name}[{at}]", pending)
        case _:
            pass


def _match_dims(
    dims: tuple[tir.Expr, ...] | None, have: tuple[int, ...], sizes: Sizes, name: str,
    pending: list[tuple[tir.Expr, int, str]],
) -> None:  # fmt: skip
    for at, (dim, size) in enumerate(zip(dims or (), have, strict=False)):
        if isinstance(dim, tir.Var):
            known = sizes.setdefault(dim, size)
            if known != size:
                raise Mismatch("E0806", f"dimension {at} of {name} is {size}, but `{dim.name}` is {known}")
        elif isinstance(dim, tir.IntImm):
            if dim.value != size:
                raise Mismatch("E0805", f"dimension {at} of {name} is {size}, it should be {dim.value}")
        else:
            pending.append((dim, size, f"dimension {at} of {name}"))


def from_python(value: Any, info: relax.StructInfo | None) -> Any:
    """An argument of a call as a value of the interpreter."""
    if isinstance(value, (Tensor, Shape, Closure)):
        return value
    if isinstance(info, relax.TupleStructInfo) and isinstance(value, (tuple, list)):
        fields = info.fields if len(info.fields) == len(value) else (None,) * len(value)
        return tuple(from_python(v, f) for v, f in zip(value, fields, strict=True))
    if isinstance(info, relax.ShapeStructInfo) and isinstance(value, (tuple, list)):
        return Shape(tuple(int(n) for n in value))
    if isinstance(info, relax.PrimStructInfo) and not isinstance(value, str):
        plain = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
        if isinstance(plain, (bool, int, float, np.generic)):
            return arithmetic.carrier(info.dtype).type(plain)
    wanted = info.dtype if isinstance(info, relax.TensorStructInfo) else None
    if isinstance(value, (bool, int, float)) and wanted is not None:
        value = np.asarray(value)
    if isinstance(value, np.generic) and isinstance(info, relax.TensorStructInfo):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return _tensor(value, wanted)
    if isinstance(value, (tuple, list)):
        return tuple(from_python(v, None) for v in value)
    return value


def _tensor(array: np.ndarray, wanted: DType | None) -> Tensor:
    try:
        dtype = DType.of(array.dtype.name)
    except ValueError as bad:
        raise CallError(error("E0804", f"arrays of {array.dtype} are not supported here")) from bad
    if is_narrow(dtype):
        array = array.view(arithmetic.stored(dtype))
    if wanted is not None and is_narrow(wanted) and array.dtype == arithmetic.stored(wanted):
        dtype = wanted
    return Tensor.of(array, dtype)


def to_python(value: Any, span: Span | None = None) -> Any:
    """Convert a value for the caller: arrays, tuples, numbers."""
    if isinstance(value, Tensor):
        return value.checked(span, "the result")
    if isinstance(value, Shape):
        return value.dims
    if isinstance(value, tuple):
        return tuple(to_python(v, span) for v in value)
    return value


def for_packed(value: Any) -> Any:
    """Convert a value for a packed function; arrays share memory."""
    if isinstance(value, Tensor):
        return value.stored()
    if isinstance(value, Shape):
        return value.dims
    if isinstance(value, tuple):
        return tuple(for_packed(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, DType) else value


def for_operator(value: Any, span: Span | None) -> Any:
    """Convert a value for an operator's NumPy reference."""
    if isinstance(value, Tensor):
        return value.values(span)
    if isinstance(value, Shape):
        return value.dims
    if isinstance(value, tuple):
        return tuple(for_operator(v, span) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return str(value) if isinstance(value, DType) else value


def from_operator(value: Any, info: relax.StructInfo | None, narrow: DType | None) -> Any:
    """Convert an operator's reference result to the inferred dtype; without one, to `narrow` or NumPy's dtype.

    `narrow` applies to float32 results only.
    """
    match info:
        case relax.TupleStructInfo(fields=fields) if isinstance(value, (tuple, list)):
            return tuple(from_operator(v, f, narrow) for v, f in zip(value, fields, strict=True))
        case relax.ShapeStructInfo():
            return Shape(tuple(int(n) for n in value))
        case relax.PrimStructInfo():
            return arithmetic.carrier(info.dtype).type(value)
    if isinstance(value, (tuple, list)) and not isinstance(info, relax.TensorStructInfo):
        return tuple(from_operator(v, None, narrow) for v in value)
    array = np.asarray(value)
    dtype = info.dtype if isinstance(info, relax.TensorStructInfo) else None
    if dtype is None:
        dtype = narrow if narrow is not None and array.dtype == np.float32 else DType.of(array.dtype.name)
    return Tensor.of(to_stored(array, dtype), dtype)


def to_stored(array: np.ndarray, dtype: DType) -> np.ndarray:
    """Numbers as elements of `dtype` in memory."""
    source = DType.of(array.dtype.name)
    if source is dtype:
        return array
    converted = arithmetic.cast(dtype, source)(array)
    return np.asarray(arithmetic.to_memory(converted, dtype)).reshape(array.shape)
