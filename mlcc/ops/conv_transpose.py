"""Transposed convolutions: the gradient of a convolution with respect to its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ops import layout_rules
from mlcc.ops.blocked_layouts import CONV_LAYOUTS, blocked_impl
from mlcc.ops.conv import check_groups, conv_operands, conv_parameters, reference_operands, result_dtype_of
from mlcc.ops.lazy import np
from mlcc.ops.pad import pad
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.shapes import Tensor, fail, int64, result_dims, simplify
from mlcc.ops.window import clamp_to_zero, np_to_layout, spatial_letters, zero
from mlcc.te.scalar import Scalar, to_expr

# ---------------------------------------------------------------- inference


def _infer_transposed(ndim: int) -> Callable[[relax.Call], relax.StructInfo]:
    def infer(call: relax.Call) -> Tensor:
        """Infer (batch, output channels of all groups, extents whose convolution has the data's extents)."""
        data, w, dtype = conv_operands(call, ndim)
        x = data.extents
        if x is None or w is None:
            return data.result(None, dtype)
        check_groups(call, x, w, w["I"], ("I", "input"))
        strides, output_padding = call.attrs["strides"], call.attrs["output_padding"]
        if any(m >= s for m, s in zip(output_padding, strides, strict=True)):
            fail(
                call, "E0442", f"`output_padding` {list(output_padding)} must be less than the strides {list(strides)}"
            )
        extents = {"N": x["N"], "C": simplify(construct.mul(w["O"], int64(call.attrs["groups"])))}
        pads = call.attrs["padding"]
        for at, letter in enumerate(data.space):
            spread = construct.mul(construct.sub(x[letter], int64(1)), int64(strides[at]))
            reach = construct.mul(construct.sub(w[letter], int64(1)), int64(call.attrs["dilation"][at]))
            fixed = int64(output_padding[at] + 1 - pads[at] - pads[at + ndim])
            extents[letter] = clamp_to_zero(simplify(construct.add(construct.add(spread, reach), fixed)))
        return data.result(extents, dtype)

    return infer


# ---------------------------------------------------------------- lowering


def dilate(x: te.Tensor, steps: Mapping[int, int], name: str) -> te.Tensor:
    """Dilate a tensor: its elements are `steps` apart along the dimensions, with zeros between them."""
    shape = list(x.buffer.shape)
    for at, step in steps.items():
        extent = clamp_to_zero(simplify(construct.add(construct.mul(construct.sub(shape[at], 1), step), 1)))
        shape[at] = extent if isinstance(extent, tir.IntImm) else construct.maximum(extent, 0)

    def element(*i: Any) -> Any:
        places = [i[at] // steps[at] if at in steps else i[at] for at in range(x.ndim)]
        conditions = [Scalar(construct.equal(construct.floormod(to_expr(i[at]), s), 0)) for at, s in steps.items()]
        return te.if_then_else(te.all(*conditions), x(*places), zero(x.dtype)) if steps else x(*places)

    dilated: te.Tensor = te.compute(shape, element, name=name)
    return dilated


def _lower(ndim: int) -> Callable[..., te.Tensor]:
    def lowering(call: relax.Call, x: te.Tensor, weight: te.Tensor) -> te.Tensor:
        """Convolve the data, dilated by the strides, with the flipped kernel."""
        space = spatial_letters(ndim)
        layout, kernel, out = (call.attrs[f"{name}_layout"] for name in ("data", "kernel", "out"))
        groups, pads, dtype = call.attrs["groups"], call.attrs["padding"], result_dtype_of(call)
        dilations = {kernel.index(c): d for c, d in zip(space, call.attrs["dilation"], strict=True) if d != 1}
        if dilations:
            weight = dilate(weight, dilations, "kernel_dilate")
        strides = {layout.index(c): s for c, s in zip(space, call.attrs["strides"], strict=True) if s != 1}
        sizes = dict(zip(kernel, weight.buffer.shape, strict=True))
        before: list[int | tir.Expr] = [0] * x.ndim
        after: list[int | tir.Expr] = [0] * x.ndim
        for at, letter in enumerate(space):
            last, output_padding = construct.sub(sizes[letter], 1), call.attrs["output_padding"][at]
            before[layout.index(letter)] = simplify(construct.sub(last, pads[at]))
            after[layout.index(letter)] = simplify(construct.sub(last, pads[at + ndim] - output_padding))
        padded = pad(dilate(x, strides, "data_dilate"), before, after, zero(x.dtype), "data_pad")
        flipped = _flipped_kernel(weight, kernel, "OI" + space)
        inputs = Scalar(simplify(construct.floordiv(sizes["I"], int64(groups))))
        outputs = Scalar(sizes["O"])
        dc = te.reduce_axis((0, inputs), "dc")
        window = {c: te.reduce_axis((0, Scalar(sizes[c])), f"d{c.lower()}") for c in space}

        def element(*axes: Any) -> Any:
            at = dict(zip(out, axes, strict=True))
            channel = dc if groups == 1 else at["C"] // outputs * inputs + dc
            output = at["C"] if groups == 1 else at["C"] % outputs
            data_index = {"N": at["N"], "C": channel} | {c: at[c] + window[c] for c in space}
            product = padded(*(data_index[c] for c in layout)).astype(dtype)
            product = product * flipped(output, channel, *window.values()).astype(dtype)
            return te.sum(product, axis=[dc, *window.values()])

        names = dict(zip("NC" + space, "bc" + space.lower(), strict=True))
        convolved: te.Tensor = te.compute(
            result_dims(call), element, name="compute", varargs_names=[names[c] for c in out]
        )
        return convolved

    return lowering


def _flipped_kernel(weight: te.Tensor, kernel: str, wanted: str) -> te.Tensor:
    """The kernel in the layout `wanted`, reversed along its spatial dimensions."""
    sizes = dict(zip(kernel, weight.buffer.shape, strict=True))

    def element(*axes: Any) -> Any:
        at = dict(zip(wanted, axes, strict=True))
        return weight(*(at[c] if c in "OI" else Scalar(construct.sub(sizes[c], 1)) - at[c] for c in kernel))

    turned: te.Tensor = te.compute([sizes[c] for c in wanted], element, name="kernel_transform")
    return turned


# ---------------------------------------------------------------- NumPy


def _np_transposed(ndim: int) -> Callable[..., Any]:
    def reference(call: relax.Call, x: Any, weight: Any) -> Any:
        """Add the kernel, scaled by each element of the data, to the window of that element."""
        x, weight = reference_operands(call, ndim, x, weight, "IO")
        strides, dilation, pads = (call.attrs[n] for n in ("strides", "dilation", "padding"))
        size, groups = weight.shape[2:], call.attrs["groups"]
        ends = [
            max(
                0, (x.shape[2 + i] - 1) * strides[i] + dilation[i] * (size[i] - 1) + 1 + call.attrs["output_padding"][i]
            )
            for i in range(ndim)
        ]
        parts = []
        for part, kernel in zip(np.split(x, groups, 1), np.split(weight, groups, 0), strict=True):
            total = np.zeros((x.shape[0], weight.shape[1], *ends), x.dtype)
            for place in np.ndindex(*size):
                at = []
                for i, offset in enumerate(place):
                    begin, count = offset * dilation[i], x.shape[2 + i]
                    at.append(slice(begin, begin + strides[i] * (count - 1) + 1 if count else begin, strides[i]))
                seen = np.einsum("nc...,co->no...", part, kernel[(slice(None), slice(None), *place)])
                total[(slice(None), slice(None), *at)] += seen
            parts.append(total)
        uncropped = np.concatenate(parts, 1)
        inside = [slice(pads[i], max(pads[i], ends[i] - pads[i + ndim])) for i in range(ndim)]
        return np_to_layout(
            uncropped[(slice(None), slice(None), *inside)], "NC" + spatial_letters(ndim), call.attrs["out_layout"]
        )

    return reference


OPS: dict[str, Impl] = {
    f"nn.conv{n}d_transpose": blocked_impl(
        Impl(
            conv_parameters(n, transposed=True), _infer_transposed(n), _np_transposed(n), _lower(n),
            FusionKind.OUT_EWISE_FUSABLE, precision=Precision.HALF, layout=layout_rules.conv,
        ),
        *CONV_LAYOUTS,
    )
    for n in (1, 2, 3)
}  # fmt: skip
