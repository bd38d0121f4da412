"""Padding of tensors: with one value, or with elements from the edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules, topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import Dims, Tensor, fail, int64, result, shape_text, simplify, tensor
from mlcc.te.scalar import Scalar, to_expr

Width = int | tir.Expr


def infer_pad(call: relax.Call) -> Tensor:
    """Infer extents that grow by the padding before and after."""
    data = tensor(call, 0)
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    if mode != "constant" and mode not in _INDEX_MODES:
        known = ", ".join(["constant", *_INDEX_MODES])
        fail(call, "E0442", f'`pad_mode="{mode}"` is not known', f"possible modes are {known}")
    if data.ndim < 0 or len(widths) != 2 * data.ndim:
        known = "an unknown number of" if data.ndim < 0 else str(data.ndim)
        fail(call, "E0445", f"`pad_width` has {len(widths)} numbers for {known} dimensions: two are needed for each")
    if data.dims is None:
        return result(None, data.dtype, data.ndim)
    if mode != "constant" and any(tir.const_int(d) == 0 for d in data.dims) and any(widths):
        fail(call, "E0445", f"{shape_text(data.dims)} has no elements to pad with")
    dims = [simplify(construct.add(d, int64(widths[2 * i] + widths[2 * i + 1]))) for i, d in enumerate(data.dims)]
    return result(dims, data.dtype, vdevice=data.vdevice)


# ---------------------------------------------------------------- lowering


def pad(
    x: te.Tensor, before: Sequence[Width], after: Sequence[Width], value: Any, name: str, ax: bool = False
) -> te.Tensor:
    """Pad with `value`; negative widths crop. With `ax` only the padded sides are tested, as some of TVM's functions
    do."""
    low, high = ([int64(w) if isinstance(w, int) else w for w in side] for side in (before, after))
    shape = [simplify(construct.add(construct.add(d, b), a)) for d, b, a in zip(x.buffer.shape, low, high, strict=True)]

    def element(*i: Any) -> Any:
        conditions, places = [], []
        for index, extent, begin, end in zip(i, x.buffer.shape, low, high, strict=True):
            is_padded = not _is_zero(begin), not _is_zero(end)
            moved = construct.sub(to_expr(index), begin) if is_padded[0] else to_expr(index)
            places.append(Scalar(moved))
            if is_padded[0] or (is_padded[1] and not ax):
                conditions.append(Scalar(construct.greater_equal(to_expr(index), begin)))
            if is_padded[1] or (is_padded[0] and not ax):
                conditions.append(Scalar(construct.less(to_expr(index), construct.add(extent, begin))))
        inside = x(*places)
        return te.if_then_else(te.all(*conditions), inside, value) if conditions else inside

    if ax:
        return topi.compute_ax(shape, element, name)
    padded: te.Tensor = te.compute(shape, element, name=name)
    return padded


def _is_zero(width: tir.Expr) -> bool:
    return isinstance(width, tir.IntImm) and width.value == 0


def _lower_pad(call: relax.Call, x: te.Tensor) -> Any:
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    before, after = widths[::2], widths[1::2]
    if mode == "constant":
        return pad(x, before, after, te.const(call.attrs["pad_value"], x.dtype), "PadInput")
    dims: Dims = call.struct_info.dims  # type: ignore[union-attr]
    place = _INDEX_MODES[mode]

    def element(*i: Any) -> Any:
        at = [
            place(construct.sub(to_expr(index), low), extent, max(low, high))
            for index, extent, low, high in zip(i, x.buffer.shape, before, after, strict=True)
        ]
        inside = x(*(Scalar(a) for a in at))
        open_ended = [d for d, *w in zip(x.buffer.shape, before, after, strict=True) if any(w) and not _is_constant(d)]
        if not open_ended:
            return inside
        filled = te.all(*(Scalar(construct.less(int64(0), d)) for d in open_ended))
        return te.if_then_else(filled, inside, te.const(0, x.dtype))

    return te.compute(dims, element, name=f"{mode.capitalize()}PadInput")


def _is_constant(extent: tir.Expr) -> bool:
    return isinstance(extent, tir.IntImm)


def _reflect(at: tir.Expr, extent: tir.Expr, widest: int) -> tir.Expr:
    """Reflect an index at the edges without repeating them, periodically if the padding is wider than the data."""
    last = construct.sub(extent, 1)
    bound = tir.const_int(last)
    if widest and (bound is None or widest > bound):
        period = construct.maximum(construct.mul(last, 2), 1)
        at = construct.floormod(at, period)
    distance = te.abs(Scalar(construct.sub(last, te.abs(Scalar(at)).expr))).expr
    return construct.sub(last, distance)


def _replicate(at: tir.Expr, extent: tir.Expr, widest: int) -> tir.Expr:
    """Clamp an index to the data."""
    return construct.maximum(0, construct.minimum(construct.sub(extent, 1), at))


def _circular(at: tir.Expr, extent: tir.Expr, widest: int) -> tir.Expr:
    """Wrap an index around."""
    period = extent if isinstance(extent, tir.IntImm) else construct.maximum(extent, 1)
    return construct.floormod(construct.add(at, extent), period)


_INDEX_MODES: dict[str, Callable[[tir.Expr, tir.Expr, int], tir.Expr]] = {
    "reflect": _reflect, "replicate": _replicate, "circular": _circular,
}  # fmt: skip


# ---------------------------------------------------------------- NumPy

_NUMPY_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _np_pad(call: relax.Call, x: Any) -> Any:
    widths, mode = call.attrs["pad_width"], call.attrs["pad_mode"]
    pairs = [(max(b, 0), max(a, 0)) for b, a in zip(widths[::2], widths[1::2], strict=True)]
    cut = tuple(
        slice(max(-b, 0), max(0, d + max(b, 0) + a) if a < 0 else None)
        for d, b, a in zip(x.shape, widths[::2], widths[1::2], strict=True)
    )
    if mode == "constant":
        return np.pad(x, pairs, constant_values=call.attrs["pad_value"])[cut]
    if not x.size:
        return np.zeros([d + b + a for d, (b, a) in zip(x.shape, pairs, strict=True)], x.dtype)[cut]
    return np.pad(x, pairs, _NUMPY_MODES[mode])[cut]


OPS: dict[str, Impl] = {
    "nn.pad": Impl(
        'data, pad_width: ints, pad_mode: str = "constant", pad_value: float = 0.0', infer_pad, _np_pad, _lower_pad,
        FusionKind.INJECTIVE, attr_order=("pad_width", "pad_value", "pad_mode"),
        tir_name=lambda call: "pad" if call.attrs["pad_mode"] == "constant" else f"{call.attrs['pad_mode']}_pad",
        free_layout=layout_rules.pad,
    ),
}  # fmt: skip
