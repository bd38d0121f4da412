"""ATen operators of neural networks: convolutions, pools, normalisations, attention, images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend.aten.graph import AtenNode, Graph, Input, Output, Program, Ref, TensorMeta
from mlcc.frontend.aten.module import translate
from mlcc.frontend.location import SourceLocation
from tests.frontend.operator_check import Case, check_cases


def test_convolutions_agree(torch: Any) -> None:
    r, f = torch.randn, torch.nn.functional
    image, kernel, bias = r(2, 4, 9, 8), r(6, 4, 3, 2), r(6)
    cases: dict[str, Case] = {
        "conv2d": (f.conv2d, [image, kernel, bias]),
        "conv2d no bias": (f.conv2d, [image, kernel]),
        "conv2d all": (lambda x, w, b: f.conv2d(x, w, b, (2, 1), (1, 2), (1, 3), 1), [image, kernel, bias]),
        "conv2d groups": (lambda x, w: f.conv2d(x, w, groups=4), [image, r(8, 1, 3, 3)]),
        "conv2d same": (lambda x, w: f.conv2d(x, w, padding="same", dilation=2), [image, kernel]),
        "conv2d valid": (lambda x, w: f.conv2d(x, w, padding="valid"), [image, kernel]),
        "conv2d no batch": (f.conv2d, [image[0], kernel, bias]),
        "conv1d": (lambda x, w, b: f.conv1d(x, w, b, 2, 1), [r(2, 4, 9), r(6, 4, 3), r(6)]),
        "conv3d": (lambda x, w, b: f.conv3d(x, w, b, 1, 1), [r(1, 2, 4, 5, 4), r(3, 2, 2, 3, 2), r(3)]),
        "transposed": (lambda x, w, b: f.conv_transpose2d(x, w, b, 2, 1, 1), [image, r(4, 3, 3, 3), r(3)]),
        "transposed groups": (lambda x, w: f.conv_transpose2d(x, w, None, 1, 0, 0, 2, 2), [image, r(4, 3, 3, 3)]),
        "transposed 1d": (lambda x, w: f.conv_transpose1d(x, w, None, 3, 1, 2), [r(2, 4, 9), r(4, 3, 4)]),
        "transposed 3d": (lambda x, w: f.conv_transpose3d(x, w, None, 2), [r(1, 2, 3, 3, 2), r(2, 3, 2, 2, 2)]),
        "transposed dilated": (
            lambda x, w: f.conv_transpose2d(x, w, None, 1, 2, 1, 1, 2),
            [image, r(4, 3, 3, 3)],
        ),
        "unfold": (lambda x: f.unfold(x, (3, 2), 1, 1, 2), [image]),
        "fold": (lambda x: f.fold(x, (5, 6), (2, 3), 1, 1, (2, 1)), [r(2, 12, 18)]),
    }
    check_cases(cases)


def test_pools_agree(torch: Any) -> None:
    r, f = torch.randn, torch.nn.functional
    image, line, volume = r(2, 3, 9, 8), r(2, 3, 9), r(1, 2, 5, 6, 7)
    odd = image.clone()
    odd[0, 0, 2, 2] = math.nan
    cases: dict[str, Case] = {
        "max": (lambda x: f.max_pool2d(x, 2), [image]),
        "max all": (lambda x: f.max_pool2d(x, (3, 2), (2, 1), (1, 1), (1, 2), True), [image]),
        "max no batch": (lambda x: f.max_pool2d(x, 2), [image[0]]),
        "max 1d": (lambda x: f.max_pool1d(x, 3, 2, 1), [line]),
        "max 3d": (lambda x: f.max_pool3d(x, 2, 1), [volume]),
        "max places": (lambda x: f.max_pool2d(x, (3, 2), (2, 1), 1, return_indices=True), [image]),
        "max places ceil": (lambda x: f.max_pool2d(x, 3, 2, ceil_mode=True, return_indices=True), [image]),
        "max places NaN": (lambda x: f.max_pool2d(x, 3, 2, return_indices=True)[1], [odd]),
        "max places 1d": (lambda x: f.max_pool1d(x, 3, 2, 1, return_indices=True), [line]),
        "max places 3d": (lambda x: f.max_pool3d(x, 2, return_indices=True), [volume]),
        "unpool": (lambda x: f.max_unpool2d(*f.max_pool2d(x, 2, return_indices=True), 2), [r(2, 3, 8, 6)]),
        "avg": (lambda x: f.avg_pool2d(x, 2), [image]),
        "avg all": (lambda x: f.avg_pool2d(x, (3, 2), (2, 1), (1, 1), True), [image]),
        "avg no pads": (lambda x: f.avg_pool2d(x, 3, 2, 1, count_include_pad=False), [image]),
        "avg divisor": (lambda x: f.avg_pool2d(x, 3, 2, 1, divisor_override=5), [image]),
        "avg 1d": (lambda x: f.avg_pool1d(x, 3, 2, 1), [line]),
        "avg 3d": (lambda x: f.avg_pool3d(x, 2, 1, 1), [volume]),
        "adaptive": (lambda x: f.adaptive_avg_pool2d(x, (4, 3)), [image]),
        "adaptive 1": (lambda x: f.adaptive_avg_pool2d(x, 1), [image]),
        "adaptive none": (lambda x: f.adaptive_avg_pool2d(x, (None, 2)), [image]),
        "adaptive 1d": (lambda x: f.adaptive_avg_pool1d(x, 4), [line]),
        "adaptive 3d": (lambda x: f.adaptive_avg_pool3d(x, (2, 3, 2)), [volume]),
        "adaptive max": (lambda x: f.adaptive_max_pool2d(x, (4, 3), return_indices=True), [image]),
        "adaptive max 1d": (lambda x: f.adaptive_max_pool1d(x, 5), [line]),
        "adaptive max 3d": (lambda x: f.adaptive_max_pool3d(x, 2), [volume]),
        "lp": (lambda x: f.lp_pool2d(x, 2, 3, 2), [image]),
    }
    check_cases(cases)


def test_normalisations_agree(torch: Any) -> None:
    r, f = torch.randn, torch.nn.functional
    x, mean, var = r(2, 6, 4, 5), r(6), torch.rand(6) + 0.5
    cases: dict[str, Case] = {
        "layer": (lambda x, w, b: f.layer_norm(x, (5,), w, b), [x, r(5), r(5)]),
        "layer plain": (lambda x: f.layer_norm(x, (4, 5), eps=0.1), [x]),
        "layer no bias": (lambda x, w: f.layer_norm(x, (5,), w), [x, r(5)]),
        "native layer": (lambda x, w, b: torch.native_layer_norm(x, (5,), w, b, 1e-5), [x, r(5), r(5)]),
        "rms": (lambda x, w: f.rms_norm(x, (5,), w, 1e-6), [x, r(5)]),
        "rms plain": (lambda x: f.rms_norm(x, (4, 5)), [x]),
        "group": (lambda x, w, b: f.group_norm(x, 3, w, b), [x, r(6), r(6)]),
        "group plain": (lambda x: f.group_norm(x, 2), [x]),
        "group 2d": (lambda x: f.group_norm(x, 2), [r(3, 6)]),
        "instance": (lambda x, w, b: f.instance_norm(x, weight=w, bias=b), [x, r(6), r(6)]),
        "instance eval": (lambda x, m, v: f.instance_norm(x, m, v, use_input_stats=False), [x, mean, var]),
        "batch": (lambda x, m, v, w, b: f.batch_norm(x, m, v, w, b), [x, mean, var, r(6), r(6)]),
        "batch plain": (lambda x, m, v: f.batch_norm(x, m, v, eps=0.1), [x, mean, var]),
        "batch 2d": (lambda x, m, v: f.batch_norm(x, m, v), [r(3, 6), mean, var]),
        "batch statistics": (lambda x: f.batch_norm(x, None, None, training=True), [x]),
        "weight": (lambda v, g: torch._weight_norm(v, g, 0), [r(4, 3, 2), r(4, 1, 1)]),
        "weight last": (lambda v, g: torch._weight_norm(v, g, 2), [r(4, 3, 2), r(1, 1, 2)]),
        "cosine": (f.cosine_similarity, [x, r(2, 6, 4, 5)]),
        "pairwise": (f.pairwise_distance, [r(3, 4), r(3, 4)]),
        "local response": (lambda x: f.local_response_norm(x, 3), [x]),
        "functional": (
            lambda x, m, v: torch.ops.aten._native_batch_norm_legit_functional(x, None, None, m, v, True, 0.2, 1e-5),
            [x, mean, var],
        ),
    }
    check_cases(cases)


def test_attention_agrees(torch: Any) -> None:
    r, attend = torch.randn, torch.nn.functional.scaled_dot_product_attention
    q, k, v = r(2, 4, 5, 8), r(2, 4, 6, 8), r(2, 4, 6, 3)
    seen = torch.rand(2, 1, 5, 6) > 0.4
    seen[1, 0, 2] = False
    cases: dict[str, Case] = {
        "plain": (attend, [q, k, v]),
        "scale": (lambda q, k, v: attend(q, k, v, scale=0.3), [q, k, v]),
        "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), [q, k, v]),
        "causal longer": (lambda q, k, v: attend(k, q, q, is_causal=True), [q, k, v]),
        "mask": (lambda q, k, v, m: attend(q, k, v, attn_mask=m), [q, k, v, r(2, 4, 5, 6)]),
        "mask wide": (lambda q, k, v, m: attend(q, k, v, attn_mask=m), [q, k, v, r(5, 6)]),
        "bool": (lambda q, k, v, m: attend(q, k, v, attn_mask=m), [q, k, v, seen]),
        "infinite": (lambda q, k, v, m: attend(q, k, v, torch.where(m, 0.0, -math.inf)), [q, k, v, seen]),
        "3d": (lambda q, k, v: attend(q[0], k[0], v[0]), [q, k, v]),
        "3d mask": (lambda q, k, v, m: attend(q[0], k[0], v[0], m), [q, k, v, r(4, 5, 6)]),
        "2d": (lambda q, k, v: attend(q[0, 0], k[0, 0], v[0, 0]), [q, k, v]),
        "5d": (lambda q, k, v: attend(q[None], k[None], v[None]), [q, k, v]),
        "groups": (lambda q, k, v: attend(q, k[:, :2], v[:, :2], enable_gqa=True), [q, k, v]),
        "one head": (lambda q, k, v: attend(q, k[:, :1].expand(-1, 4, -1, -1), v), [q, k, v]),
    }
    check_cases(cases)


def test_attention_of_a_module_agrees(torch: Any) -> None:
    layer = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval().requires_grad_(False)
    cases: dict[str, Case] = {"layer": (layer, [torch.randn(2, 5, 16)])}
    check_cases(cases)


def test_pads_agree(torch: Any) -> None:
    f = torch.nn.functional
    x = torch.randn(2, 3, 5, 6)
    cases: dict[str, Case] = {
        "constant": (lambda x: f.pad(x, (1, 2, 0, 3), value=1.5), [x]),
        "cut": (lambda x: f.pad(x, (-1, 2, -2, 0)), [x]),
        "infinite": (lambda x: f.pad(x, (1, 1), value=-math.inf), [x]),
        "ints": (lambda x: f.pad(x, (1, 1), value=3), [torch.arange(6).reshape(2, 3)]),
        "bools": (lambda x: f.pad(x > 0, (1, 1), value=True), [x]),
        **{mode: (_pad(f, mode), [x]) for mode in ("reflect", "replicate", "circular")},
        "replicate cut": (lambda x: f.pad(x, (1, -1, 2, 0), "replicate"), [x]),
    }
    check_cases(cases)


def _pad(f: Any, mode: str) -> Any:
    return lambda x: f.pad(x, (1, 2, 3, 1), mode)


def test_resized_images_agree(torch: Any) -> None:
    f = torch.nn.functional
    line, image, volume = torch.randn(2, 3, 7), torch.randn(2, 3, 5, 6), torch.randn(1, 2, 3, 4, 5)
    cases: dict[str, Case] = {}
    for mode, x, n in (
        ("nearest", line, 1), ("nearest", image, 2), ("nearest", volume, 3), ("nearest-exact", line, 1),
        ("nearest-exact", image, 2), ("nearest-exact", volume, 3), ("linear", line, 1), ("bilinear", image, 2),
        ("trilinear", volume, 3), ("bicubic", image, 2),
    ):  # fmt: skip
        sizes: list[Any] = [(10, 4, 7)[:n], (3, 8, 2)[:n], (1, 1, 1)[:n]]
        for arguments in [{"size": size} for size in sizes] + [{"scale_factor": s} for s in (2, 1.5, 0.6)]:
            for corners in (False, True) if "linear" in mode or mode == "bicubic" else (None,):
                name = f"{mode} {arguments} {corners}"
                cases[f"{name} {n}"] = (_resized(f, mode, align_corners=corners, **arguments), [x])
    for mode in ("bilinear", "bicubic"):
        for size in ((3, 4), (8, 2), (5, 9)):
            cases[f"antialias {mode} {size}"] = (_resized(f, mode, size=size, antialias=True), [image])
    cases["recomputed"] = (_resized(f, "bilinear", scale_factor=1.7, recompute_scale_factor=True), [image])
    check_cases(cases)


def _resized(f: Any, mode: str, **arguments: Any) -> Any:
    return lambda x: f.interpolate(x, mode=mode, **arguments)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_samples_over_all_options_agree(torch: Any, mode: str) -> None:
    f = torch.nn.functional
    image, grid = torch.randn(2, 3, 5, 6), torch.rand(2, 4, 3, 2) * 2.4 - 1.2
    cases: dict[str, Case] = {}
    for border in ("zeros", "border", "reflection"):
        for corners in (False, True):
            cases[f"{border} {corners}"] = (_sampled(f, mode, border, corners), [image, grid])
    check_cases(cases)


def test_grid_samples_agree(torch: Any) -> None:
    f = torch.nn.functional
    cases: dict[str, Case] = {}
    cases["volume"] = (_sampled(f, "bilinear", "zeros", False), [torch.randn(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 2, 3)])
    for corners in (False, True):
        cases[f"affine {corners}"] = (_affine(f, (2, 3, 4, 5), corners), [torch.randn(2, 2, 3)])
        cases[f"affine 3d {corners}"] = (_affine(f, (2, 1, 3, 4, 2), corners), [torch.randn(2, 3, 4)])
    check_cases(cases)


def _sampled(f: Any, mode: str, border: str, corners: bool) -> Any:
    return lambda x, g: f.grid_sample(x, g, mode, border, corners)


def _affine(f: Any, size: Any, corners: bool) -> Any:
    return lambda theta: f.affine_grid(theta, size, corners)


def test_recurrent_layers_agree(torch: Any) -> None:
    nn = torch.nn
    x, h = torch.randn(3, 5, 4), torch.randn(4, 5, 6)
    cases: dict[str, Case] = {}
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        for arguments in ({}, {"batch_first": True}, {"bidirectional": True, "num_layers": 2}, {"bias": False}):
            layer = kind(4, 6, **arguments).eval().requires_grad_(False)
            cases[f"{kind.__name__} {arguments}"] = (layer, [x])
    cases["relu"] = (nn.RNN(4, 6, nonlinearity="relu").requires_grad_(False), [x])
    cases["state"] = (nn.GRU(4, 6, 2, bidirectional=True).requires_grad_(False), [x, h])
    for cell in (nn.GRUCell, nn.RNNCell):
        cases[cell.__name__] = (cell(4, 6).requires_grad_(False), [x[0], h[0]])
    cell = nn.LSTMCell(4, 6).requires_grad_(False)
    cases["LSTMCell"] = (lambda x, h: cell(x, (h, h + 1)), [x[0], h[0]])
    check_cases(cases)
    check_cases({"LSTM": (nn.LSTM(4, 6, 2, batch_first=True).requires_grad_(False), [x])}, sizes=(1, 7))


def _called(target: str, arguments: dict[str, Any], inputs: dict[str, TensorMeta], result: TensorMeta) -> Any:
    """A program of one call, built; no torchvision is needed."""
    node = AtenNode(target, {name: Ref(name) for name in inputs} | arguments, ("y",), SourceLocation(target, "y"))
    values = inputs | {"y": result}
    graph = Graph(tuple(inputs), (node,), (Ref("y"),), values)
    program = Program("regions", graph, tuple(Input(n, "user") for n in inputs), (Output(Ref("y"), "user"),), {})
    return mlcc.load(mlcc.build(translate(program), target="llvm{cpu=native}", opt_level=1))["main"]


def test_torchvision_regions_agree() -> None:
    image = np.broadcast_to(np.arange(9, dtype="float32"), (1, 1, 8, 9)).copy()  # a ramp: samples are exact
    boxes = np.array([[0, 2, 2, 8, 6], [0, 4, 2, 12, 12]], "float32")
    inputs = {"input": TensorMeta("float32", (1, 1, 8, 9)), "rois": TensorMeta("float32", (2, 5))}
    settings = {"spatial_scale": 0.5, "pooled_height": 2, "pooled_width": 3, "sampling_ratio": 2, "aligned": True}
    run = _called("torchvision.roi_align.default", settings, inputs, TensorMeta("float32", (2, 1, 2, 3)))
    wanted = [[x1 / 2 - 0.5 + (k + 0.5) * (x2 - x1) / 6 for k in range(3)] for _, x1, _, x2, _ in boxes.tolist()]
    np.testing.assert_allclose(_array(run(image, boxes))[:, 0, 1], wanted, rtol=1e-5)

    inputs = {"dets": TensorMeta("float32", (4, 4)), "scores": TensorMeta("float32", (4,))}
    run = _called("torchvision.nms.default", {"iou_threshold": 0.5}, inputs, TensorMeta("int64", ("u0",)))
    dets = np.array([[0, 0, 4, 4], [0, 0, 4, 3.9], [2, 2, 6, 6], [8, 8, 9, 9]], "float32")
    kept = run(dets, np.array([0.5, 0.9, 0.4, 0.95], "float32"))
    assert _array(kept).tolist() == [3, 1, 2]


def _array(result: Any) -> Any:
    return np.asarray(result[0] if isinstance(result, (list, tuple)) else result)
