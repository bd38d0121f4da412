"""Convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops import layout_rules
from mlcc.ops.blocked_layouts import CONV_LAYOUTS, blocked_impl
from mlcc.ops.lazy import np
from mlcc.ops.linalg import result_dtype
from mlcc.ops.pad import pad
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import Tensor, fail, int64, known_different, result_dims, shape_text, simplify, tensor
from mlcc.ops.window import (
    SpatialData,
    clamp_to_zero,
    extents_by_letter,
    np_to_layout,
    plain_layout,
    require_positive,
    spatial_data,
    spatial_letters,
    window_slices,
    zero,
)
from mlcc.te.scalar import Scalar

Extents = dict[str, tir.Expr]

# ---------------------------------------------------------------- inference


def conv_operands(call: relax.Call, ndim: int) -> tuple[SpatialData, Extents | None, DType | None]:
    """The data, the weight's extents by layout letter, and the result's dtype of a (transposed) convolution."""
    data, weight = spatial_data(call, ndim, "data_layout"), tensor(call, 1)
    kernel = plain_layout(call, "kernel_layout", "OI" + data.space)
    dtype = result_dtype(call, (data.data, weight))
    return data, extents_by_letter(call, 1, weight, kernel), dtype


def check_groups(call: relax.Call, x: Extents, w: Extents, inputs: tir.Expr, grouped_channels: tuple[str, str]) -> None:
    """Check that the data have `inputs` channels and that `groups` divides the channels of the weight.

    `grouped_channels` is the letter of the weight's divided axis and its name in messages.
    """
    groups = call.attrs["groups"]
    if groups <= 0:
        fail(call, "E0442", f"`groups` must be positive, not {groups}")
    if known_different(x["C"], inputs):
        data, weight = (tensor(call, i).dims for i in (0, 1))
        text = f"{shape_text(data)} has {x['C'].value} channels"  # type: ignore[attr-defined]
        fail(call, "E0445", f"{text}, the weight {shape_text(weight)} takes {w['I'].value} in {groups} groups")  # type: ignore[attr-defined]
    letter, what = grouped_channels
    count = tir.const_int(w[letter])
    if count is not None and count % groups:
        fail(call, "E0445", f"{count} {what} channels cannot be divided into {groups} groups")
    require_positive(call, "strides", "dilation")


def _infer_conv(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """Infer (batch, output channels, number of windows along each spatial dimension)."""
        data, w, dtype = conv_operands(call, ndim)
        x = data.extents
        if x is None or w is None:
            return data.result(None, dtype)
        check_groups(call, x, w, construct.mul(w["I"], int64(call.attrs["groups"])), ("O", "output"))
        extents = {"N": x["N"], "C": w["O"]}
        pads = call.attrs["padding"]
        for at, letter in enumerate(data.space):
            kernel_extent = construct.add(
                construct.mul(construct.sub(w[letter], int64(1)), int64(call.attrs["dilation"][at])), int64(1)
            )
            slack = construct.sub(construct.add(x[letter], int64(pads[at] + pads[at + ndim])), kernel_extent)
            steps = construct.floordiv(slack, int64(call.attrs["strides"][at]))
            extents[letter] = clamp_to_zero(simplify(construct.add(steps, int64(1))))
        return data.result(extents, dtype)

    return infer


# ---------------------------------------------------------------- lowering


def _lower(ndim: int) -> Callable[..., te.Tensor]:
    def lowering(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """Sum products over the window and the input channels of a group, in the order of the data's layout."""
        space = spatial_letters(ndim)
        layout, kernel, out = (call.attrs[f"{name}_layout"] for name in ("data", "kernel", "out"))
        groups, pads = call.attrs["groups"], call.attrs["padding"]
        dtype = result_dtype_of(call)
        before = [pads[space.index(c)] if c in space else 0 for c in layout]
        after = [pads[space.index(c) + ndim] if c in space else 0 for c in layout]
        padded = pad(x, before, after, zero(x.dtype), "pad_temp")
        sizes = dict(zip(kernel, weight.buffer.shape, strict=True))
        inputs = Scalar(simplify(construct.floordiv(x.buffer.shape[layout.index("C")], int64(groups))))
        outputs = Scalar(simplify(construct.floordiv(sizes["O"], int64(groups))))
        rc = te.reduce_axis((0, inputs), "rc")
        window = {c: te.reduce_axis((0, Scalar(sizes[c])), f"r{n}") for c, n in zip(space, "yxz", strict=False)}
        steps = zip(space, call.attrs["strides"], call.attrs["dilation"], strict=True)
        window_steps = {c: (stride, dilation) for c, stride, dilation in steps}
        reduced = [rc if c == "C" else window[c] for c in layout if c != "N"]

        def element(*axes: Any) -> Any:
            at = dict(zip(out, axes, strict=True))
            channel = rc if groups == 1 else at["C"] // outputs * inputs + rc
            spatial = {c: at[c] * window_steps[c][0] + window[c] * window_steps[c][1] for c in space}
            x_element = padded(*(({"N": at["N"], "C": channel} | spatial)[c] for c in layout))
            w_element = weight(*(({"O": at["C"], "I": rc} | window)[c] for c in kernel))
            return te.sum(x_element.astype(dtype) * w_element.astype(dtype), axis=reduced)

        name = f"{'group_' if groups > 1 else ''}conv{ndim}d_{layout.lower()}"
        names = dict(zip("NC" + space, ("nn", "ff", "yy", "xx", "zz"), strict=False))
        convolved: te.Tensor = te.compute(result_dims(call), element, name=name, varargs_names=[names[c] for c in out])
        return convolved

    return lowering


def result_dtype_of(call: relax.Call) -> DType:
    """The dtype of the result, which is also the accumulation dtype."""
    assert isinstance(call.struct_info, relax.TensorStructInfo) and call.struct_info.dtype is not None
    return call.struct_info.dtype


# ---------------------------------------------------------------- NumPy


def reference_operands(call: relax.Call, ndim: int, x: Any, weight: Any, kernel: str) -> tuple[Any, Any]:
    """Data in layout NC + space and the weight in layout `kernel` + space, both in the accumulation dtype."""
    space = spatial_letters(ndim)
    x = np_to_layout(x, call.attrs["data_layout"], "NC" + space)
    weight = np_to_layout(weight, call.attrs["kernel_layout"], kernel + space)
    wanted = call.attrs["out_dtype"]
    if wanted is not None and wanted not in ("float16", "bfloat16"):
        x, weight = x.astype(wanted), weight.astype(wanted)
    return x, weight


def _np_conv(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any, weight: Any) -> Any:
        x, weight = reference_operands(call, ndim, x, weight, "OI")
        pads, groups = call.attrs["padding"], call.attrs["groups"]
        x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[i + ndim]) for i in range(ndim))])
        size = weight.shape[2:]
        out = [
            _num_windows(x.shape[2 + i], size[i], call.attrs["strides"][i], call.attrs["dilation"][i])
            for i in range(ndim)
        ]
        parts = []
        for part, kernel in zip(np.split(x, groups, 1), np.split(weight, groups, 0), strict=True):
            total = np.zeros((x.shape[0], kernel.shape[0], *out), x.dtype)
            for place in np.ndindex(*size):
                seen = part[(slice(None), slice(None), *window_slices(call, place, out))]
                total += np.einsum("nc...,oc->no...", seen, kernel[(slice(None), slice(None), *place)])
            parts.append(total)
        return np_to_layout(np.concatenate(parts, 1), "NC" + spatial_letters(ndim), call.attrs["out_layout"])

    return reference


def _num_windows(extent: int, size: int, stride: int, dilation: int) -> int:
    return max(0, (extent - (dilation * (size - 1) + 1)) // stride + 1)


def conv_parameters(n: int, transposed: bool) -> str:
    """Return the parameter list of a convolution over `n` spatial dimensions.

    Transposed convolutions add `output_padding`, and their weights have input channels first (IO instead of OI).
    """
    space = spatial_letters(n)
    more = f"output_padding: ints{n} = 0, " if transposed else ""
    return (
        f"data, weight, strides: ints{n} = 1, padding: pads{2 * n} = 0, {more}dilation: ints{n} = 1, groups: int = 1, "
        f'data_layout: str = "NC{space}", kernel_layout: str = "{"IO" if transposed else "OI"}{space}", '
        "out_layout: str? = data_layout, out_dtype: dtype? = None"
    )


OPS: dict[str, Impl] = {
    f"nn.conv{n}d": blocked_impl(
        Impl(
            conv_parameters(n, transposed=False), _infer_conv(n), _np_conv(n), _lower(n), FusionKind.OUT_EWISE_FUSABLE,
            precision=Precision.HALF, layout=layout_rules.conv,
        ),
        *CONV_LAYOUTS,
    )
    for n in (1, 2, 3)
}  # fmt: skip
