"""Convolutions and pooling: operators that slide a window over spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.lazy import np
from mlcc.ops.linalg import result_dtype
from mlcc.ops.nn import pad
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import (
    Dims,
    Tensor,
    extents,
    fail,
    int64,
    known_different,
    prove,
    result,
    shape_text,
    simplify,
    tensor,
)
from mlcc.ops.topi import compute_ax
from mlcc.te.scalar import Scalar, raw

SPATIAL = "WHD"  # the letters of a layout that are spatial dimensions


# ---------------------------------------------------------------- layouts


def plain_layout(call: relax.Call, attribute: str, letters: str) -> str:
    """A layout that is a permutation of `letters`."""
    layout: str = call.attrs[attribute]
    if sorted(layout) != sorted(letters):
        fail(call, "E0442", f"`{attribute}` must order the letters of {letters}, it is `{layout}`")
    return layout


def spatial(layout: str) -> list[int]:
    """The positions of the spatial dimensions, in the order of the layout."""
    return [i for i, letter in enumerate(layout) if letter in SPATIAL]


def _ordered(call: relax.Call, index: int, info: Tensor, layout: str) -> dict[str, tir.Expr] | None:
    """The extents by letter."""
    if info.ndim not in (-1, len(layout)):
        fail(call, "E0445", f"layout {layout} needs {len(layout)} dimensions, argument {index + 1} has {info.ndim}")
    return None if info.dims is None else dict(zip(layout, info.dims, strict=True))


# ---------------------------------------------------------------- inference


def _letters(ndim: int) -> str:
    return {1: "W", 2: "HW", 3: "DHW"}[ndim]


def _conv(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """The data's batch, the weight's outputs, and what is left of the spatial extents."""
        data, weight = tensor(call, 0), tensor(call, 1)
        space = _letters(ndim)
        layout = plain_layout(call, "data_layout", "NC" + space)
        kernel = plain_layout(call, "kernel_layout", "OI" + space)
        out = plain_layout(call, "out_layout", "NC" + space)
        dtype = result_dtype(call, (data, weight))
        x, w = _ordered(call, 0, data, layout), _ordered(call, 1, weight, kernel)
        if x is None or w is None:
            return result(None, dtype, len(layout))
        groups = call.attrs["groups"]
        if groups <= 0:
            fail(call, "E0442", f"`groups` must be positive, not {groups}")
        if known_different(x["C"], construct.mul(w["I"], int64(groups))):
            text = f"{shape_text(data.dims)} has {x['C'].value} channels"  # type: ignore[attr-defined]
            fail(call, "E0445", f"{text}, the weight {shape_text(weight.dims)} takes {w['I'].value} in {groups} groups")  # type: ignore[attr-defined]
        outputs = tir.const_int(w["O"])
        if outputs is not None and outputs % groups:
            fail(call, "E0445", f"{outputs} output channels cannot be divided into {groups} groups")
        _positive(call, "strides", "dilation")
        made = {"N": x["N"], "C": w["O"]}
        pads = call.attrs["padding"]
        for at, letter in enumerate(space):
            reach = construct.add(
                construct.mul(construct.sub(w[letter], int64(1)), int64(call.attrs["dilation"][at])), int64(1)
            )
            free = construct.sub(construct.add(x[letter], int64(pads[at] + pads[at + ndim])), reach)
            steps = construct.floordiv(free, int64(call.attrs["strides"][at]))
            made[letter] = _not_negative(simplify(construct.add(steps, int64(1))))
        return result([made[letter] for letter in out], dtype)

    return infer


def _positive(call: relax.Call, *names: str) -> None:
    for name in names:
        if min(call.attrs[name]) <= 0:
            fail(call, "E0442", f"`{name}` must be positive, not {list(call.attrs[name])}")


def _not_negative(extent: tir.Expr) -> tir.Expr:
    return int64(0) if isinstance(extent, tir.IntImm) and extent.value < 0 else extent


def _pool(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """Spatial extents by the number of windows that fit; with `ceil_mode` a last partial one counts."""
        data = tensor(call, 0)
        space = _letters(ndim)
        layout = plain_layout(call, "layout", "NC" + space)
        out = plain_layout(call, "out_layout", "NC" + space)
        x = _ordered(call, 0, data, layout)
        if x is None:
            return result(None, data.dtype, len(layout))
        _positive(call, "pool_size", "strides", "dilation")
        made = dict(x)
        for at, letter in enumerate(space):
            made[letter] = pool_extent(call, x[letter], at, ndim)
        return result([made[letter] for letter in out], data.dtype)

    return infer


def pool_extent(call: relax.Call, extent: tir.Expr, at: int, ndim: int) -> tir.Expr:
    """The number of windows along one dimension. With `ceil_mode` none begins in the padding after the data."""
    stride, pads = call.attrs["strides"][at], call.attrs["padding"]
    reach = call.attrs["dilation"][at] * (call.attrs["pool_size"][at] - 1) + 1
    free = construct.add(extent, int64(pads[at] + pads[at + ndim] - reach))
    if not call.attrs["ceil_mode"]:
        return _not_negative(simplify(construct.add(construct.floordiv(free, int64(stride)), int64(1))))
    steps = simplify(construct.floordiv(construct.add(free, int64(stride - 1)), int64(stride)))
    begin = construct.mul(steps, int64(stride))
    limit = construct.add(extent, int64(pads[at]))
    beyond = construct.greater_equal(begin, limit)
    more = construct.add(steps, int64(1))
    if pads[at + ndim] + stride <= reach or prove(construct.less(begin, limit), extents(call)):
        return _not_negative(simplify(more))
    return _not_negative(simplify(te.if_then_else(Scalar(beyond), Scalar(steps), Scalar(more)).expr))


def _adaptive(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """The spatial extents that `output_size` asks for."""
        data = tensor(call, 0)
        space = _letters(ndim)
        layout = plain_layout(call, "layout", "NC" + space)
        out = plain_layout(call, "out_layout", "NC" + space)
        x = _ordered(call, 0, data, layout)
        if x is None:
            return result(None, data.dtype, len(layout))
        made = dict(x)
        for letter, extent in zip(space, call.attrs["output_size"] or (), strict=False):
            if extent <= 0:
                fail(call, "E0442", f"`output_size` must be positive, not {list(call.attrs['output_size'])}")
            made[letter] = int64(extent)
        return result([made[letter] for letter in out], data.dtype)

    return infer


# ---------------------------------------------------------------- lowering


def _zero(dtype: DType) -> te.Scalar:
    return te.const(0, dtype)


def _only_layouts(call: relax.Call, *pairs: tuple[str, str]) -> None:
    if (call.attrs["data_layout"], call.attrs["kernel_layout"]) not in pairs:
        known = ", ".join(f"{a} with {b}" for a, b in pairs)
        fail(call, "E0442", f"only these layouts can be lowered: {known}")
    if call.attrs["out_layout"] != call.attrs["data_layout"]:
        fail(call, "E0442", "`out_layout` must equal `data_layout` to be lowered")


def _lower_conv2d(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The sum of products over the input channels of a group and the window."""
    layout, kernel = call.attrs["data_layout"], call.attrs["kernel_layout"]
    _only_layouts(call, ("NCHW", "OIHW"), ("NHWC", "OHWI"), ("NHWC", "HWIO"))
    groups = call.attrs["groups"]
    dtype = x.dtype if call.attrs["out_dtype"] is None else DType.of(call.attrs["out_dtype"])
    top, left, bottom, right = call.attrs["padding"]
    before = [{"H": top, "W": left}.get(letter, 0) for letter in layout]
    after = [{"H": bottom, "W": right}.get(letter, 0) for letter in layout]
    padded = pad(x, before, after, _zero(x.dtype), "pad_temp")
    sizes = dict(zip(kernel, weight.shape, strict=True))
    inputs = Scalar(simplify(construct.floordiv(x.buffer.shape[layout.index("C")], int64(groups))))
    rc = te.reduce_axis((0, inputs), "rc")
    ry = te.reduce_axis((0, sizes["H"]), "ry")
    rx = te.reduce_axis((0, sizes["W"]), "rx")
    per_group = simplify(construct.floordiv(raw(sizes["O"]), int64(groups)))
    (sy, sx), (dy, dx) = call.attrs["strides"], call.attrs["dilation"]

    def element(nn: Any, ff: Any, yy: Any, xx: Any) -> Any:
        group = ff // Scalar(per_group)
        channel = rc if groups == 1 else group * inputs + rc
        at = {"N": nn, "C": channel, "H": yy * sy + ry * dy, "W": xx * sx + rx * dx}
        of = {"O": ff, "I": rc, "H": ry, "W": rx}
        product = padded(*(at[c] for c in layout)).astype(dtype) * weight(*(of[c] for c in kernel)).astype(dtype)
        return te.sum(product, axis=[rc, ry, rx] if layout == "NCHW" else [ry, rx, rc])

    assert isinstance(call.struct_info, relax.TensorStructInfo)
    shape = call.struct_info.dims
    assert shape is not None
    kind = "group_conv2d" if groups != 1 else "conv2d"
    if layout == "NCHW":
        made: te.Tensor = te.compute(shape, element, name=f"{kind}_nchw")
    else:
        made = te.compute(shape, lambda nn, yy, xx, ff: element(nn, ff, yy, xx), name=f"{kind}_nhwc")
    return made


def _lower_conv1d(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
    """The sum of products over the input channels of a group and the window."""
    _only_layouts(call, ("NCW", "OIW"))
    groups = call.attrs["groups"]
    dtype = x.dtype if call.attrs["out_dtype"] is None else DType.of(call.attrs["out_dtype"])
    head, tail = call.attrs["padding"]
    padded = pad(x, [0, 0, head], [0, 0, tail], _zero(x.dtype), "pad_temp")
    outputs, inputs, width = weight.shape
    rc, rx = te.reduce_axis((0, inputs), "rc"), te.reduce_axis((0, width), "rx")
    per_group = simplify(construct.floordiv(raw(outputs), int64(groups)))
    stride, dilation = call.attrs["strides"][0], call.attrs["dilation"][0]

    def element(nn: Any, ff: Any, xx: Any) -> Any:
        channel = rc if groups == 1 else ff // Scalar(per_group) * inputs + rc
        product = padded(nn, channel, xx * stride + rx * dilation).astype(dtype) * weight(ff, rc, rx).astype(dtype)
        return te.sum(product, axis=[rc, rx])

    assert isinstance(call.struct_info, relax.TensorStructInfo)
    made: te.Tensor = te.compute(call.struct_info.dims, element, name="conv1d_ncw")
    return made


def _windows(call: relax.Call, x: te.Tensor, fill: te.Scalar) -> tuple[te.Tensor, list[int]]:
    """The padded data, and where its spatial dimensions are."""
    layout = call.attrs["layout"]
    if call.attrs["out_layout"] != layout:
        fail(call, "E0442", "`out_layout` must equal `layout` to be lowered")
    places = spatial(layout)
    pads = call.attrs["padding"]
    extra = _extra(call, x, places)
    if not any(pads) and not any(extra):
        return x, places
    before, after = [0] * x.ndim, [0] * x.ndim
    for at, place in enumerate(places):
        before[place] = pads[at]
        after[place] = pads[at + len(places)] + extra[at]
    return pad(x, before, after, fill, "pad_temp", ax=True), places


def _extra(call: relax.Call, x: te.Tensor, places: Sequence[int]) -> list[int]:
    """How far `ceil_mode` may read past the end."""
    return [call.attrs["strides"][at] - 1 if call.attrs["ceil_mode"] else 0 for at in range(len(places))]


def _pool_axes(call: relax.Call, x: te.Tensor, places: Sequence[int]) -> list[te.Axis]:
    return [te.reduce_axis((0, construct.const(n, x.buffer.shape[p].dtype)), f"rv{i}")
            for i, (n, p) in enumerate(zip(call.attrs["pool_size"], places, strict=True))]  # fmt: skip


def _window_index(call: relax.Call, i: Sequence[Any], places: Sequence[int], window: Sequence[te.Axis]) -> list[Any]:
    at = list(i)
    for n, place in enumerate(places):
        at[place] = i[place] * call.attrs["strides"][n] + window[n] * call.attrs["dilation"][n]
    return at


def _dims(call: relax.Call) -> Dims:
    assert isinstance(call.struct_info, relax.TensorStructInfo)
    assert call.struct_info.dims is not None
    return call.struct_info.dims


def _compute(shape: Any, fn: Callable[..., Any], name: str, rule: str) -> te.Tensor:
    names = [f"ax{i}" for i in range(len(shape))]
    attrs = {"schedule_rule": f"meta_schedule.{rule}"}
    made: te.Tensor = te.compute(tuple(shape), fn, name=name, attrs=attrs, varargs_names=names)
    return made


def _lower_max_pool(call: relax.Call, x: te.Tensor) -> te.Tensor:
    padded, places = _windows(call, x, te.min_value(x.dtype))
    window = _pool_axes(call, x, places)

    def element(*i: Any) -> Any:
        return te.max(padded(*_window_index(call, i, places, window)), axis=window)

    return _compute(_dims(call), element, "pool_max", "pool_max")


def _lower_avg_pool(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """The sum over the window, divided by the number of elements that count."""
    padded, places = _windows(call, x, _zero(x.dtype))
    window = _pool_axes(call, x, places)
    total = compute_ax(
        _dims(call), lambda *i: te.sum(padded(*_window_index(call, i, places, window)), axis=window), "pool_sum"
    )

    def element(*i: Any) -> Any:
        number = construct.const(1, x.buffer.shape[0].dtype)
        for n, place in enumerate(places):
            number = construct.mul(number, _counted(call, raw(i[place]), x.buffer.shape[place], n, len(places)))
        if not call.attrs["count_include_pad"]:
            number = construct.maximum(number, 1)
        return total(*i) / Scalar(construct.cast(x.dtype, number))

    return _compute(_dims(call), element, "pool_avg", "pool_avg")


def _counted(call: relax.Call, index: tir.Expr, extent: tir.Expr, at: int, ndim: int) -> tir.Expr:
    """How many elements of a window count along one dimension."""
    stride, pads = call.attrs["strides"][at], call.attrs["padding"]
    dilation, size = call.attrs["dilation"][at], call.attrs["pool_size"][at]
    begin = construct.sub(construct.mul(index, stride), pads[at])
    end = construct.add(begin, (size - 1) * dilation)
    if call.attrs["count_include_pad"]:
        end = construct.minimum(end, construct.add(extent, pads[at + ndim] - 1))
    else:
        missing = construct.maximum(construct.negate(begin), 0)
        skipped = construct.floordiv(construct.add(missing, dilation - 1), dilation)
        begin = construct.add(begin, construct.mul(skipped, dilation))
        end = construct.minimum(end, construct.sub(extent, 1))
    return construct.add(construct.floordiv(construct.sub(end, begin), dilation), 1)


# ---------------------------------------------------------------- NumPy


def _canonical(x: Any, layout: str, wanted: str) -> Any:
    return np.transpose(x, [layout.index(c) for c in wanted])


def _np_conv(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any, weight: Any) -> Any:
        space = _letters(ndim)
        x = _canonical(x, call.attrs["data_layout"], "NC" + space)
        weight = _canonical(weight, call.attrs["kernel_layout"], "OI" + space)
        wanted = call.attrs["out_dtype"]
        if wanted is not None and wanted not in ("float16", "bfloat16"):
            x, weight = x.astype(wanted), weight.astype(wanted)
        pads, groups = call.attrs["padding"], call.attrs["groups"]
        x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[i + ndim]) for i in range(ndim))])
        size = weight.shape[2:]
        out = [
            _steps(x.shape[2 + i], size[i], call.attrs["strides"][i], call.attrs["dilation"][i]) for i in range(ndim)
        ]
        parts = []
        for part, kernel in zip(np.split(x, groups, 1), np.split(weight, groups, 0), strict=True):
            total = np.zeros((x.shape[0], kernel.shape[0], *out), x.dtype)
            for place in np.ndindex(*size):
                seen = part[(slice(None), slice(None), *_strided(call, place, out))]
                total += np.einsum("nc...,oc->no...", seen, kernel[(slice(None), slice(None), *place)])
            parts.append(total)
        made = np.concatenate(parts, 1)
        return np.transpose(made, [("NC" + space).index(c) for c in call.attrs["out_layout"]])

    return reference


def _steps(extent: int, size: int, stride: int, dilation: int) -> int:
    return max(0, (extent - (dilation * (size - 1) + 1)) // stride + 1)


def _strided(call: relax.Call, place: Sequence[int], out: Sequence[int]) -> list[slice]:
    made = []
    for i, (offset, count) in enumerate(zip(place, out, strict=True)):
        begin, stride = offset * call.attrs["dilation"][i], call.attrs["strides"][i]
        made.append(slice(begin, begin + stride * (count - 1) + 1 if count else begin, stride))
    return made


def _np_pool(ndim: int, largest: bool) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any) -> Any:
        space = _letters(ndim)
        layout = call.attrs["layout"]
        x = _canonical(x, layout, "NC" + space)
        pads = call.attrs["padding"]
        out = [tir.const_int(pool_extent(call, int64(x.shape[2 + i]), i, ndim)) or 0 for i in range(ndim)]
        more = [(pads[i], pads[i + ndim] + call.attrs["strides"][i]) for i in range(ndim)]
        widths = [(0, 0), (0, 0), *more]
        lowest = np.finfo(x.dtype).min if np.issubdtype(x.dtype, np.floating) else np.iinfo(x.dtype).min
        values = np.pad(x, widths, constant_values=lowest if largest else 0)
        inside = np.pad(np.ones(x.shape[2:]), more)
        if call.attrs["count_include_pad"]:
            inside = np.pad(np.ones([x.shape[2 + i] + pads[i] + pads[i + ndim] for i in range(ndim)]),
                            [(0, call.attrs["strides"][i]) for i in range(ndim)])  # fmt: skip
        total = np.full((*x.shape[:2], *out), lowest if largest else 0, x.dtype)
        number = np.zeros(out)
        for place in np.ndindex(*call.attrs["pool_size"]):
            at = _strided(call, place, out)
            seen = values[(slice(None), slice(None), *at)]
            total = np.maximum(total, seen) if largest else total + seen
            number = number + inside[tuple(at)]
        made = total if largest else (total / np.maximum(number, 1)).astype(x.dtype)
        return np.transpose(made, [("NC" + space).index(c) for c in call.attrs["out_layout"]])

    return reference


def _np_adaptive(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any) -> Any:
        space = _letters(ndim)
        x = _canonical(x, call.attrs["layout"], "NC" + space)
        sizes = call.attrs["output_size"] or x.shape[2:]
        made = np.zeros((*x.shape[:2], *sizes), x.dtype)
        for place in np.ndindex(*sizes):
            at = [
                slice(p * x.shape[2 + i] // sizes[i], -(-(p + 1) * x.shape[2 + i] // sizes[i]))
                for i, p in enumerate(place)
            ]
            seen = x[(slice(None), slice(None), *at)]
            made[(slice(None), slice(None), *place)] = np.mean(seen, axis=tuple(range(2, 2 + ndim)))
        return np.transpose(made, [("NC" + space).index(c) for c in call.attrs["out_layout"]])

    return reference


OPS: dict[str, Impl] = {
    "nn.conv1d": Impl(_conv(1), _np_conv(1), _lower_conv1d, FusionKind.OUT_EWISE_FUSABLE),
    "nn.conv2d": Impl(_conv(2), _np_conv(2), _lower_conv2d, FusionKind.OUT_EWISE_FUSABLE),
    "nn.conv3d": Impl(_conv(3), _np_conv(3)),
    **{
        f"nn.max_pool{n}d": Impl(_pool(n), _np_pool(n, True), _lower_max_pool, FusionKind.OUT_EWISE_FUSABLE)
        for n in (1, 2, 3)
    },
    **{
        f"nn.avg_pool{n}d": Impl(_pool(n), _np_pool(n, False), _lower_avg_pool, FusionKind.OUT_EWISE_FUSABLE)
        for n in (1, 2, 3)
    },
    **{f"nn.adaptive_avg_pool{n}d": Impl(_adaptive(n), _np_adaptive(n)) for n in (1, 2, 3)},
}
