"""Operators of onnxruntime's own, compared with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mlcc.frontend.onnx.translate import translate
from mlcc.interp import run_function
from tests.frontend.onnx_runtime import against_runtime, node_model

pytestmark = pytest.mark.usefixtures("onnx", "onnxruntime")


def _floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape, "float32")


def _integers(*shape: int, dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed + sum(shape)).integers(limits.min, limits.max, shape, dtype, endpoint=True)


SCALE, OTHER, WIDE = (np.array(v, "float32") for v in (0.05, 0.031, 0.2))
U8, V8, W8 = (np.array(v, "uint8") for v in (7, 121, 200))
I8 = np.array(-3, "int8")


@pytest.mark.parametrize("operator", ["Gelu", "QuickGelu", "FastGelu"])
def test_activations_agree(operator: str) -> None:
    against_runtime(operator, [_floats(3, 8)])


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_activations_of_sums_agree(operator: str) -> None:
    against_runtime(operator, [_floats(3, 8), _floats(8)])


def test_skip_layer_normalization_agrees() -> None:
    x, skip, gamma, beta, bias = _floats(2, 3, 8), _floats(2, 3, 8, seed=1), *(_floats(8, seed=s) for s in range(3))
    against_runtime("SkipLayerNormalization", [x, skip, gamma, beta, bias], [True, False, False, True], epsilon=1e-5)
    against_runtime("SkipLayerNormalization", [x, skip, gamma])
    against_runtime("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], [True, False, False, True])
    against_runtime("SimplifiedLayerNormalization", [x, gamma], domain="", epsilon=1e-6)


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_agree(segments: bool) -> None:
    words = np.array([[1, 5, 2], [0, 9, 9]], "int32")
    kinds = np.array([[0, 0, 1], [1, 1, 0]], "int32") if segments else None
    mask = np.array([[1, 1, 0], [1, 1, 1]], "int32")
    tables = [_floats(10, 8), _floats(5, 8), _floats(2, 8) if segments else None, _floats(8), _floats(8, seed=1), mask]
    against_runtime("EmbedLayerNormalization", [words, kinds, *tables], 2)


@pytest.mark.parametrize("turned", [(0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 1, 1)])
def test_fused_matmul_agrees(turned: tuple[int, ...]) -> None:
    names = ("transA", "transB", "transBatchA", "transBatchB")
    shapes = {
        (0, 0, 0, 0): ((2, 3, 4), (2, 4, 5)),
        (1, 0, 0, 0): ((2, 4, 3), (2, 4, 5)),
        (0, 1, 0, 0): ((2, 3, 4), (2, 5, 4)),
        (0, 0, 1, 0): ((3, 2, 4), (2, 4, 5)),
        (0, 0, 1, 1): ((3, 2, 4), (4, 2, 5)),
    }[turned]
    a, b = (_floats(*s) for s in shapes)
    against_runtime("FusedMatMul", [a, b], alpha=0.5, **dict(zip(names, turned, strict=True)))


@pytest.mark.parametrize("activation", ["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"])
def test_fused_convolutions_agree(activation: str) -> None:
    params = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.5], "HardSigmoid": [0.3, 0.4]}.get(activation)
    given: dict[str, Any] = {} if params is None else {"activation_params": params}
    x, w, b = _floats(1, 4, 6, 5), _floats(8, 2, 3, 3), _floats(8)
    against_runtime(
        "FusedConv", [x, w, b], activation=activation, group=2, pads=[1, 1, 1, 1], kernel_shape=[3, 3], **given
    )


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", ["none", "packed", "floats"])
def test_weights_of_few_bits_agree(bits: int, points: str) -> None:
    inner, columns, block = 40, 6, 16
    blocks = -(-inner // block)
    packed, scales = _integers(columns, blocks, block * bits // 8), np.abs(_floats(columns, blocks)) + 0.1
    zeros = {
        "none": None,
        "packed": _integers(columns, -(-blocks * bits // 8)),
        "floats": _floats(columns, blocks) * 3 + 8,
    }[points]
    if points == "floats" and bits == 8:
        pytest.skip("onnxruntime does not have it")
    against_runtime(
        "MatMulNBits", [_floats(3, inner), packed, scales, zeros], constant=(1, 2, 3), K=inner, N=columns, bits=bits,
        block_size=block,
    )  # fmt: skip


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_binary_operators_of_quantized_tensors_agree(operator: str, dtype: str) -> None:
    a, b = _integers(3, 40, dtype=dtype), _integers(40, dtype=dtype)
    points = [p.astype(dtype) for p in (np.array(7), np.array(100), np.array(20))]
    inputs = [a, SCALE, points[0], b, OTHER, points[1], WIDE, points[2]]
    against_runtime(operator, inputs, constant=(1, 2, 4, 5, 6, 7), off_by=1)


@pytest.mark.parametrize("operator", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_functions_of_quantized_tensors_agree(operator: str) -> None:
    scale = np.array(1 / 256, "float32") if operator == "QLinearSigmoid" else OTHER
    against_runtime(operator, [_integers(3, 40), SCALE, V8, scale, U8], constant=(1, 2, 3, 4), off_by=1)


@pytest.mark.parametrize("last", [0, 1])
def test_pools_of_quantized_tensors_agree(last: int) -> None:
    x = _integers(1, 6, 7, 8)
    fixed = [SCALE, V8, OTHER, V8]
    against_runtime("QLinearGlobalAveragePool", [x, *fixed], constant=(1, 2, 3, 4), channels_last=last, off_by=1)
    against_runtime(
        "QLinearAveragePool", [x, *fixed], constant=(1, 2, 3, 4), channels_last=last, kernel_shape=[3, 2],
        strides=[2, 1], pads=[1, 0, 1, 0], off_by=1,
    )  # fmt: skip


def test_quantized_tensors_joined_and_chosen() -> None:
    a, b = _integers(2, 5), _integers(2, 7)
    against_runtime("QLinearConcat", [WIDE, W8, a, SCALE, U8, b, OTHER, V8], axis=1, off_by=1)
    condition = np.random.default_rng(0).random((2, 5)) < 0.5
    against_runtime(
        "QLinearWhere", [condition, a, SCALE, U8, _integers(2, 5, seed=9), OTHER, V8, WIDE, W8],
        constant=(2, 3, 5, 6, 7, 8), off_by=1,
    )  # fmt: skip


@pytest.mark.parametrize("signed", [False, True])
def test_quantized_softmax_agrees(signed: bool) -> None:
    x = _integers(3, 9, dtype="int8" if signed else "uint8")
    point = I8 if signed else U8
    inputs = [x, SCALE, point, np.array(1 / 256, "float32"), np.array(-128, "int8") if signed else np.array(0, "uint8")]
    against_runtime("QLinearSoftmax", inputs, constant=(1, 2, 3, 4), axis=1, opset=13, off_by=1)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_quantized_gemm_agrees(columns: bool, final: bool) -> None:
    scale = np.array([0.01, 0.02, 0.03, 0.04], "float32") if columns else OTHER
    zero = np.array([0, 3, 5, 9], "uint8") if columns else V8
    inputs = [_integers(3, 5), SCALE, U8, _integers(5, 4), scale, zero, np.array([1, -400, 7, 9], "int32")]
    tail = [np.array(3.0, "float32"), W8] if final else []
    fixed = tuple(range(1, 7 + len(tail)))
    against_runtime("QGemm", [*inputs, *tail], constant=fixed, off_by=1)


def test_quantized_products_agree() -> None:
    a, b = _floats(3, 16), _integers(16, 5)
    against_runtime("DynamicQuantizeMatMul", [a, b, OTHER, V8, _floats(5)], constant=(1, 2, 3, 4))
    against_runtime("MatMulIntegerToFloat", [_integers(3, 16), b, SCALE, OTHER, U8, V8, _floats(5)], constant=(1, 3))


@pytest.mark.parametrize("extra", ["plain", "bias", "lengths", "mask", "added", "causal", "past", "past causal"])
def test_multi_head_attention_agrees(extra: str) -> None:
    rng = np.random.default_rng(3)
    q, k, v = (_floats(2, 5, 24, seed=s) for s in range(3))
    bias = _floats(72) if extra == "bias" else None
    mask = {"lengths": np.array([3, 5], "int32"), "mask": rng.integers(0, 2, (2, 5), "int32")}.get(extra)
    added = _floats(1, 3, 5, 5) if extra == "added" else None
    past = [_floats(2, 3, 4, 8), _floats(2, 3, 4, 8, seed=7)] if "past" in extra else []
    outputs = 3 if past else 1
    inputs = [q, k, v, bias, mask, added, *past]
    while inputs[-1] is None:
        inputs.pop()
    against_runtime("MultiHeadAttention", inputs, outputs, num_heads=3, unidirectional=int("causal" in extra))


def test_packed_heads_agree() -> None:
    """onnxruntime takes them on other devices only; they are those that come apart."""
    packed = _floats(2, 5, 3, 3, 8)
    parts = [np.reshape(packed[:, :, :, i], (2, 5, 24)) for i in range(3)]
    pair = np.stack([np.reshape(p, (2, 5, 3, 8)) for p in parts[1:]], 3)
    forms = ([*parts], [packed], [parts[0], pair])
    results = [run_function(translate(node_model("MultiHeadAttention", f, num_heads=3)), "main", f) for f in forms]
    assert np.array_equal(results[0], results[1]) and np.array_equal(results[0], results[2])


@pytest.mark.parametrize("extra", ["plain", "lengths", "mask", "mask3", "causal", "past", "added", "widths"])
def test_attention_with_projection_agrees(extra: str) -> None:
    rng = np.random.default_rng(3)
    x, w, b = _floats(2, 5, 10), _floats(10, 72), _floats(72)
    total = 9 if extra == "past" else 5
    given = {
        "lengths": np.array([3, 5], "int32"),
        "mask": rng.integers(0, 2, (2, total), "int32"),
        "mask3": rng.integers(0, 2, (2, 5, total), "int32"),
    }.get(extra)
    past = _floats(2, 2, 3, 4, 8) if extra == "past" else None
    added = _floats(1, 3, 5, 5) if extra == "added" else None
    inputs = [x, w, b, given, past, added]
    while inputs[-1] is None:
        inputs.pop()
    options: dict[str, Any] = {"qkv_hidden_sizes": [24, 24, 24]} if extra == "widths" else {}
    against_runtime(
        "Attention", inputs, 2 if past is not None else 1, num_heads=3, unidirectional=int(extra in ("causal", "past")),
        **options,
    )  # fmt: skip


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("offset", [False, True])
def test_rotary_embeddings_agree(interleaved: int, offset: bool) -> None:
    cos, sin = _floats(12, 4), _floats(12, 4, seed=1)
    places = np.array([3], "int64") if offset else np.array([[0, 1, 2, 3, 4], [7, 8, 9, 10, 11]], "int64")
    against_runtime("RotaryEmbedding", [_floats(2, 5, 24), places, cos, sin], interleaved=interleaved)
    against_runtime("RotaryEmbedding", [_floats(2, 3, 5, 8), places, cos, sin], interleaved=interleaved)


def _query_groups(
    batch: int, length: int, past: int | None, total: int, last: list[int], packed: bool = False, rotary: bool = False,
    bias: bool = False, opt_level: int | None = None, symbolic: Any = (), **attributes: Any,
) -> None:  # fmt: skip
    """`GroupQueryAttention` of 4 heads that share 2, over a cache of so many places of the past."""
    heads, shared, width = 4, 2, 16
    q = _floats(batch, length, (heads + 2 * shared if packed else heads) * width)
    k, v = (None if packed else _floats(batch, length, shared * width, seed=s) for s in (1, 2))
    before = [None if past is None else _floats(batch, shared, past, width, seed=s) for s in (3, 4)]
    angles = [_floats(32, width // 2, seed=s) if rotary else None for s in (5, 6)]
    inputs = [q, k, v, *before, np.array(last, "int32"), np.array(total, "int32"), *angles, None]
    inputs.append(_floats(batch, 1, length, total) if bias else None)
    while inputs[-1] is None:
        inputs.pop()
    against_runtime(
        "GroupQueryAttention", inputs, 3, opt_level=opt_level, symbolic=symbolic, num_heads=heads, kv_num_heads=shared,
        do_rotary=int(rotary), **attributes,
    )  # fmt: skip


@pytest.mark.parametrize("past", [None, 0, 16])
def test_query_groups_of_a_prompt(past: int | None) -> None:
    _query_groups(2, 5, past, 5, [4, 4], rotary=past == 16)
    _query_groups(2, 5, past, 5, [4, 2], opt_level=2 if past == 16 else None)  # one is shorter


@pytest.mark.parametrize("past", [5, 16])
def test_query_groups_of_a_step(past: int) -> None:
    _query_groups(2, 1, past, 6, [5, 5])
    _query_groups(2, 1, past, 6, [5, 3], rotary=True, opt_level=2 if past == 16 else None)
    _query_groups(2, 1, past, 6, [5, 3], packed=True, rotary=True, rotary_interleaved=1)
    _query_groups(1, 3, past, 8, [7], rotary=True)
    _query_groups(2, 1, past, 6, [5, 3], bias=True, scale=0.3)


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_query_groups_in_windows_agree(size: int) -> None:
    _query_groups(1, 5, None, 5, [4], local_window_size=size)
    _query_groups(2, 1, 16, 6, [5, 3], local_window_size=size)


def test_query_groups_with_a_cap_on_scores() -> None:
    _query_groups(1, 5, None, 5, [4], softcap=0.7)


def test_query_groups_of_symbolic_sizes() -> None:
    _query_groups(2, 1, 5, 6, [5, 5], symbolic=((0, 0), (0, 1), (1, 1), (2, 1), (3, 2), (4, 2)))
    _query_groups(1, 5, 5, 10, [9], symbolic=((0, 0), (0, 1), (1, 1), (2, 1), (3, 2), (4, 2)), rotary=True)


def test_query_groups_that_are_not_supported_are_named() -> None:
    from mlcc.errors import CompileError

    inputs = [
        _floats(1, 2, 64),
        _floats(1, 2, 32),
        _floats(1, 2, 32),
        None,
        None,
        np.array([1], "int32"),
        np.array(2, "int32"),
    ]
    with pytest.raises(CompileError, match="smooth_softmax"):
        translate(node_model("GroupQueryAttention", inputs, 3, num_heads=4, kv_num_heads=2, smooth_softmax=1))
