"""Convolutions and transposed convolutions."""

from __future__ import annotations

from mlcc.frontend.emitter import Dim
from mlcc.frontend.onnx.helpers import one_of
from mlcc.frontend.onnx.table import converts
from mlcc.frontend.onnx.translate import OnnxNode, OnnxTranslator
from mlcc.frontend.onnx.windows import AUTO, spatial_attribute, spatial_rank, window
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir


@converts("Conv")
def _conv(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    rank = spatial_rank(t, x)
    geometry = window(t, node, x, _kernel(t, node, weight))
    convolve = {1: t.op.nn.conv1d, 2: t.op.nn.conv2d, 3: t.op.nn.conv3d}[rank]
    convolved = t.emit(
        convolve(x, weight, geometry.strides, geometry.pads, geometry.dilations, node.attribute("group", 1))
    )
    return _with_bias(t, convolved, bias)


def _kernel(t: OnnxTranslator, node: OnnxNode, weight: relax.Expr) -> list[int]:
    extents = [tir.const_int(n) for n in t.shape(weight)[2:]]
    kernel = [n for n in extents if n is not None]
    stated = node.attribute("kernel_shape")
    if len(kernel) != len(extents) or (stated and list(stated) != kernel):
        raise Unsupported(f"`kernel_shape` is {stated}, but the weight's is {[str(n) for n in t.shape(weight)[2:]]}")
    return kernel


def _with_bias(t: OnnxTranslator, convolved: relax.Expr, bias: relax.Expr | None) -> relax.Expr:
    if bias is None:
        return convolved
    spread: list[Dim] = [1, t.shape(bias)[0], *[1] * (t.ndim(convolved) - 2)]
    return t.op.add(convolved, t.reshape(bias, spread))


@converts("ConvTranspose")
def _conv_transpose(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None
) -> relax.Expr:
    rank = spatial_rank(t, x)
    kernel = _kernel(t, node, weight)
    strides, dilations = spatial_attribute(node, "strides", rank, 1), spatial_attribute(node, "dilations", rank, 1)
    extra = spatial_attribute(node, "output_padding", rank, 0, least=0)
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True)]
    before, after = _transposed_pads(t, node, x, strides, reach, extra)
    # An output shape beyond the last window is padding of the output.
    extra = [e + max(-n, 0) for e, n in zip(extra, after, strict=True)]
    if any(n < 0 for n in before):
        raise Unsupported("the output shape is larger than the windows cover")
    pads = [*before, *(max(n, 0) for n in after)]
    convolve = {1: t.op.nn.conv1d_transpose, 2: t.op.nn.conv2d_transpose, 3: t.op.nn.conv3d_transpose}[rank]
    convolved = t.emit(convolve(x, weight, strides, pads, extra, dilations, node.attribute("group", 1)))
    return _with_bias(t, convolved, bias)


def _transposed_pads(
    t: OnnxTranslator, node: OnnxNode, x: relax.Expr, strides: list[int], reach: list[int], extra: list[int]
) -> tuple[list[int], list[int]]:
    """Return the crop of a transposed convolution's full result, before and after, for each spatial dimension."""
    auto = one_of(node.attribute("auto_pad", "NOTSET"), AUTO, "auto_pad")
    wanted, count = node.attribute("output_shape"), len(strides)
    if not wanted and auto in ("NOTSET", "VALID"):
        pads = node.attribute("pads") or [0] * (2 * count)
        if len(pads) != 2 * count:
            raise Unsupported(f"{len(pads)} pads for {count} spatial dimensions")
        return (list(pads[:count]), list(pads[count:])) if auto == "NOTSET" else ([0] * count, [0] * count)
    totals = []
    for at, (stride, span, more) in enumerate(zip(strides, reach, extra, strict=True)):
        if not wanted:
            totals.append(max(span + more - stride, 0))  # as many as strides
            continue
        extent = tir.const_int(t.shape(x)[2 + at])
        if extent is None:
            raise Unsupported("`output_shape` with a symbolic extent is not supported", "state the pads instead")
        totals.append(stride * (extent - 1) + more + span - wanted[len(wanted) - count + at])
    less, rest = [n // 2 for n in totals], [n - n // 2 for n in totals]
    if any(n < 0 for n in totals):
        return [max(n, 0) - max(n, 0) // 2 for n in totals], [n if n < 0 else n // 2 for n in totals]
    return (less, rest) if auto == "SAME_UPPER" else (rest, less)
