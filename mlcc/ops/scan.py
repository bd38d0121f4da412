"""Prefix sums and products, and searches in sorted rows or prefix sums."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from mlcc import te
from mlcc.arith.proofs import is_one
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT32, INT64, DType
from mlcc.ops.gather import require_integers
from mlcc.ops.index_bounds import checked_indices
from mlcc.ops.lazy import np
from mlcc.ops.manipulate import unsimplified_product
from mlcc.ops.parallel_scan import parallel_scan_lowering
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import (
    Tensor,
    axis,
    fail,
    int64,
    known_different,
    require_float,
    result,
    shape_text,
    tensor,
    tensor_like,
)
from mlcc.te import statements as code
from mlcc.te.scalar import Scalar, to_expr
from mlcc.te.statements import BufferElements

# ---------------------------------------------------------------- inference


def infer_scan(call: relax.Call) -> Tensor:
    """The tensor's shape; flattened without an axis."""
    data = tensor(call, 0)
    name = call.attrs["dtype"]
    dtype = data.dtype if name is None else DType.of(name)
    if call.attrs["axis"] is None:
        if data.dims is None:
            return result(None, dtype, data.ndim, data.vdevice)
        return result((unsimplified_product(data.dims),), dtype, vdevice=data.vdevice)
    if data.ndim >= 0:
        axis(call, call.attrs["axis"], data.ndim)
    return tensor_like(data, dtype)


def infer_bucketize(call: relax.Call) -> Tensor:
    """The shape of the input, in int64 or int32."""
    data, bounds = tensor(call, 0), tensor(call, 1)
    if bounds.ndim not in (-1, 1):
        fail(call, "E0445", f"the boundaries must be a vector, they have {bounds.ndim} dimensions")
    return tensor_like(data, INT32 if call.attrs["out_int32"] else INT64)


def infer_multinomial(call: relax.Call) -> Tensor:
    """Infer (n, 1), one index per sample."""
    prob, sample, rows = (tensor(call, i) for i in range(3))
    require_float(call, prob)
    require_float(call, sample)
    require_integers(call, rows, "the sample indices")
    dtype = DType.of(call.attrs["dtype"])
    if any(i.ndim < 0 for i in (prob, sample, rows)):
        return result(None, dtype, -1, prob.vdevice)
    for what, info in (("probabilities", prob), ("samples", sample), ("sample indices", rows)):
        if info.ndim != 2:
            fail(call, "E0445", f"the {what} must be a matrix, they have {info.ndim} dimensions")
    if prob.dims is None or sample.dims is None or rows.dims is None:
        return result(None, dtype, 2, prob.vdevice)
    if known_different(sample.dims[0], rows.dims[0]) or not (is_one(sample.dims[1]) and is_one(rows.dims[1])):
        text = f"samples {shape_text(sample.dims)} and sample indices {shape_text(rows.dims)}"
        fail(call, "E0445", f"{text} must both have the shape (n, 1)")
    return result((sample.dims[0], int64(1)), dtype, vdevice=prob.vdevice)


# ---------------------------------------------------------------- lowering


_ENOUGH_COLUMNS = 16  # to be scanned side by side: vectors of them add what one column adds element by element


def _scans_columns(x: te.Tensor, dtype: DType, along: int) -> bool:
    """Return True if enough elements lie behind the axis to scan side by side. Sums of halves are kept as floats."""
    behind = [tir.const_int(to_expr(n)) for n in x.shape[along + 1 :]]
    enough = prod(_ENOUGH_COLUMNS if n is None else n for n in behind) >= _ENOUGH_COLUMNS
    return enough and (dtype.bits >= 32 or not dtype.is_float)


def _scan_columns(call: relax.Call, x: te.Tensor, dtype: DType, along: int, product: bool, name: str) -> te.Tensor:
    """Scan all elements behind the axis side by side: each row of the result is made from the row before it."""
    extent, inside = construct.cast(INT64, to_expr(x.shape[along])), x.shape[along + 1 :]
    exclusive = call.attrs["exclusive"]
    start, one = Scalar(construct.const(int(product), dtype)), construct.const(1, INT64)

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, out = BufferElements(ins[0]), BufferElements(outs[0])

        def first(*at: Scalar) -> Any:
            return out.set(start if exclusive else _combine(start, data[at].astype(dtype), product), *at)

        def following(before: tuple[Scalar, ...], now: tuple[Scalar, ...]) -> Any:
            value = data[before if exclusive else now].astype(dtype)
            return out.set(_combine(out[before], value, product), *now)

        def columns(*i: Scalar) -> Any:
            return (
                code.loop(construct.minimum(extent, one), lambda k: row(lambda *j: first(*i, k, *j)), "k"),
                code.loop(
                    construct.sub(extent, one),
                    lambda k: row(lambda *j: following((*i, k - 1, *j), (*i, k, *j))),
                    "k",
                    1,
                ),
            )

        def row(step: Callable[..., Any]) -> Any:
            return code.grid(inside, step, "j")

        return code.grid(x.shape[:along], columns, "i")

    return te.extern(x.shape, [x], body, name, dtype)  # type: ignore[no-any-return]


def _lower_scan(product: bool) -> Any:
    name = "T_cumprod" if product else "T_cumsum"

    def lowering(call: relax.Call, x: te.Tensor) -> te.Tensor:
        wanted = call.attrs["dtype"]
        dtype = x.dtype if wanted is None else DType.of(wanted)
        info = call.struct_info
        assert isinstance(info, relax.TensorStructInfo) and info.dims is not None
        if call.attrs["axis"] is not None and _scans_columns(x, dtype, call.attrs["axis"] % x.ndim):
            return _scan_columns(call, x, dtype, call.attrs["axis"] % x.ndim, product, name)

        def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
            data, out, total = BufferElements(ins[0]), BufferElements(outs[0]), BufferElements(total_cell.buffer)

            def step(value: Scalar, *at: Scalar) -> Any:
                new = _combine(total[0], value.astype(dtype), product)
                if call.attrs["exclusive"]:
                    return out.set(total[0], *at), total.set(new, 0)
                return total.set(new, 0), out.set(total[0], *at)

            start = total.set(construct.const(int(product), dtype), 0)
            if call.attrs["axis"] is None:
                return start, code.grid(x.shape, lambda *i: step(data[i], code.row_major_offset(i, x.shape)), "i")
            along = call.attrs["axis"] % x.ndim

            def row(*i: Scalar) -> Any:
                def at(k: Scalar) -> tuple[Scalar, ...]:
                    return (*i[:along], k, *i[along:])

                return start, code.loop(x.shape[along], lambda k: step(data[at(k)], *at(k)), "k")

            return code.grid([d for a, d in enumerate(x.shape) if a != along], row, "i")

        total_cell = code.scratch("total", (1,), dtype)
        return te.extern(info.dims, [x], body, name, dtype, scratch=(total_cell.buffer,))  # type: ignore[no-any-return]

    return lowering


def _many_scan(product: bool) -> Any:
    name = "T_cumprod" if product else "T_cumsum"
    return parallel_scan_lowering(name, int(product), lambda total, value: _combine(total, value, product))


def _combine(total: Scalar, value: Scalar, product: bool) -> Any:
    if total.dtype.is_bool:
        return te.all(total, value) if product else te.any(total, value)
    return total * value if product else total + value


def _lower_bucketize(call: relax.Call, x: te.Tensor, bounds: te.Tensor) -> te.Tensor:
    """Search each element in the boundaries by bisection."""
    low, high = code.scratch("low", (1,)), code.scratch("high", (1,))

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, edges, out = BufferElements(ins[0]), BufferElements(ins[1]), BufferElements(outs[0])

        def search(*i: Scalar) -> Any:
            value = data[i]
            middle = low[0] + (high[0] - low[0]) // 2
            before = edges[middle] <= value if call.attrs["right"] else edges[middle] < value
            step = code.if_then(before, low.set(middle + 1, 0), high.set(middle, 0))
            return (
                low.set(0, 0),
                high.set(bounds.shape[0], 0),
                code.while_loop(low[0] < high[0], step),
                out.set(low[0], *i),
            )

        return code.grid(x.shape, search, "i")

    dtype = INT32 if call.attrs["out_int32"] else INT64
    return te.extern(x.buffer.shape, [x, bounds], body, "T_bucketize", dtype, scratch=(low.buffer, high.buffer))  # type: ignore[no-any-return]


def _lower_multinomial(call: relax.Call, prob: te.Tensor, sample: te.Tensor, rows: te.Tensor) -> te.Tensor:
    """Find the first index at which the prefix sum of a row exceeds the sample, else the last index."""
    place, total = code.scratch("place", (1,)), code.scratch("total", (1,), prob.dtype)
    count = prob.shape[1]

    def body(ins: list[tir.Buffer], outs: list[tir.Buffer]) -> Any:
        data, given, row, out = (BufferElements(b) for b in (*ins, *outs))

        def one(i: Scalar) -> Any:
            def add() -> Any:
                return total.set(total[0] + data[row[i, 0].astype("int64"), place[0]], 0)

            on = te.all(place[0] < count - 1, te.any(total[0] < given[i, 0], total[0] == given[i, 0]))
            return (
                place.set(0, 0),
                total.set(data[row[i, 0].astype("int64"), 0], 0),
                code.while_loop(on, [place.set(place[0] + 1, 0), add()]),
                out.set(place[0], i, 0),
            )

        return code.loop(sample.shape[0], one)

    dtype, buffers = DType.of(call.attrs["dtype"]), (place.buffer, total.buffer)
    return te.extern(  # type: ignore[no-any-return]
        (sample.buffer.shape[0], int64(1)), [prob, sample, rows], body, "T_multinomial", dtype, scratch=buffers
    )


# ---------------------------------------------------------------- NumPy


def _np_scan(name: str) -> Any:
    def reference(call: relax.Call, x: Any) -> Any:
        wanted, at = call.attrs["dtype"], call.attrs["axis"]
        narrow = wanted is None or np.dtype(x.dtype).kind == "f" and wanted in ("float16", "bfloat16")
        scanned = getattr(np, name)(x, axis=at, dtype=x.dtype if narrow else wanted)
        if not call.attrs["exclusive"]:
            return scanned
        at = 0 if at is None else at
        start = np.full_like(
            scanned[(slice(None),) * (at % scanned.ndim) + (slice(0, 1),)], 0 if name == "cumsum" else 1
        )
        return np.concatenate([start, np.take(scanned, range(max(scanned.shape[at] - 1, 0)), at)], at)

    return reference


def _np_bucketize(call: relax.Call, x: Any, bounds: Any) -> Any:
    return np.searchsorted(bounds, x, side="right" if call.attrs["right"] else "left")


def _np_multinomial(call: relax.Call, prob: Any, sample: Any, rows: Any) -> Any:
    total = np.cumsum(prob, axis=1, dtype=prob.dtype)[checked_indices(rows[:, 0], len(prob), 0, False)]
    exceeds = total > sample
    return np.where(exceeds.any(axis=1), exceeds.argmax(axis=1), prob.shape[1] - 1)[:, None]


OPS: dict[str, Impl] = {
    "cumsum": Impl(
        "data, axis: int? = None, dtype: dtype? = None, exclusive: bool = False", infer_scan, _np_scan("cumsum"),
        _lower_scan(False), many=_many_scan(False),
    ),
    "cumprod": Impl(
        "data, axis: int? = None, dtype: dtype? = None, exclusive: bool = False", infer_scan, _np_scan("cumprod"),
        _lower_scan(True), many=_many_scan(True),
    ),
    "bucketize": Impl(
        "input_tensor, boundaries, out_int32: bool = False, right: bool = False", infer_bucketize, _np_bucketize,
        _lower_bucketize,
    ),
    "multinomial_from_uniform": Impl(
        'prob, uniform_sample, sample_indices, dtype: dtype = "int64"', infer_multinomial, _np_multinomial,
        _lower_multinomial,
    ),
}  # fmt: skip
