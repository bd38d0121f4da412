"""Calls of operators of the nn, image, vision and quantize families whose numbers are compared."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ops.cases import Case, Const, T

IMAGE, VOLUME, ROW = T((2, 4, 5, 7)), T((1, 4, 3, 4, 5)), T((2, 4, 7))
HEADS = T((2, 3, 4, 5))
PREDICTIONS, TARGETS = T((2, 3, 5)), T((2, 5), "int64")
REGIONS = T((5, 5))
CUBIC = {"method": "cubic", "cubic_alpha": -0.5}


def _resize(size: tuple[int, ...], x: T = IMAGE, **kwargs: object) -> Case:
    return Case("image.resize2d", (x, size), dict(kwargs))


CONVOLUTIONS = [
    Case("nn.conv1d", (T((2, 7, 4)), T((3, 4, 2))), {"data_layout": "NWC", "kernel_layout": "OIW", "groups": 1}),
    Case("nn.conv1d", (T((2, 7, 4)), T((3, 2, 6))), {"data_layout": "NWC", "kernel_layout": "WIO", "groups": 2}),
    Case("nn.conv2d", (IMAGE, T((4, 1, 3, 2))), {"groups": 4, "padding": (1, 0, 0, 2)}),
    Case("nn.conv2d", (T((1, 5, 7, 4)), T((3, 3, 1, 8))),
         {"groups": 4, "data_layout": "NHWC", "kernel_layout": "HWIO"}),
    Case("nn.conv2d", (T((5, 4, 1, 7)), T((2, 3, 2, 4))), {"data_layout": "HCNW", "kernel_layout": "WOHI"}),
    Case("nn.conv2d", (IMAGE, T((3, 4, 2, 2))), {"out_layout": "NHWC", "strides": (2, 1)}),
    Case("nn.conv3d", (T((1, 3, 4, 5, 2)), T((2, 2, 2, 2, 3))), {"data_layout": "NDHWC", "kernel_layout": "DHWIO"}),
    Case("nn.conv2d", (T((1, 2, 4, 4), "int8"), T((3, 2, 3, 3), "int8")), {"out_dtype": "int32"}),
    Case("nn.conv1d_transpose", (ROW, T((4, 3, 3)))),
    Case("nn.conv1d_transpose", (ROW, T((4, 3, 3))), {"strides": 3, "padding": (1, 2), "output_padding": 2}),
    Case("nn.conv1d_transpose", (T((2, 7, 4)), T((3, 4, 2))),
         {"strides": 2, "data_layout": "NWC", "kernel_layout": "WIO"}),
    Case("nn.conv2d_transpose", (IMAGE, T((4, 3, 3, 2))), {"strides": 2, "output_padding": (1, 0), "padding": 1}),
    Case("nn.conv2d_transpose", (IMAGE, T((4, 3, 3, 2))), {"groups": 2, "dilation": (1, 2), "strides": (1, 3)}),
    Case("nn.conv2d_transpose", (IMAGE, T((4, 1, 1, 1))), {"groups": 4, "padding": 1}),
    Case("nn.conv2d_transpose", (IMAGE, T((4, 3, 2, 2))), {"out_layout": "NHWC", "strides": 2}),
    Case("nn.conv2d_transpose", (T((1, 2, 3, 3), "int8"), T((2, 2, 2, 2), "int8")), {"out_dtype": "int32"}),
    Case("nn.conv3d_transpose", (T((1, 2, 2, 3, 2)), T((2, 2, 2, 1, 3))), {"strides": (2, 1, 2), "groups": 2}),
]  # fmt: skip

PADS = [
    *(Case("nn.pad", (T((4, 5)), (1, 3, 0, 2)), {"pad_mode": m}) for m in ("reflect", "replicate", "circular")),
    *(
        Case("nn.pad", (T((1, 2), "int32"), (2, 1, 5, 3)), {"pad_mode": m})
        for m in ("reflect", "replicate", "circular")
    ),
    Case("nn.pad", (T((4, 5)), (-1, 2, 1, -2)), {"pad_value": 3.0}),
    Case("nn.pixel_shuffle", (T((2, 8, 3, 5)), 2)),
    Case("nn.pixel_shuffle", (T((9, 1, 2), "int32"), 3)),
]

ATTENTION = [
    Case("nn.attention", (HEADS, T((2, 6, 4, 5)), T((2, 6, 4, 7)))),
    Case("nn.attention", (HEADS, T((2, 6, 2, 5)), T((2, 6, 2, 5))), {"scale": 0.25}),
    Case("nn.attention_bias", (HEADS, T((2, 6, 4, 5)), T((2, 6, 4, 7)), T((2, 1, 3, 6)))),
    *(Case("nn.attention", (HEADS, T((2, n, 4, 5)), T((2, n, 4, 2))), {"causal_mask": m, "window_size": w})
      for m in ("TopLeft", "BottomRight") for n, w in ((6, None), (3, 2), (2, 1))),
    Case("nn.attention_bias", (HEADS, HEADS, HEADS, T((1, 4, 1, 3))), {"causal_mask": "TopLeft"}),
    Case("nn.attention", (T((1, 1, 1, 1)), T((1, 1, 1, 1)), T((1, 1, 1, 1)))),
    Case("nn.attention", (T((1, 2, 1, 3), "float16"), T((1, 2, 1, 3), "float16"), T((1, 2, 1, 3), "float16"))),
    *(Case("nn.attention_var_len", (T((1, 9, 2, 3)), T((1, 9, 2, 3)), T((1, 9, 2, 4)), T((4,), "int32"),
                                    T((4,), "int32"), T((1,), "int32"), T((1,), "int32")), o)
      for o in ({}, {"causal_mask": "TopLeft"}, {"causal_mask": "BottomRight", "window_size": 2, "scale": 2.0})),
]  # fmt: skip

LOSSES = [
    *(Case("nn.nll_loss", (PREDICTIONS, TARGETS), {"reduction": r, "ignore_index": i})
      for r, i in (("mean", -100), ("sum", 1), ("none", 1))),
    Case("nn.nll_loss", (T((4, 3)), T((4,), "int32"), T((3,)))),
    Case("nn.nll_loss", (T((3,)), T((), "int64"), T((3,)), "mean")),
    *(Case("grad.nll_loss_backward", (T(() if r != "none" else (2, 5)), PREDICTIONS, TARGETS, T((3,))),
           {"reduction": r, "ignore_index": 1}) for r in ("mean", "sum", "none")),
    Case("grad.nll_loss_backward", (T(()), T((3,)), T((), "int64"))),
]  # fmt: skip

IMAGES = [
    *(_resize(size, method=method, coordinate_transformation_mode=mode, roi=(0.1, -0.2, 0.9, 1.3),
              extrapolation_value=2.5, rounding_method="round")
      for method in ("nearest_neighbor", "linear", "cubic") for size in ((3, 10), (1, 1))
      for mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn",
                   "tf_crop_and_resize")),
    *(_resize((9, 4), method="nearest_neighbor", rounding_method=r)
      for r in ("", "round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    _resize((10, 21), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"),
    _resize((6, 9), cubic_exclude=1, **CUBIC),
    _resize((3, 9), T((2, 5, 7, 3)), layout="NHWC"),
    _resize((3, 9), T((1, 2, 4, 5), "int32"), method="nearest_neighbor"),
    _resize((3, 9), T((1, 2, 4, 5), "float16"), out_dtype="float32"),
    Case("image.resize3d", (VOLUME, (2, 5, 3))),
    Case("image.resize3d", (VOLUME, (2, 5, 3)), {"method": "nearest_neighbor", "layout": "NCDHW"}),
    Case("image.resize3d", (T((1, 1, 2, 3, 2)), (3, 2, 2)), {**CUBIC, "cubic_exclude": 1}),
    Case("image.resize3d", (VOLUME, (2, 5, 3)),
         {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0.2, -0.3, 0.1, 1.2, 0.9, 1.1)}),
    *(Case("image.grid_sample", (IMAGE, T((2, 2, 3, 4))), {"method": m, "padding_mode": p, "align_corners": a})
      for m in ("bilinear", "nearest", "bicubic") for p in ("zeros", "border", "reflection") for a in (False, True)),
    *(Case("image.grid_sample", (VOLUME, T((1, 3, 2, 2, 3))), {"method": m, "padding_mode": p, "layout": "NCDHW"})
      for m, p in (("bilinear", "zeros"), ("nearest", "border"), ("bilinear", "reflection"))),
    Case("image.grid_sample", (T((1, 1, 1, 4)), T((1, 2, 3, 4))),
         {"padding_mode": "reflection", "align_corners": True}),
    *(Case("image.affine_grid", (T((2, 2, 3)), s), {"align_corners": a})
      for s in ((4, 5), (1, 2)) for a in (True, False)),
    Case("image.affine_grid", (T((1, 3, 4)), (2, 3, 4))),
]  # fmt: skip

VISION = [
    *(
        Case("vision.roi_align", (IMAGE, REGIONS, (2, 3), 0.5), {"mode": m, "sample_ratio": s, "aligned": a})
        for m in ("avg", "max")
        for s in (-1, 2)
        for a in (False, True)
    ),
    Case("vision.roi_align", (T((2, 5, 7, 3)), REGIONS, 2, 1.0), {"layout": "NHWC"}),
    Case("vision.roi_pool", (IMAGE, REGIONS, (2, 3), 0.5)),
    Case("vision.roi_pool", (IMAGE, REGIONS, 3, 1.0)),
]

QUANTIZED = [
    *(Case("quantize", (T((4, 3)), T((3,)), T((3,), z)), {"out_dtype": d})
      for z, d in (("int8", "int8"), ("uint8", "uint8"), ("int32", "int16"), ("int16", "uint16"))),
    Case("quantize", (T((4, 3)), Const(0.05, "float32"), Const(3, "int8")), {"out_dtype": "uint8"}),
    Case("quantize", (T((4, 3)), T((4,)), T((), "int8")), {"axis": 0}),
    Case("dequantize", (T((4, 3), "int8"), T((3,)), T((3,), "int8"))),
    Case("dequantize", (T((4, 3), "uint8"), T((1,)), T((), "uint8"))),
    Case("dequantize", (T((4, 6), "int8"), T((4, 3)), T((4, 3), "int8"))),
    Case("dequantize", (T((6, 4), "uint8"), T((2, 4), "float16"), Const(8, "uint8")), {"axis": 0}),
    Case("dequantize", (T((8,), "int8"), T((2,)), T((2,), "int8"))),
    Case("quantize", (T((4, 6)), T((4, 2)), Const(0, "int8"))),
    *(Case("unpack_bits", (T((3, 4), "uint8"),), {"axis": a, "bits": b, "out_dtype": d})
      for a, b, d in ((0, 4, "int8"), (1, 4, "uint8"), (-1, 2, "int8"), (0, 1, "uint8"), (1, 1, "int8"))),
    Case("dequantize", (T((4, 3), "int32"), T((4,)), T((4,), "float16")), {"axis": -2}),
    Case("dequantize", (T((4, 3), "int16"), Const(0.5, "float32"), Const(-3, "int8")), {"out_dtype": "float16"}),
]  # fmt: skip

GRADIENTS = [
    *(Case(f"grad.{k}_pool2d_backward", (T((1, 2, *out)), T((1, 2, 5, 7)), *o), w)
      for k in ("max", "avg") for out, o, w in (
          ((2, 5), ((2, 3), (2, 1)), {}), ((3, 4), (3, 2, 1), {}), ((3, 4), (2, 2), {"ceil_mode": True}),
          ((3, 5), (2, 1), {"dilation": 2}), ((3, 4), (3, 2, 1), {"count_include_pad": True}),
          ((2, 2), (2, 3), {}), ((2, 3), (2, 3), {"ceil_mode": True, "count_include_pad": True}),
          ((3, 4), ((4, 5), (2, 2), (2, 2, 1, 2)), {}))),
    *(Case(f"grad.{k}_pool2d_backward", (T((1, 3, 2, 2)), T((1, 5, 7, 2)), (3, 4), (2, 3), (1, 0)),
           {"layout": "NHWC", "out_layout": "NHWC"}) for k in ("max", "avg")),
    Case("grad.take_backward", (T((2, 4, 5)), T((2, 3, 5)), T((4,), "int64"), 1)),
    Case("grad.take_backward", (T((4,)), T((3,)), T((4,), "int32"))),
]  # fmt: skip

CASES = [*CONVOLUTIONS, *PADS, *ATTENTION, *LOSSES, *IMAGES, *VISION, *QUANTIZED, *GRADIENTS]

# Arguments that must mean something: how an array is drawn, by operator and the argument's place.
_Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def _regions(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Rectangles inside and outside of an image of 5 x 7, one of them without area."""
    corners = np.sort(rng.uniform(-4, 14, (shape[0], 2, 2)), axis=1)
    corners[-1:, 1] = corners[-1:, 0]
    return np.concatenate([rng.integers(0, 2, (shape[0], 1)), np.reshape(corners, (-1, 4))], 1)


def _starts(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return np.array([0, 3, 3, 8])[: shape[0]]


def _classes(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(0, 3, shape)


DRAWN: dict[str, dict[int, _Draw]] = {
    "vision.roi_align": {1: _regions}, "vision.roi_pool": {1: _regions},
    "nn.attention_var_len": {3: _starts, 4: _starts},
    "nn.nll_loss": {1: _classes}, "grad.nll_loss_backward": {2: _classes}, "grad.take_backward": {2: _classes},
    "quantize": {1: lambda rng, shape: rng.uniform(0.02, 0.5, shape)},
    "image.grid_sample": {1: lambda rng, shape: rng.uniform(-1.6, 1.6, shape)},
}  # fmt: skip
