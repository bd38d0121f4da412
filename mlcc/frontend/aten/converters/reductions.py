"""Reductions: sums, extremes, norms, statistics; cumulative sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from mlcc.frontend.aten.converters.arithmetic import power
from mlcc.frontend.aten.converters.shapes import extent_expr, normalize_axes, total_size
from mlcc.frontend.aten.promotion import Value, as_tensor, float_dtype, is_float, sum_dtype
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir
from mlcc.relax import op

Dims = int | Sequence[int] | None


def reduce(t: Translator, make: Callable[..., relax.Call], value: relax.Expr, dims: Dims, keepdim: bool) -> relax.Expr:
    """Emit a reduction along axes; None and an empty list reduce all axes."""
    if not t.ndim(value):
        return value
    axes = normalize_axes(t, value, None if isinstance(dims, Sequence) and not dims else dims)
    return t.emit(make(value, axis=axes, keepdims=keepdim))


# ---------------------------------------------------------------- sums


@converts("aten.sum")
def _sum(
    t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> relax.Expr:
    return reduce(t, op.sum, t.cast(self, dtype or sum_dtype(t.dtype(self))), dim, keepdim)


@converts("aten.nansum")
def _nansum(
    t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> relax.Expr:
    if is_float(t.dtype(self)):
        self = t.emit(op.where(op.isnan(self), t.scalar(0, t.dtype(self)), self))
    return _sum(t, self, dim, keepdim, dtype)


@converts("aten.prod")
def _prod(
    t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> relax.Expr:
    return reduce(t, op.prod, t.cast(self, dtype or sum_dtype(t.dtype(self))), dim, keepdim)


@converts("aten.mean")
def _mean(
    t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> relax.Expr:
    return reduce(t, op.mean, t.cast(self, dtype or t.dtype(self)), dim, keepdim)


@converts("aten.nanmean")
def _nanmean(
    t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> relax.Expr:
    value = t.cast(self, dtype or t.dtype(self))
    there = t.cast(t.emit(op.logical_not(op.isnan(value))), t.dtype(value))
    return op.divide(_nansum(t, value, dim, keepdim), reduce(t, op.sum, there, dim, keepdim))


@converts("aten.any")
def _any(t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False) -> relax.Expr:
    return _bool_reduction(t, op.max, self, dim, keepdim)


@converts("aten.all")
def _all(t: Translator, self: relax.Expr, dim: Dims = None, keepdim: bool = False) -> relax.Expr:
    return _bool_reduction(t, op.min, self, dim, keepdim)


def _bool_reduction(
    t: Translator, make: Callable[..., relax.Call], value: relax.Expr, dim: Dims, keepdim: bool
) -> relax.Expr:
    truth = reduce(t, make, t.cast(value, "bool"), dim, keepdim)
    return t.cast(truth, t.out_dtype())  # uint8 for uint8


@converts("aten.count_nonzero")
def _count_nonzero(t: Translator, self: relax.Expr, dim: Dims = None) -> relax.Expr:
    return reduce(t, op.sum, t.cast(t.cast(self, "bool"), "int64"), dim, False)


# ---------------------------------------------------------------- extremes


@converts("aten.amax")
def _amax(t: Translator, self: relax.Expr, dim: Dims = (), keepdim: bool = False) -> relax.Expr:
    return reduce(t, op.max, self, dim, keepdim)


@converts("aten.amin")
def _amin(t: Translator, self: relax.Expr, dim: Dims = (), keepdim: bool = False) -> relax.Expr:
    return reduce(t, op.min, self, dim, keepdim)


@converts("aten.aminmax")
def _aminmax(t: Translator, self: relax.Expr, dim: int | None = None, keepdim: bool = False) -> list[relax.Expr]:
    return [reduce(t, make, self, dim, keepdim) for make in (op.min, op.max)]


@converts("aten.max.default")
def _max(t: Translator, self: relax.Expr) -> relax.Expr:
    return reduce(t, op.max, self, None, False)


@converts("aten.min.default")
def _min(t: Translator, self: relax.Expr) -> relax.Expr:
    return reduce(t, op.min, self, None, False)


@converts("aten.max.dim")
def _max_dim(t: Translator, self: relax.Expr, dim: int, keepdim: bool = False) -> list[relax.Expr]:
    return [reduce(t, op.max, self, dim, keepdim), first_extreme_index(t, op.argmax, self, dim, keepdim)]


@converts("aten.min.dim")
def _min_dim(t: Translator, self: relax.Expr, dim: int, keepdim: bool = False) -> list[relax.Expr]:
    return [reduce(t, op.min, self, dim, keepdim), first_extreme_index(t, op.argmin, self, dim, keepdim)]


@converts("aten.argmax")
def _argmax(t: Translator, self: relax.Expr, dim: int | None = None, keepdim: bool = False) -> relax.Expr:
    return first_extreme_index(t, op.argmax, self, dim, keepdim)


@converts("aten.argmin")
def _argmin(t: Translator, self: relax.Expr, dim: int | None = None, keepdim: bool = False) -> relax.Expr:
    return first_extreme_index(t, op.argmin, self, dim, keepdim)


def first_extreme_index(
    t: Translator, make: Callable[..., relax.Call], value: relax.Expr, dim: int | None, keepdim: bool
) -> relax.Expr:
    """Return the index of the first extreme, or of the first NaN if there is one."""
    if not t.ndim(value):
        return t.scalar(0, "int64")
    axis = None if dim is None else t.axis(value, dim)
    return t.emit(make(value, axis=axis, keepdims=keepdim))


# ---------------------------------------------------------------- norms


@converts("aten.logsumexp", "aten.special_logsumexp")
def _logsumexp(t: Translator, self: relax.Expr, dim: Dims, keepdim: bool = False) -> relax.Expr:
    value = t.cast(self, float_dtype(t.dtype(self)))
    dtype = t.dtype(value)
    if not t.ndim(value):
        return value
    greatest = t.emit(op.max(value, axis=normalize_axes(t, value, dim or None), keepdims=True))
    base = t.emit(op.where(op.isinf(greatest), t.scalar(0, dtype), greatest))
    total = t.emit(op.sum(op.exp(op.subtract(value, base)), axis=normalize_axes(t, value, dim or None), keepdims=True))
    return t.reshape(t.emit(op.add(op.log(total), base)), t.out_shape())


@converts("aten.linalg_vector_norm")
def _vector_norm(
    t: Translator, self: relax.Expr, ord: float = 2, dim: Dims = None, keepdim: bool = False, dtype: str | None = None
) -> relax.Expr:
    return norm(t, t.cast(self, dtype or float_dtype(t.dtype(self))), ord, dim, keepdim)


@converts("aten.norm")
def _norm(
    t: Translator, self: relax.Expr, p: Value | None = 2, dim: Dims = None, keepdim: bool = False,
    dtype: str | None = None,
) -> relax.Expr:  # fmt: skip
    return norm(t, t.cast(self, dtype or float_dtype(t.dtype(self))), 2.0 if p is None else p, dim, keepdim)  # type: ignore[arg-type]


@converts("aten.linalg_norm")
def _linalg_norm(
    t: Translator, self: relax.Expr, ord: float | str | None = None, dim: Dims = None, keepdim: bool = False,
    dtype: str | None = None,
) -> relax.Expr:  # fmt: skip
    vector = ord is None or (t.ndim(self) == 1 if dim is None else isinstance(dim, int) or len(dim) == 1)
    if not vector or isinstance(ord, str):
        raise Unsupported("matrix norms are not supported")
    return norm(t, t.cast(self, dtype or float_dtype(t.dtype(self))), 2 if ord is None else ord, dim, keepdim)


def norm(t: Translator, value: relax.Expr, p: float, dims: Dims, keepdim: bool) -> relax.Expr:
    """Emit the p-norm along axes; p = 0 counts nonzero elements, infinite p gives extremes."""
    dtype = t.dtype(value)
    size = t.emit(op.abs(value))
    if math.isinf(p):
        return reduce(t, op.max if p > 0 else op.min, size, dims, keepdim)
    if p == 0:
        return reduce(t, op.sum, t.cast(t.emit(op.not_equal(value, t.scalar(0, dtype))), dtype), dims, keepdim)
    if p == 1:
        return reduce(t, op.sum, size, dims, keepdim)
    total = reduce(t, op.sum, t.emit(power(t, value if p == 2 else size, float(p))), dims, keepdim)
    return t.emit(power(t, total, 1 / p))


@converts("aten.dist")
def _dist(t: Translator, self: relax.Expr, other: relax.Expr, p: float = 2) -> relax.Expr:
    return norm(t, t.emit(op.subtract(self, other)), p, None, False)


@converts("aten.renorm")
def _renorm(t: Translator, self: relax.Expr, p: float, dim: int, maxnorm: float) -> relax.Expr:
    dtype = t.dtype(self)
    axis = t.axis(self, dim)
    size = norm(t, self, p, [a for a in range(t.ndim(self)) if a != axis], True)
    limit = t.scalar(maxnorm, dtype)
    factor = op.divide(limit, op.add(size, t.scalar(1e-7, dtype)))
    return op.multiply(self, op.where(op.greater(size, limit), factor, t.scalar(1, dtype)))


# ---------------------------------------------------------------- variances


@converts("aten.var")
def _var(t: Translator, self: relax.Expr, **arguments: Any) -> relax.Expr:
    return var_mean(t, self, **arguments)[0]


@converts("aten.std")
def _std(t: Translator, self: relax.Expr, **arguments: Any) -> relax.Expr:
    return op.sqrt(var_mean(t, self, **arguments)[0])


@converts("aten.var_mean")
def _var_mean(t: Translator, self: relax.Expr, **arguments: Any) -> list[relax.Expr]:
    return list(var_mean(t, self, **arguments))


@converts("aten.std_mean")
def _std_mean(t: Translator, self: relax.Expr, **arguments: Any) -> list[relax.Expr]:
    variance, mean = var_mean(t, self, **arguments)
    return [t.emit(op.sqrt(variance)), mean]


def var_mean(
    t: Translator, value: relax.Expr, dim: Dims = None, unbiased: bool | None = None,
    correction: Value | None = None, keepdim: bool = False,
) -> tuple[relax.Expr, relax.Expr]:  # fmt: skip
    """Return variance and mean along axes. The variance divides by the element count minus `correction` (default 1)."""
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    dtype = t.dtype(value)
    if not t.ndim(value):
        value = t.reshape(value, [1])
        dim = None
    axes = normalize_axes(t, value, None if isinstance(dim, Sequence) and not dim else dim)
    count = as_tensor(t, total_size([t.shape(value)[a] for a in axes]), dtype)
    mean = t.emit(op.mean(value, axis=axes, keepdims=True))
    away = t.emit(op.subtract(value, mean))
    total = t.emit(op.sum(op.multiply(away, away), axis=axes, keepdims=keepdim))
    degrees = op.maximum(op.subtract(count, as_tensor(t, correction, dtype)), t.scalar(0, dtype))
    return t.emit(op.divide(total, degrees)), t.reshape(mean, t.shape(total))


# ---------------------------------------------------------------- cumulative


@converts("aten.cumsum")
def _cumsum(t: Translator, self: relax.Expr, dim: int, dtype: str | None = None) -> relax.Expr:
    return _cumulative(t, op.cumsum, self, dim, dtype)


@converts("aten.cumprod")
def _cumprod(t: Translator, self: relax.Expr, dim: int, dtype: str | None = None) -> relax.Expr:
    return _cumulative(t, op.cumprod, self, dim, dtype)


def _cumulative(
    t: Translator, make: Callable[..., relax.Call], value: relax.Expr, dim: int, dtype: str | None
) -> relax.Expr:
    value = t.cast(value, dtype or sum_dtype(t.dtype(value)))
    return make(value, axis=t.axis(value, dim)) if t.ndim(value) else value


@converts("aten.numel", "aten.sym_numel")
def _numel(t: Translator, self: relax.Expr) -> tir.Expr:
    return extent_expr(total_size(t.shape(self)))


@converts("aten.trace")
def _trace(t: Translator, self: relax.Expr) -> relax.Expr:
    rows, columns = t.shape(self)
    value = t.cast(self, sum_dtype(t.dtype(self)))
    return op.sum(op.where(op.eye(rows, columns, 0, "bool"), value, t.scalar(0, t.dtype(value))))
