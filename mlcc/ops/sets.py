"""Operators whose results are as long as the data say: what is not zero, what is there once.

Their extents are known when they have run. The interpreter runs them; compiled code refuses them.
"""

from __future__ import annotations

from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Tensor, axis, fail, int64, result, scalar_argument, tensor


def infer_nonzero(call: relax.Call) -> Tensor:
    """A matrix of int64: a row for each dimension, a column for each element that is not zero."""
    return result(None, INT64, 2, tensor(call, 0).vdevice)


def _flags(call: relax.Call) -> list[bool]:
    """Whether the places, the way back and the counts are wanted."""
    made = []
    for index in (2, 3, 4):
        value = scalar_argument(call, index)
        number = None if value is None else tir.const_int(value)
        if number is None:
            fail(call, "E0442", "what `R.unique` returns must be constants")
        made.append(bool(number))
    return made


def infer_unique(call: relax.Call) -> relax.StructInfo:
    """The elements (or slices along an axis), and vectors of int64 for what else is wanted."""
    data = tensor(call, 0)
    flags = _flags(call)
    at = scalar_argument(call, 5) if len(call.args) == 6 else None
    number = None if at is None else tir.const_int(at)
    if number is not None and data.ndim >= 0:
        axis(call, number, data.ndim)
    if data.ndim == 0:
        infos = [result((int64(1),), d, vdevice=data.vdevice) for d in (data.dtype, *[INT64] * sum(flags))]
    else:
        infos = [result(None, data.dtype, 1 if at is None else data.ndim, data.vdevice)]
        infos += [result(None, INT64, 1, data.vdevice)] * sum(flags)
    return infos[0] if len(infos) == 1 else relax.TupleStructInfo(tuple(infos))


def _np_unique(call: relax.Call, x: Any, ordered: Any, index: Any, inverse: Any, counts: Any, at: Any = None) -> Any:
    """In rising order, or in the order in which they first come up."""
    given = None if at is None or at == () else int(at)
    values, first, back, times = np.unique(x, True, True, True, axis=given)
    back = np.ravel(back)
    if not ordered:
        order = np.argsort(first, kind="stable")
        moved = np.empty_like(order)
        moved[order] = np.arange(order.size)
        values = np.take(values, order, 0 if given is None else given)
        first, back, times = first[order], moved[back], times[order]
    wanted = [a for a, flag in ((first, index), (back, inverse), (times, counts)) if flag]
    made = (values, *(a.astype(np.int64) for a in wanted))
    return made if wanted else values


def _np_nonzero(call: relax.Call, x: Any) -> Any:
    return np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)


OPS: dict[str, Impl] = {
    "nonzero": Impl(infer_nonzero, _np_nonzero),
    "unique": Impl(infer_unique, _np_unique),
}
