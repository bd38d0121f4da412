"""Converters of convolutions, transposed convolutions, im2col and col2im."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.frontend.aten.converters.shapes import simplify_extent, total_size
from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.aten.windows import Ints, per_dimension, unfold_windows
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct, relax, tir
from mlcc.relax import op

_FORWARD: dict[int, Any] = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSED: dict[int, Any] = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}


@converts("aten.conv1d", "aten.conv2d", "aten.conv3d")
def _conv(
    t: Translator, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None, stride: Ints = 1,
    padding: Ints | str = 0, dilation: Ints = 1, groups: int = 1,
) -> relax.Expr:  # fmt: skip
    return convolution(t, input, weight, bias, stride, padding, dilation, groups)


@converts("aten.conv_transpose1d", "aten.conv_transpose2d", "aten.conv_transpose3d")
def _conv_transpose(
    t: Translator, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None = None, stride: Ints = 1,
    padding: Ints = 0, output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1,
) -> relax.Expr:  # fmt: skip
    return convolution(t, input, weight, bias, stride, padding, dilation, groups, output_padding)


@converts("aten.convolution", "aten._convolution")
def _convolution(
    t: Translator, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int, **settings: Any,
) -> relax.Expr:  # fmt: skip
    more = output_padding if transposed else None
    return convolution(t, input, weight, bias, stride, padding, dilation, groups, more)


@converts("aten._convolution_mode")
def _convolution_mode(
    t: Translator, input: relax.Expr, weight: relax.Expr, bias: relax.Expr | None, stride: Ints, padding: str,
    dilation: Ints, groups: int,
) -> relax.Expr:  # fmt: skip
    return convolution(t, input, weight, bias, stride, padding, dilation, groups)


def convolution(
    t: Translator, value: relax.Expr, weight: relax.Expr, bias: relax.Expr | None, stride: Ints, padding: Ints | str,
    dilation: Ints, groups: int, output_padding: Ints | None = None,
) -> relax.Expr:  # fmt: skip
    """Emit a convolution with its bias; a transposed one if `output_padding` is given. Unbatched data are allowed."""
    n = t.ndim(weight) - 2
    if n not in _FORWARD:
        raise Unsupported(f"a convolution of {n} dimensions is not supported")
    batched = t.ndim(value) == n + 2
    x = value if batched else t.emit(op.expand_dims(value, [0]))
    strides, steps = per_dimension(stride, n), per_dimension(dilation, n)
    result: relax.Expr
    if output_padding is None:
        pads = _pads(t, weight, padding, steps)
        result = t.emit(_FORWARD[n](x, weight, strides=strides, padding=pads, dilation=steps, groups=groups))
    else:
        assert not isinstance(padding, str)
        result = _transpose(
            t, n, x, weight, strides, per_dimension(padding, n), per_dimension(output_padding, n), steps, groups
        )
    if bias is not None:
        result = t.emit(op.add(result, t.reshape(bias, [1, total_size(t.shape(bias)), *[1] * n])))
    return result if batched else op.squeeze(result, [0])


def _pads(t: Translator, weight: relax.Expr, padding: Ints | str, dilation: list[int]) -> list[int]:
    """Return the padding before all dimensions, then after all."""
    if not isinstance(padding, str):
        return per_dimension(padding, len(dilation)) * 2
    if padding == "valid":
        return [0] * 2 * len(dilation)
    if padding != "same":
        raise Unsupported(f'padding="{padding}"')
    sizes = [tir.const_int(extent) for extent in t.shape(weight)[2:]]
    if any(size is None for size in sizes):
        raise Unsupported("`same` padding with a kernel of symbolic size is not supported")
    borders = [step * (size - 1) for step, size in zip(dilation, sizes, strict=True) if size is not None]
    return [border // 2 for border in borders] + [border - border // 2 for border in borders]


def _transpose(
    t: Translator, n: int, x: relax.Expr, weight: relax.Expr, strides: list[int], pads: list[int], more: list[int],
    steps: list[int], groups: int,
) -> relax.Expr:  # fmt: skip
    """Emit a transposed convolution. `output_padding` beyond the stride, of dilated kernels, reduces the crop."""
    kept = [min(extra, stride - 1) for extra, stride in zip(more, strides, strict=True)]
    behind = [pad - (extra - low) for pad, extra, low in zip(pads, more, kept, strict=True)]
    if any(pad < 0 for pad in behind):
        raise Unsupported("an output_padding larger than stride and padding is not supported")
    return t.emit(
        _TRANSPOSED[n](
            x, weight, strides=strides, padding=[*pads, *behind], output_padding=kept, dilation=steps, groups=groups
        )
    )


@converts("aten.im2col")
def _im2col(
    t: Translator, self: relax.Expr, kernel_size: Ints, dilation: Ints, padding: Ints, stride: Ints
) -> relax.Expr:
    x = self if t.ndim(self) == 4 else t.emit(op.expand_dims(self, [0]))
    border = per_dimension(padding, 2)
    x = t.emit(op.nn.pad(x, [0, 0, 0, 0, border[0], border[0], border[1], border[1]]))
    taken = unfold_windows(t, x, per_dimension(kernel_size, 2), per_dimension(stride, 2), per_dimension(dilation, 2))
    order = [0, 1, 4, 5, 2, 3]  # batch, channels, kernel, places
    return t.reshape(t.emit(op.permute_dims(taken, order)), t.out_shape())


@converts("aten.col2im")
def _col2im(
    t: Translator, self: relax.Expr, output_size: Sequence[Any], kernel_size: Ints, dilation: Ints, padding: Ints,
    stride: Ints,
) -> relax.Expr:  # fmt: skip
    """Emit a transposed convolution whose kernel puts each row of the columns in its place."""
    kernel, steps, border, strides = (per_dimension(v, 2) for v in (kernel_size, dilation, padding, stride))
    if not all(isinstance(size, int) for size in output_size):
        raise Unsupported("an image of symbolic size is not supported")
    x = self if t.ndim(self) == 3 else t.emit(op.expand_dims(self, [0]))
    batch, rows, _ = t.shape(x)
    area = kernel[0] * kernel[1]
    channels = simplify_extent(construct.floordiv(rows, construct.const(area, "int64")))
    spans = [size + 2 * b - d * (k - 1) - 1 for size, b, k, d in zip(output_size, border, kernel, steps, strict=True)]
    grid = [span // stride + 1 for span, stride in zip(spans, strides, strict=True)]
    columns = t.reshape(x, [total_size([batch, channels]), area, *grid])
    unit = t.reshape(t.emit(op.eye(area, area, 0, t.dtype(self))), [area, 1, *kernel])
    image = op.nn.conv2d_transpose(
        columns, unit, strides=strides, padding=border * 2, dilation=steps,
        output_padding=[span % stride for span, stride in zip(spans, strides, strict=True)],
    )  # fmt: skip
    return t.reshape(t.emit(image), t.out_shape())
