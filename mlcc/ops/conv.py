"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.lazy import np
from mlcc.ops.linalg import result_dtype
from mlcc.ops.nn import pad
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import (
    Tensor,
    fail,
    int64,
    known_different,
    result,
    shape_text,
    simplify,
    tensor,
)
from mlcc.ops.window import (
    canonical,
    dims_of,
    letters,
    not_negative,
    ordered,
    plain_layout,
    positive,
    strided,
    zero,
)
from mlcc.te.scalar import Scalar, raw

# ---------------------------------------------------------------- inference


def _conv(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """The data's batch, the weight's outputs, and what is left of the spatial extents."""
        data, weight = tensor(call, 0), tensor(call, 1)
        space = letters(ndim)
        layout = plain_layout(call, "data_layout", "NC" + space)
        kernel = plain_layout(call, "kernel_layout", "OI" + space)
        out = plain_layout(call, "out_layout", "NC" + space)
        dtype = result_dtype(call, (data, weight))
        x, w = ordered(call, 0, data, layout), ordered(call, 1, weight, kernel)
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
        positive(call, "strides", "dilation")
        made = {"N": x["N"], "C": w["O"]}
        pads = call.attrs["padding"]
        for at, letter in enumerate(space):
            reach = construct.add(
                construct.mul(construct.sub(w[letter], int64(1)), int64(call.attrs["dilation"][at])), int64(1)
            )
            free = construct.sub(construct.add(x[letter], int64(pads[at] + pads[at + ndim])), reach)
            steps = construct.floordiv(free, int64(call.attrs["strides"][at]))
            made[letter] = not_negative(simplify(construct.add(steps, int64(1))))
        return result([made[letter] for letter in out], dtype)

    return infer


# ---------------------------------------------------------------- lowering


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
    padded = pad(x, before, after, zero(x.dtype), "pad_temp")
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


def _lower_plain(ndim: int) -> Callable[..., te.Tensor]:
    def lowering(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """The sum of products over the input channels of a group and the window, channels first."""
        space = letters(ndim)
        _only_layouts(call, ("NC" + space, "OI" + space))
        groups = call.attrs["groups"]
        dtype = x.dtype if call.attrs["out_dtype"] is None else DType.of(call.attrs["out_dtype"])
        pads = call.attrs["padding"]
        padded = pad(x, [0, 0, *pads[:ndim]], [0, 0, *pads[ndim:]], zero(x.dtype), "pad_temp")
        inputs = Scalar(simplify(construct.floordiv(x.buffer.shape[1], int64(groups))))
        per_group = Scalar(simplify(construct.floordiv(weight.buffer.shape[0], int64(groups))))
        rc = te.reduce_axis((0, inputs), "rc")
        names = ["rx"] if ndim == 1 else ["ry", "rx", "rz"]
        window = [te.reduce_axis((0, d), n) for d, n in zip(weight.shape[2:], names, strict=True)]

        def element(nn: Any, ff: Any, *at: Any) -> Any:
            channel = rc if groups == 1 else ff // per_group * inputs + rc
            steps = zip(at, window, call.attrs["strides"], call.attrs["dilation"], strict=True)
            seen = padded(nn, channel, *(i * stride + k * dilation for i, k, stride, dilation in steps))
            return te.sum(seen.astype(dtype) * weight(ff, rc, *window).astype(dtype), axis=[rc, *window])

        name = f"conv{ndim}d_nc{space.lower()}"
        made: te.Tensor = te.compute(dims_of(call), element, name=name, varargs_names=["yy", "xx", "zz"][-ndim:])
        return made

    return lowering


# ---------------------------------------------------------------- NumPy


def _np_conv(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any, weight: Any) -> Any:
        space = letters(ndim)
        x = canonical(x, call.attrs["data_layout"], "NC" + space)
        weight = canonical(weight, call.attrs["kernel_layout"], "OI" + space)
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
                seen = part[(slice(None), slice(None), *strided(call, place, out))]
                total += np.einsum("nc...,oc->no...", seen, kernel[(slice(None), slice(None), *place)])
            parts.append(total)
        made = np.concatenate(parts, 1)
        return np.transpose(made, [("NC" + space).index(c) for c in call.attrs["out_layout"]])

    return reference


def _steps(extent: int, size: int, stride: int, dilation: int) -> int:
    return max(0, (extent - (dilation * (size - 1) + 1)) // stride + 1)


OPS: dict[str, Impl] = {
    "nn.conv1d": Impl(_conv(1), _np_conv(1), _lower_plain(1), FusionKind.OUT_EWISE_FUSABLE),
    "nn.conv2d": Impl(_conv(2), _np_conv(2), _lower_conv2d, FusionKind.OUT_EWISE_FUSABLE),
    "nn.conv3d": Impl(_conv(3), _np_conv(3), _lower_plain(3), FusionKind.OUT_EWISE_FUSABLE),
}
