"""Calls of the nn, image, vision and quantize families with known, symbolic and unknown shapes, right and wrong."""

from __future__ import annotations

from tests.ops import numbers_nn
from tests.ops.cases import Case, Const, S, T

IMAGE = T(("n", 4, "h", "w"))
_KERNEL = T((4, 3, 3, 3))

CONVOLUTIONS = [
    *(Case("nn.conv2d_transpose", (IMAGE, _KERNEL), o) for o in (
        {}, {"strides": 2}, {"strides": (2, 1), "output_padding": (1, 0), "padding": (1, 0, 2, 1)}, {"dilation": 2},
        {"groups": 2}, {"groups": 3}, {"strides": 2, "output_padding": 2}, {"out_layout": "NHWC"})),
    Case("nn.conv2d_transpose", (T((1, 4, 3, 3)), T((4, 3, "k", 3)))),
    Case("nn.conv2d_transpose", (T((1, 3, 3, 3)), _KERNEL)),
    Case("nn.conv2d_transpose", (T((1, 4, 3)), _KERNEL)),
    Case("nn.conv2d_transpose", (T(None), _KERNEL)),
    Case("nn.conv2d_transpose", (T((1, 4, 3, 3)), T((4, 3, 3, 3), "float16"))),
    Case("nn.conv2d_transpose", (T((1, 4, 3, 3), "float16"), T((4, 3, 3, 3), "float16")), {"out_dtype": "float32"}),
    Case("nn.conv2d_transpose", (T((1, 3, 3, 4)), T((3, 3, 2, 4))), {"data_layout": "NHWC", "kernel_layout": "HWOI"}),
    Case("nn.conv1d_transpose", (T((1, 4, "n")), T((4, 3, 3))), {"strides": 2, "output_padding": 1}),
    Case("nn.conv1d_transpose", (T((1, 4, "n")), T((4, "c", 3))), {"groups": 2}),
    Case("nn.conv3d_transpose", (T((1, 4, 2, 3, "n")), T((4, 3, 2, 2, 2))), {"padding": 1}),
    Case("nn.conv2d", (IMAGE, T((8, 1, 3, 3))), {"groups": 4, "padding": (0, 1, 2, 0)}),
    Case("nn.conv2d", (T(("n", "h", "w", 4)), T((3, 3, 4, 8))), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
    Case("nn.conv1d", (T(("n", "w", 4)), T((3, 4, 8))), {"data_layout": "NWC", "kernel_layout": "WIO"}),
]  # fmt: skip

NN = [
    *(Case("nn.pad", (T((4, "n")), (1, 2, 3, 0)), {"pad_mode": m})
      for m in ("constant", "reflect", "replicate", "circular")),
    Case("nn.pad", (T((4, 5)), (0, 0, 2, 0)), {"pad_mode": "reflect"}),
    Case("nn.pixel_shuffle", (T(("b", 8, 3, "n")), 2)),
    Case("nn.pixel_shuffle", (T((8, 3, 5)), 3)),
    Case("nn.pixel_shuffle", (T((3, 5)), 1)),
    Case("nn.pixel_shuffle", (T(None), 2)),
    *(Case("nn.nll_loss", a, k) for a, k in (
        ((T(("n", 3, "d")), T(("n", "d"), "int64")), {}), ((T(("n", 3)), T(("m",), "int32"), T((3,))), {}),
        ((T(("n", 3)), T(("n",), "int64")), {"reduction": "none"}), ((T((2, 3)), T((3,), "int64")), {}),
        ((T((2, 3)), T((2,))), {}), ((T((2, 3)), T((2,), "int64"), T((4,))), {}), ((T((3,)), T((), "int64")), {}),
        ((T((3,)), T((2,), "int64")), {}), ((T((2, 3)), T((), "int64")), {}),
        ((T((2, 3)), T((2, 2), "int64")), {}), ((T((2, 3)), T((2,), "int64"), T((3,), "float16")), {}),
        ((T(()), T((), "int64")), {}), ((T(None), T((2,), "int64")), {}),
        ((T(None, "float32", 3), T((2, 4), "int64")), {"reduction": "none"}),
        ((T((2, 3)), T((2,), "int64"), T((3, 1))), {}), ((T((2, 3)), T((2,), "int64")), {"reduction": "max"}))),
    *(Case("nn.attention", tuple(map(T, shapes))) for shapes in (
        (("b", "s", 4, 8), ("b", "t", 4, 8), ("b", "t", 4, 6)), ((1, 2, 4, 8), (1, 3, 2, 8), (1, 3, 2, 8)),
        ((1, 2, 4, 8), (2, 3, 4, 8), (1, 3, 4, 8)), ((1, 2, 4, 8), (1, 3, 3, 8), (1, 3, 3, 8)),
        ((1, 2, 4, 8), (1, 3, 4, 7), (1, 3, 4, 8)), ((1, 2, 4, 8), (1, 3, 4, 8), (1, 4, 4, 8)),
        ((2, 4, 8), (1, 3, 4, 8), (1, 3, 4, 8)), ((1, 2, 4, 8), (1, 3, 4, 8), (1, 3, 4, 8), (1, 4, 2, 3)),
        ((1, 2, 4, 8), (1, 3, 4, 8), (1, 3, 4, 8), (1, 1, 1, 3)),
        ((1, 2, 4, 8), (1, 3, 4, 8), (1, 3, 4, 8), (1, 1, 1, 1)),
        ((1, 2, 4, 8), (1, 3, 4, 8), (1, 3, 4, 8), (4, 2, 3)))),
    Case("nn.attention", (T((1, "s", 4, 8)), T((1, "s", 4, 8)), T((1, "s", 4, 8))), {"causal_mask": "BottomRight"}),
]  # fmt: skip

_SIZE = (S("h"), 6)

IMAGES = [
    Case("image.resize2d", (IMAGE, (4, 6))),
    Case("image.resize2d", (IMAGE, _SIZE), {"method": "nearest_neighbor", "rounding_method": "floor"}),
    Case("image.resize2d", (T((1, 5, 7, 3)), (4, 6)), {"layout": "NHWC", "method": "cubic"}),
    Case("image.resize2d", (T((1, 3, 5, 7)), (4, 6, 7))),
    Case("image.resize2d", (T((1, 3, 5)), (4, 6))),
    Case("image.resize2d", (T(None), (4, 6))),
    Case("image.resize2d", (T(None, "float32", 4), (4, 6)), {"out_dtype": "float16"}),
    Case("image.resize3d", (T(("n", 3, 5, 7, "w")), (4, 6, 2))),
    Case("image.resize3d", (T((1, 5, 7, 4, 3)), (4, 6, 2)), {"layout": "NDHWC", "method": "nearest_neighbor"}),
    Case("image.resize3d", (T((1, 3, 5, 7)), (4, 6, 2))),
    Case("image.grid_sample", (IMAGE, T(("n", 2, 3, "m"))), {"method": "nearest"}),
    Case("image.grid_sample", (T((1, 4, 3, 3, 3)), T((1, 3, 3, 2, "m"))), {"layout": "NCDHW", "method": "nearest"}),
    Case("image.grid_sample", (IMAGE, T(None, "float32", 4))),
    Case("image.grid_sample", (T((1, 4, 3)), T((1, 2, 3, 3)))),
    Case("image.affine_grid", (T(("n", 2, 3)), (4, 5)), {"align_corners": False}),
    Case("image.affine_grid", (T((1, 3, 4)), (4, 5, 2))),
    Case("image.affine_grid", (T((1, 3, 4)), (4, 5))),
    Case("image.affine_grid", (T((1, 2, 3)), (4, S("m")))),
    Case("image.affine_grid", (T((2, 3)), (4, 5))),
    Case("image.affine_grid", (T(None), (4, 5))),
    *(Case(f"vision.{n}", (data, regions, (2, 3), 0.25)) for n in ("roi_align", "roi_pool") for data, regions in (
        (IMAGE, T(("m", 5))), (T((1, 3, 8, 8)), T((2, 4))), (T((1, 3, 8)), T((2, 5))), (T((1, 3, 8, 8)), T((5,))),
        (T(None), T((2, 5))))),
    Case("vision.roi_align", (T((1, 8, 8, 3)), T((2, 5)), (2, 3), 0.25), {"layout": "NHWC"}),
    Case("vision.roi_align", (T((1, 8, 8, 3)), T((2, 5)), (2, 3), 0.25), {"layout": "NWHC"}),
    Case("vision.roi_align", (T((1, 8, 8, 3)), T((2, 5)), (2, 3), 0.25), {"mode": "min"}),
    Case("vision.roi_pool", (T((1, 8, 8, 3)), T((2, 5)), (2, 3), 0.25), {"layout": "NHWC"}),
]  # fmt: skip

QUANTIZED = [
    *(Case("quantize", a, k) for a, k in (
        ((T(("n", 3)), T((3,)), T((3,), "int8")), {}), ((T(("n", 3)), T(("n",)), T((), "int8")), {"axis": 0}),
        ((T((2, 3)), T((2,)), T((3,), "int8")), {}), ((T((2, 3)), T((3,)), T((3,), "int8")), {"axis": 2}),
        ((T((2, 3), "int32"), T((3,)), T((3,), "int8")), {}), ((T((2, 3)), T((3,)), T((3,))), {}),
        ((T((2, 3)), T((3,)), T((3,), "int8")), {"out_dtype": "int32"}),
        ((T((2, 3), "float16"), T((1,), "float16"), T((), "float16")), {"out_dtype": "float8_e4m3fn"}),
        ((T(None, "float32", 2), T(()), T((), "int8")), {}), ((T(()), T(()), T((), "int8")), {}))),
    *(Case("dequantize", a, k) for a, k in (
        ((T(("n", 3), "int8"), T((3,)), T((3,), "int8")), {}), ((T((2, 3), "uint8"), T((1, 1)), T((), "uint8")), {}),
        ((T((2, 3), "int32"), Const(0.5, "float32"), Const(2, "int8")), {"out_dtype": "float16"}),
        ((T((2, 3), "int8"), T((3,)), T((3,), "int8")), {"out_dtype": "int8"}),
        ((T((2, 3), "int64"), T((3,)), T((3,), "int8")), {}), ((T((2, 3), "float16"), T(()), T((), "int8")), {}))),
]  # fmt: skip

_APART = ("var_len", "cubic", "window_size=2", "window_size=1")  # what TVM does not lower, or takes long for

CASES = [
    *CONVOLUTIONS, *NN, *IMAGES, *QUANTIZED,
    *(c for c in numbers_nn.CASES if not c.name.startswith("grad.") and not any(w in str(c) for w in _APART)),
]  # fmt: skip

INFO_DIFFERS = {"quantize(scalar, scalar, scalar:int8)": "a scalar has no axis"}

_EMPTY = "an extent is not negative"
_GUARD = "n may be 0, or less than the border"
_LAZY = "the prediction of an ignored class, which may be none, is not read"
_MASK = "masked scores count nothing in the maximum"
_HEADS = "TVM reshapes keys and values as if they had as many heads as the queries"
_FORM = "comparisons of places in another form"
_READS = "the region that is read has another form"


def _function_differs() -> dict[str, str]:
    """The case as text -> why."""
    made = {
        "nn.conv2d_transpose(nx4xhxw, 4x3x3x3, strides=2)": _EMPTY,
        "nn.conv2d_transpose(nx4xhxw, 4x3x3x3, strides=(2, 1), output_padding=(1, 0), padding=(1, 0, 2, 1))": _EMPTY,
        "nn.conv1d_transpose(1x4xn, 4x3x3, strides=2, output_padding=1)": _EMPTY,
        "nn.attention(1x2x4x8, 1x3x2x8, 1x3x2x8)": _HEADS,
        "nn.attention(2x3x4x5, 2x6x2x5, 2x6x2x5, scale=0.25)": _HEADS,
        "nn.conv2d(5x4x1x7, 2x3x2x4, data_layout='HCNW', kernel_layout='WOHI')": "TVM takes the kernel's W for H",
        "nn.pad(1x2:int32, (2, 1, 5, 3), pad_mode='reflect')": "TVM reads outside where the border is wider",
        "dequantize(4x3:int32, 4, 4:float16, axis=-2)": "TVM subtracts in float16",
        "image.resize2d(1x2x4x5:int32, (3, 9), method='nearest_neighbor')": "TVM moves integers through float32",
        "image.resize2d(1x2x4x5:float16, (3, 9), out_dtype='float32')": "TVM's function forgets `out_dtype`",
    }
    for case in CASES:
        text = str(case)
        if case.name == "nn.nll_loss":
            made[text] = _LAZY
        elif case.name == "nn.pad" and "n" in case.args[0].shape and "pad_mode" in case.kwargs:
            if case.kwargs["pad_mode"] != "constant":
                made[text] = _GUARD
        elif case.name.startswith("nn.attention") and case.kwargs.get("causal_mask") is not None:
            made[text] = _MASK
        elif case.name.startswith("vision."):
            made[text] = _READS
        elif case.name == "image.grid_sample":
            plain = case.kwargs.get("method") == "nearest" and case.kwargs.get("padding_mode") != "reflection"
            if not plain:
                made[text] = _FORM
        elif case.name == "image.resize3d" and "roi" in case.kwargs:
            made[text] = "TVM takes the depth's part of the region for the width's"
    return made


FUNCTION_DIFFERS = _function_differs()
