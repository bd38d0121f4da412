"""Converters of operators that create tensors or change only their dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.complex import PARTS, Complex, as_complex
from mlcc.frontend.aten.converters.shapes import extent_expr, permute
from mlcc.frontend.aten.promotion import Value, as_tensor, is_float, scalar_dtype
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.emitter import Dim
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax
from mlcc.relax import op

# ---------------------------------------------------------------- dtypes and devices


@converts(
    "aten.to.dtype", "aten.to.dtype_layout", "aten.to.device", "aten.to.other", "aten._to_copy", "aten.type_as",
    "prims.convert_element_type", "aten.to.prim_Device", "aten._to_cpu",
)  # fmt: skip
def _to(t: Translator, self: relax.Expr | None = None, **arguments: Any) -> relax.Expr | Complex:
    if arguments.get("layout") not in (None, "strided"):
        raise Unsupported(f"layout={arguments['layout']}")
    value = self if self is not None else arguments["a"]
    if t.out_dtype() in PARTS:
        return as_complex(t, value, PARTS[t.out_dtype()])
    return t.cast(value, t.out_dtype())


# ---------------------------------------------------------------- constant tensors


def full(t: Translator, value: Value, layout: str | None = None) -> relax.Expr:
    """Emit a tensor with all elements equal to `value`, of the shape and dtype that the exporter states."""
    if layout not in (None, "strided"):
        raise Unsupported(f"layout={layout}")
    shape, dtype = t.out_shape(), t.out_dtype()
    if not shape and not isinstance(value, relax.Expr):
        return as_tensor(t, value, dtype)
    return op.full(t.shape_expr(shape), as_tensor(t, value, dtype), dtype)


@converts("aten.full", "aten.full_like", "aten.new_full", "aten.fill")
def _full(
    t: Translator, fill_value: Value | None = None, value: Value | None = None, layout: str | None = None,
    **arguments: Any,
) -> relax.Expr:  # fmt: skip
    given = value if fill_value is None else fill_value
    assert given is not None
    return full(t, given, layout)


@converts("aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.zero")
def _zeros(t: Translator, layout: str | None = None, **arguments: Any) -> relax.Expr:
    return full(t, 0, layout)


@converts("aten.ones", "aten.ones_like", "aten.new_ones")
def _ones(t: Translator, layout: str | None = None, **arguments: Any) -> relax.Expr:
    return full(t, 1, layout)


@converts(
    "aten.empty.memory_format", "aten.empty_like", "aten.new_empty", "aten.empty_strided", "aten.new_empty_strided",
    "aten.empty_permuted",
)  # fmt: skip
def _empty(t: Translator, layout: str | None = None, **arguments: Any) -> relax.Expr:
    return full(t, 0, layout)  # the elements are arbitrary


@converts("aten.scalar_tensor")
def _scalar_tensor(t: Translator, s: Value, **arguments: Any) -> relax.Expr:
    return full(t, s, arguments.get("layout"))


@converts("aten.copy")
def _copy(t: Translator, self: relax.Expr, src: relax.Expr, non_blocking: bool = False) -> relax.Expr:
    cast = t.cast(src, t.dtype(self))
    return op.broadcast_to(cast, t.shape_expr(t.out_shape()))


# ---------------------------------------------------------------- sequences


@converts("aten.arange")
def _arange(t: Translator, end: Value, start: Value = 0, step: Value = 1, layout: str | None = None,
            **arguments: Any) -> relax.Expr:  # fmt: skip
    dtype = t.out_dtype()
    if all(scalar_dtype(value) == "int64" for value in (start, end, step)) and not is_float(dtype):
        return t.cast(t.emit(op.arange(start, end, step, "int64")), dtype)
    return arange(t, start, step, t.out_shape()[0], dtype)


def arange(t: Translator, start: Value, step: Value, count: Dim, dtype: str) -> relax.Expr:
    """Emit `start + i * step`, computed in float64 unless all numbers are integers."""
    wide = "float64" if is_float(dtype) or "float32" in map(scalar_dtype, (start, step)) else "int64"
    places = t.cast(t.emit(op.arange(0, count, 1, "int64")), wide)
    if not isinstance(step, (int, float)) or step != 1:
        places = t.emit(op.multiply(places, as_tensor(t, step, wide)))
    if not isinstance(start, (int, float)) or start != 0:
        places = t.emit(op.add(places, as_tensor(t, start, wide)))
    return t.cast(places, dtype)


@converts("aten.logspace")
def _logspace(t: Translator, start: Value, end: Value, steps: Dim, base: float = 10.0,
              **arguments: Any) -> relax.Expr:  # fmt: skip
    return _linspace(t, start, end, steps, base)


@converts("aten.linspace")
def _linspace(t: Translator, start: Value, end: Value, steps: Dim, base: float | None = None,
              **arguments: Any) -> relax.Expr:  # fmt: skip
    dtype = t.out_dtype()
    if isinstance(start, relax.Expr) or isinstance(end, relax.Expr) or not isinstance(steps, int):
        raise Unsupported("bounds or a number of steps known at run time only are not supported")
    import numpy as np

    assert isinstance(start, (int, float)) and isinstance(end, (int, float))
    if steps and not (math.isfinite(start) and math.isfinite(end)):
        raise Unsupported("infinite bounds are not supported")
    places = _evenly_spaced(start, end, steps, is_float(dtype))
    return as_constant(t, places if base is None else np.power(float(base), places), dtype)


def _evenly_spaced(start: float, end: float, steps: int, floats: bool) -> Any:
    """Return evenly spaced numbers; the second half is counted from the end, as in PyTorch."""
    import numpy as np

    if steps < 2:
        return np.full(steps, start, "float64")
    step = (end - start) / (steps - 1)
    i = np.arange(steps, dtype="float64")
    numbers = np.where(i < steps // 2, start + step * i, end - step * (steps - 1 - i))
    return numbers if floats else np.trunc(numbers)


def as_constant(t: Translator, array: Any, dtype: str) -> relax.Constant:
    """Convert an array or a list to a constant of that dtype."""
    import numpy as np

    from mlcc.ir.dtypes import DType
    from mlcc.ir.narrow_floats import encode

    return t.constant(encode(np.asarray(array), DType.of(dtype)), dtype)


@converts("aten.eye")
def _eye(t: Translator, n: Dim, m: Dim | None = None, **arguments: Any) -> relax.Expr:
    return op.eye(n, n if m is None else m, 0, t.out_dtype())


@converts("aten.tril_indices")
def _tril_indices(t: Translator, row: int, col: int, offset: int = 0, **arguments: Any) -> relax.Expr:
    import numpy as np

    return as_constant(t, np.stack(np.tril_indices(row, offset, col)), t.out_dtype())


@converts("aten.triu_indices")
def _triu_indices(t: Translator, row: int, col: int, offset: int = 0, **arguments: Any) -> relax.Expr:
    import numpy as np

    return as_constant(t, np.stack(np.triu_indices(row, offset, col)), t.out_dtype())


@converts("aten.tril")
def _tril(t: Translator, self: relax.Expr, diagonal: Dim = 0) -> relax.Expr:
    return op.tril(self, diagonal)


@converts("aten.triu")
def _triu(t: Translator, self: relax.Expr, diagonal: Dim = 0) -> relax.Expr:
    return op.triu(self, diagonal)


@converts("aten.meshgrid")
def _meshgrid(t: Translator, tensors: list[relax.Expr], indexing: str = "ij") -> list[relax.Expr]:
    lines = [t.reshape(x, [1]) if not t.ndim(x) else x for x in tensors]
    swap = indexing == "xy" and len(lines) > 1
    order = [1, 0, *range(2, len(lines))] if swap else list(range(len(lines)))
    extents = [t.shape(line)[0] for line in lines]
    grids: list[relax.Expr] = []
    for at, line in enumerate(lines):
        shape: list[Dim] = [1] * len(lines)
        shape[order[at]] = extents[at]
        wide = t.shape_expr([extents[axis] for axis in order])
        grids.append(t.emit(op.broadcast_to(t.reshape(line, shape), wide)))
    return grids


@converts("aten.diag_embed")
def _diag_embed(t: Translator, self: relax.Expr, offset: int = 0, dim1: int = -2, dim2: int = -1) -> relax.Expr:
    shape = t.out_shape()
    one, two = dim1 % len(shape), dim2 % len(shape)
    axis = max(one, two)  # of the diagonal's elements
    order = [*range(t.ndim(self) - 1)]
    order.insert(axis - 1, t.ndim(self) - 1)
    value = t.emit(op.expand_dims(permute(t, self, order), [min(one, two)]))
    if offset:
        zeros = [*t.shape(value)]
        zeros[axis] = extent_expr(abs(offset))
        border = t.full(zeros, 0, t.dtype(self))
        front = (offset > 0) == (axis == two)
        value = t.emit(op.concat([border, value] if front else [value, border], axis))
    rows, columns = (iota_along(t, dim, shape) for dim in (one, two))
    if offset:
        rows = t.emit(op.add(rows, t.scalar(offset, "int64")))
    return op.where(op.equal(rows, columns), value, t.scalar(0, t.dtype(self)))


def iota_along(t: Translator, axis: int, shape: Sequence[Dim]) -> relax.Expr:
    """Emit the indices along an axis, as a tensor that broadcasts to the shape."""
    ones: list[Dim] = [1] * len(shape)
    ones[axis] = shape[axis]
    return t.reshape(t.emit(op.arange(0, shape[axis], 1, "int64")), ones)


def window_constant(
    t: Translator, name: str, length: int, periodic: bool, dtype: str, **factors: float
) -> relax.Constant:
    """Return a window function as a constant."""
    import numpy as np

    n = np.arange(length, dtype="float64")
    angle = 2 * math.pi * n / max(length if periodic else length - 1, 1)
    if name == "hann":
        factor = 0.5 - 0.5 * np.cos(angle)
    elif name == "hamming":
        factor = factors["alpha"] - factors["beta"] * np.cos(angle)
    else:
        factor = 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)
    return as_constant(t, np.ones(1) if length == 1 else factor, dtype)


@converts("aten.hann_window")
def _hann(t: Translator, window_length: int, periodic: bool = True, **arguments: Any) -> relax.Expr:
    return window_constant(t, "hann", window_length, periodic, t.out_dtype())


@converts("aten.hamming_window")
def _hamming(
    t: Translator, window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, **arguments: Any
) -> relax.Expr:
    return window_constant(t, "hamming", window_length, periodic, t.out_dtype(), alpha=alpha, beta=beta)


@converts("aten.blackman_window")
def _blackman(t: Translator, window_length: int, periodic: bool = True, **arguments: Any) -> relax.Expr:
    return window_constant(t, "blackman", window_length, periodic, t.out_dtype())
