"""Gradients of pooling and of `take`, as operators of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import INT64
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.pad import pad
from mlcc.ops.pool import ATTR_ORDER, averaged_count, pool_extent, pool_parameters
from mlcc.ops.reduce import ARGMAX
from mlcc.ops.registry import Impl
from mlcc.ops.scatter import wrap_negative_index
from mlcc.ops.shapes import axis, fail, int64, known_different, shape_text, tensor
from mlcc.ops.window import np_to_layout, require_positive, spatial_data
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def infer_pool_backward(call: relax.Call) -> relax.StructInfo:
    """Infer the shape of the data; the incoming gradient has the shape of the pool's result."""
    gradient = tensor(call, 0)
    data = spatial_data(call, 2, "layout", index=1)
    require_positive(call, "pool_size", "strides", "dilation")
    if gradient.ndim not in (-1, 4):
        fail(call, "E0445", f"the gradient needs 4 dimensions, it has {gradient.ndim}")
    if data.extents is not None and gradient.dims is not None:
        extents = dict(data.extents)
        for at, letter in enumerate(data.space):
            extents[letter] = pool_extent(call, extents[letter], at, 2)
        wanted = [extents[c] for c in data.out]
        if any(known_different(a, b) for a, b in zip(wanted, gradient.dims, strict=True)):
            fail(
                call,
                "E0445",
                f"the result of the pool has shape {shape_text(wanted)}, its gradient {shape_text(gradient.dims)}",
            )
    return data.data


def infer_take_backward(call: relax.Call) -> relax.StructInfo:
    """The data's own shape."""
    gradient, data, indices = (tensor(call, i) for i in range(3))
    at = call.attrs["axis"]
    if indices.dtype is not None and not indices.dtype.is_int:
        fail(call, "E0444", f"needs integer indices, not {indices.dtype}")
    if at is None and data.ndim not in (-1, 1):
        fail(call, "E0446", f"`axis` must be given for {data.ndim} dimensions")
    if data.ndim >= 0:
        place = axis(call, 0 if at is None else at, data.ndim)
        if data.dims is not None and indices.dims is not None and gradient.dims is not None:
            wanted = (*data.dims[:place], *indices.dims, *data.dims[place + 1 :])
            same = len(wanted) == len(gradient.dims)
            if not same or any(known_different(a, b) for a, b in zip(wanted, gradient.dims, strict=True)):
                fail(
                    call,
                    "E0445",
                    f"the taken elements have shape {shape_text(wanted)}, their gradient {shape_text(gradient.dims)}",
                )
    return data


# ---------------------------------------------------------------- lowering: pooling


class _Windows:
    """The pooling windows that may contain an element of the data.

    Without dilation these are the last ceil(size / stride) windows that begin at or before the element; with dilation
    there is one for each offset in the window.
    """

    def __init__(self, call: relax.Call, gradient: te.Tensor, x: te.Tensor) -> None:
        self.call, self.gradient = call, gradient
        self.layout, self.out = call.attrs["layout"], call.attrs["out_layout"]
        self.extents = {c: x.buffer.shape[self.layout.index(c)] for c in "HW"}
        self.counts = {c: gradient.buffer.shape[self.out.index(c)] for c in "HW"}
        self.dense = all(n == 1 for n in call.attrs["dilation"])
        sizes = zip("HW", call.attrs["pool_size"], call.attrs["strides"], strict=True)
        self.axes = {c: te.reduce_axis((0, -(-n // s) if self.dense else n), f"w{c.lower()}") for c, n, s in sizes}

    def find(self, at: dict[str, Any]) -> tuple[dict[str, Scalar], Scalar]:
        """Return the indices of the windows that contain element `at`, and the condition that they are valid."""
        windows, conditions = {}, []
        names = ("padding", "pool_size", "strides", "dilation")
        for c, before, size, stride, dilation in zip("HW", *(self.call.attrs[n] for n in names), strict=False):
            last = Scalar(self.counts[c])
            if self.dense:
                place = at[c] + before
                window = _truncdiv(place, stride) - self.axes[c]
                first = te.select(place < size, _zero_like(place), _truncdiv(place - size, stride) + 1)
                conditions += [window >= first, window < last]
            else:
                moved = at[c] + before - self.axes[c] * dilation
                window = moved // stride
                conditions += [moved >= 0, Scalar(construct.equal((moved % stride).expr, 0)), window < last]
            windows[c] = window
        return {**at, **windows}, te.all(*conditions)

    def divisor(self, at: dict[str, Any]) -> Scalar:
        """Return the divisor of an average pool at `at`: the number of elements of the window that count."""
        number: tir.Expr = construct.const(1, INT64)
        for n, c in enumerate("HW"):
            number = construct.mul(number, self._divisor_factor(n, to_expr(at[c]), self.extents[c]))
        return Scalar(number if self.call.attrs["count_include_pad"] else construct.maximum(number, 1))

    def _divisor_factor(self, n: int, window: tir.Expr, extent: tir.Expr) -> tir.Expr:
        """The factor of the divisor for dimension `n`."""
        size, before = self.call.attrs["pool_size"][n], self.call.attrs["padding"][n]
        padded = self.call.attrs["count_include_pad"]
        if not self.dense or (padded and self.call.attrs["ceil_mode"]):
            return averaged_count(self.call, window, extent, n, 2)
        if padded:
            return int64(size)
        begin = construct.sub(construct.mul(window, self.call.attrs["strides"][n]), before)
        end = construct.minimum(construct.add(begin, size), extent)
        return construct.sub(end, construct.maximum(begin, 0))

    def value(self, at: dict[str, Any]) -> Scalar:
        return self.gradient(*(at[c] for c in self.out))


def _truncdiv(a: Scalar, b: int) -> Scalar:
    """TVM's truncating division; results for negative `a` are masked by the caller."""
    return Scalar(construct.div(a.expr, b))


def _zero_like(a: Scalar) -> Scalar:
    return Scalar(construct.const(0, a.expr.dtype))


def _lower_avg(call: relax.Call, gradient: te.Tensor, x: te.Tensor) -> te.Tensor:
    """Sum an element's share of the gradients of all windows that contain it."""
    windows = _Windows(call, gradient, x)

    def element(*axes: Any) -> Any:
        at, valid = windows.find(dict(zip(windows.layout, axes, strict=True)))
        share = windows.value(at) / topi.convert_integer(windows.divisor(at).expr, x.dtype)
        return te.sum(te.if_then_else(valid, share, te.const(0, x.dtype)), axis=list(windows.axes.values()))

    return topi.compute_ax(x.buffer.shape, element, "T_pool_grad")


def _lower_max(call: relax.Call, gradient: te.Tensor, x: te.Tensor) -> te.Tensor:
    """Send the gradient of a window to its maximum, the first one of equal ones."""
    windows = _Windows(call, gradient, x)
    layout, pads = windows.layout, call.attrs["padding"]
    before, after = [0] * x.ndim, [0] * x.ndim
    for n, c in enumerate("HW"):
        before[layout.index(c)] = pads[n]
        after[layout.index(c)] = pads[n + 2] + (call.attrs["strides"][n] - 1 if call.attrs["ceil_mode"] else 0)
    lowest = te.min_value(x.dtype)
    padded = pad(x, before, after, lowest, "pad_temp", ax=True) if any(before + after) else x
    inner = {c: te.reduce_axis((0, n), f"d{c.lower()}") for c, n in zip("HW", call.attrs["pool_size"], strict=True)}
    steps = dict(zip("HW", zip(call.attrs["strides"], call.attrs["dilation"], strict=True), strict=True))
    offsets = dict(zip("HW", pads, strict=False))

    def flat(at: dict[str, Any]) -> Scalar:
        """The linear index of an element of the padded data."""
        number: tir.Expr = construct.const(0, INT64)
        for n, (c, extent) in enumerate(zip(layout, padded.buffer.shape, strict=True)):
            number = construct.add(construct.mul(number, extent), to_expr(at[c])) if n else to_expr(at[c])
        return Scalar(number)

    def greatest(*axes: Any) -> Any:
        at = dict(zip(windows.out, axes, strict=True))
        at |= {c: at[c] * steps[c][0] + inner[c] * steps[c][1] for c in "HW"}
        return ARGMAX((flat(at), padded(*(at[c] for c in layout))), axis=list(inner.values()))

    names = [f"ax{n}" for n in range(gradient.ndim)]
    argmax = te.compute(gradient.shape, greatest, name="maxpool_grad_argmax", varargs_names=names)[0]

    def element(*axes: Any) -> Any:
        position = dict(zip(layout, axes, strict=True))
        at, valid = windows.find(position)
        number = flat({**position, **{c: position[c] + offsets[c] for c in "HW"}})
        place = [at[c] for c in windows.out]
        is_maximum = te.if_then_else(
            valid, Scalar(construct.equal(argmax(*place).expr, number.expr)), te.const(False, "bool")
        )
        value = te.if_then_else(is_maximum, gradient(*place), te.const(0, x.dtype))
        return te.sum(value, axis=list(windows.axes.values()))

    return topi.compute_ax(x.buffer.shape, element, "T_pool_grad")


# ---------------------------------------------------------------- lowering: take


def _lower_take(call: relax.Call, gradient: te.Tensor, x: te.Tensor, indices: te.Tensor) -> te.Tensor:
    """Sum the gradients of all results that an element was taken to. Negative indices count from the end; invalid ones
    contribute nothing."""
    at = 0 if call.attrs["axis"] is None else call.attrs["axis"] % x.ndim
    taken = [te.reduce_axis((0, d), f"l{n}") for n, d in enumerate(indices.shape)]

    def element(*i: Any) -> Any:
        hit = Scalar(construct.equal(wrap_negative_index(indices(*taken), x.buffer.shape[at]).expr, to_expr(i[at])))
        value = te.if_then_else(hit, gradient(*i[:at], *taken, *i[at + 1 :]), te.const(0, x.dtype))
        return te.sum(value, axis=taken) if taken else value

    if any(tir.const_int(d) == 0 for d in indices.buffer.shape):
        empty: te.Tensor = te.compute(x.shape, lambda *i: te.const(0, x.dtype), name="take_backward")
        return empty
    data_gradient: te.Tensor = te.compute(x.shape, element, name="take_backward")
    return data_gradient


# ---------------------------------------------------------------- NumPy


def _np_pool_backward(largest: bool) -> Callable[..., Any]:
    def reference(call: relax.Call, gradient: Any, x: Any) -> Any:
        """Window by window."""
        get = call.attrs.__getitem__
        gradient = np_to_layout(gradient, get("out_layout"), "NCHW")
        x = np_to_layout(x, get("layout"), "NCHW")
        data_gradient = np.zeros_like(x)
        size, strides, dilation, pads = (get(n) for n in ("pool_size", "strides", "dilation", "padding"))
        for window in np.ndindex(*gradient.shape[2:]):
            places = [
                [p for k in range(size[a]) if 0 <= (p := w * strides[a] - pads[a] + k * dilation[a]) < x.shape[2 + a]]
                for a, w in enumerate(window)
            ]
            incoming = gradient[(slice(None), slice(None), *window)]
            divisor = 1
            for a, w in enumerate(window):
                count = averaged_count(call, int64(w), int64(x.shape[2 + a]), a, 2)
                divisor *= tir.const_int(count) or 0
            if not all(places):
                continue
            window_data = x[:, :, places[0]][:, :, :, places[1]]
            if largest:
                flat = np.reshape(window_data, (*window_data.shape[:2], -1))
                share = np.zeros_like(flat)
                np.put_along_axis(share, np.argmax(flat, -1)[..., None], incoming[..., None], -1)
                share = np.reshape(share, window_data.shape)
            else:
                share = np.broadcast_to((incoming / max(divisor, 1))[..., None, None], window_data.shape)
            data_gradient[:, :, np.array(places[0])[:, None], np.array(places[1])] += share.astype(data_gradient.dtype)
        return np_to_layout(data_gradient, "NCHW", get("layout"))

    return reference


def _np_take_backward(call: relax.Call, gradient: Any, x: Any, indices: Any) -> Any:
    at = 0 if call.attrs["axis"] is None else call.attrs["axis"] % x.ndim
    data_gradient = np.zeros_like(x)
    moved = np.moveaxis(data_gradient, at, 0)
    incoming = np.moveaxis(gradient, tuple(range(at, at + indices.ndim)), tuple(range(indices.ndim)))
    positions = np.asarray(indices).astype(np.int64)
    place = np.where(positions < 0, positions + len(moved), positions)
    inside = (place >= 0) & (place < len(moved))
    np.add.at(moved, place[inside], incoming[inside])
    return data_gradient


OPS: dict[str, Impl] = {
    "grad.max_pool2d_backward": Impl(
        f"output_grad, data, {pool_parameters(2)}", infer_pool_backward, _np_pool_backward(True), _lower_max,
        attr_order=ATTR_ORDER,
    ),
    "grad.avg_pool2d_backward": Impl(
        f"output_grad, data, {pool_parameters(2)}", infer_pool_backward, _np_pool_backward(False), _lower_avg,
        attr_order=ATTR_ORDER,
    ),
    "grad.take_backward": Impl(
        'output_grad, x, indices, axis: int? = None, mode: str = ""', infer_take_backward, _np_take_backward,
        _lower_take, from_end=True,
    ),
}  # fmt: skip
