"""The networks under samples/: compiled once, run at many sizes, against NumPy and PyTorch of the same weights."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import driver
from mlcc.interp import run_function
from mlcc.ir import tir
from mlcc.passes.graph.bind_params import bind

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def script(sample: str, name: str) -> ModuleType:
    """A script of a sample, as a module."""
    spec = importlib.util.spec_from_file_location(f"{sample}_{name}", SAMPLES / sample / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bound(path: Path, weights: dict[str, np.ndarray]) -> mlcc.IRModule:
    """The module of a text with weights in the place of the parameters of their names."""
    module = driver.parse_file(str(path))
    module.functions["main"] = bind(module["main"], weights, "main", module)
    return module


# ---------------------------------------------------------------- the encoder block

encoder = script("transformer", "model")


@pytest.fixture(scope="module")
def encoder_module() -> mlcc.IRModule:
    return bound(SAMPLES / "transformer" / "encoder.mlc", encoder.weights())


@pytest.fixture(scope="module")
def encode(encoder_module: mlcc.IRModule) -> Callable[..., Any]:
    return mlcc.load(mlcc.build(encoder_module))["main"]


@pytest.mark.parametrize("batch, length", [(1, 1), (3, 17), (2, 64), (0, 5), (5, 0), (0, 0)])
def test_encoder_matches_numpy(encode: Callable[..., Any], batch: int, length: int) -> None:
    given = encoder.inputs(batch, length)
    want = encoder.reference(given["x"], given["mask"], encoder.weights())
    np.testing.assert_allclose(encode(given["x"], given["mask"]), want, rtol=1e-4, atol=1e-5)


def test_interpreted_encoder_matches_numpy(encode: Callable[..., Any], encoder_module: mlcc.IRModule) -> None:
    given = encoder.inputs(2, 3)
    want = run_function(encoder_module, "main", [given["x"], given["mask"]])
    np.testing.assert_allclose(encode(given["x"], given["mask"]), want, rtol=1e-5, atol=1e-5)


def test_encoder_sizes_must_agree(encode: Callable[..., Any]) -> None:
    with pytest.raises(mlcc.CallError, match="dim n of `x` is 7, of `mask` is 8"):
        encode(encoder.inputs(2, 7)["x"], encoder.inputs(2, 8)["mask"])


def test_encoder_as_pytorch_has_it(encode: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    w = {name: torch.from_numpy(value) for name, value in encoder.weights().items()}
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True)
    names = {
        "self_attn.in_proj_weight": w["w_qkv"].T, "self_attn.in_proj_bias": w["b_qkv"],
        "self_attn.out_proj.weight": w["w_out"].T, "self_attn.out_proj.bias": w["b_out"],
        "linear1.weight": w["w_up"].T, "linear1.bias": w["b_up"],
        "linear2.weight": w["w_down"].T, "linear2.bias": w["b_down"],
        "norm1.weight": w["gain1"], "norm1.bias": w["shift1"], "norm2.weight": w["gain2"], "norm2.bias": w["shift2"],
    }  # fmt: skip
    layer.load_state_dict(names)
    given = encoder.inputs(3, 11)
    with torch.no_grad():  # training mode: the other one does not compute what is masked
        want = layer.train()(torch.from_numpy(given["x"]), src_key_padding_mask=torch.from_numpy(~given["mask"]))
    np.testing.assert_allclose(encode(given["x"], given["mask"]), want.numpy(), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- the decoder

decoder = script("decoder", "model")


@pytest.fixture(scope="module")
def decoder_module() -> mlcc.IRModule:
    return bound(SAMPLES / "decoder" / "decoder.mlc", decoder.weights())


@pytest.fixture(scope="module")
def decode(decoder_module: mlcc.IRModule) -> Callable[..., Any]:
    return mlcc.load(mlcc.build(decoder_module))["main"]


def tokens(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).integers(0, decoder.TOKENS, (batch, length))


def in_parts(decode: Callable[..., Any], text: np.ndarray, sizes: list[int]) -> np.ndarray:
    """The scores of a text that is given piece by piece."""
    cache, found, begin = decoder.empty_cache(len(text)), [], 0
    for size in sizes:
        scores, *cache = decode(text[:, begin : begin + size], *cache)
        assert all(c.shape == (len(text), decoder.HEADS, begin + size, decoder.DEPTH) for c in cache)
        found.append(scores)
        begin += size
    assert begin == text.shape[1]
    return np.concatenate(found, 1)


@pytest.mark.parametrize(
    "batch, sizes", [(1, [7]), (1, [1] * 7), (2, [13, 1, 1, 5]), (1, [0, 3, 0, 1]), (3, [0]), (0, [2, 1])], ids=str
)
def test_decoder_matches_numpy(decode: Callable[..., Any], batch: int, sizes: list[int]) -> None:
    text = tokens(batch, sum(sizes))
    want = decoder.reference(text, decoder.weights())
    np.testing.assert_allclose(in_parts(decode, text, sizes), want, rtol=1e-4, atol=1e-4)


def test_interpreted_decoder_matches_numpy(decode: Callable[..., Any], decoder_module: mlcc.IRModule) -> None:
    text = tokens(1, 3)
    want = in_parts(lambda *a: run_function(decoder_module, "main", a), text, [2, 1])
    np.testing.assert_allclose(in_parts(decode, text, [2, 1]), want, rtol=1e-5, atol=1e-5)


def test_decoder_caches_must_agree(decode: Callable[..., Any]) -> None:
    cache = [np.zeros((1, 4, m, 8), "float32") for m in (7, 7, 7, 8)]
    with pytest.raises(mlcc.CallError, match="dim m of `keys0` is 7, of `values1` is 8"):
        decode(tokens(1, 1), *cache)


def test_decoder_as_pytorch_has_it(decode: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    w = {name: torch.from_numpy(value) for name, value in decoder.weights().items()}
    text = tokens(2, 11)
    turn = torch.polar(torch.ones(11, 4), torch.outer(torch.arange(11.0), torch.tensor([1.0, 0.1, 0.01, 0.001])))

    def rotated(x: Any) -> Any:
        made = torch.complex(*x.chunk(2, -1)) * turn
        return torch.cat([made.real, made.imag], -1)

    x = functional.embedding(torch.from_numpy(text), w["embedding"])
    for i in range(decoder.LAYERS):
        qkv = functional.rms_norm(x, (32,), w[f"gain1_{i}"], 1e-5) @ w[f"w_qkv{i}"]
        q, k, v = (part.unflatten(-1, (4, 8)).transpose(1, 2) for part in qkv.chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True)
        x = x + mixed.transpose(1, 2).flatten(2) @ w[f"w_out{i}"]
        inner = functional.rms_norm(x, (32,), w[f"gain2_{i}"], 1e-5)
        x = x + (functional.silu(inner @ w[f"w_gate{i}"]) * (inner @ w[f"w_up{i}"])) @ w[f"w_down{i}"]
    want = functional.rms_norm(x, (32,), w["gain"], 1e-5) @ w["embedding"].T
    np.testing.assert_allclose(in_parts(decode, text, [5, 1, 5]), want.numpy(), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- ResNet

resnet = script("resnet", "model")
SMALL: dict[str, Any] = {"layers": (1, 2), "width": 4}


@pytest.fixture(scope="module")
def classify() -> Callable[..., Any]:
    """A small one of the same kind."""
    return mlcc.load(mlcc.build(resnet.text_module(**SMALL, classes=7, size=16)))["main"]


def images(count: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    weights = resnet.weights(resnet.parameters(**SMALL, classes=7))
    return np.random.default_rng(count).standard_normal((count, 3, 16, 16), np.float32), weights


@pytest.mark.parametrize("count", [0, 1, 3])
def test_resnet_matches_numpy(classify: Callable[..., Any], count: int) -> None:
    x, weights = images(count)
    want = resnet.reference(x, weights, **SMALL)
    np.testing.assert_allclose(classify(x, *weights.values()), want, rtol=1e-4, atol=1e-4)


def test_resnet_as_pytorch_has_it(classify: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x, weights = images(2)
    w = {name: torch.from_numpy(value) for name, value in weights.items()}

    def conv(data: Any, name: str, stride: int = 1) -> Any:
        kernel = w[f"{name}_w"]
        made = functional.conv2d(data, kernel, stride=stride, padding=kernel.shape[-1] // 2)
        mean, var, gamma, beta = (w[f"{name}_{part}"] for part in ("mean", "var", "gamma", "beta"))
        return functional.batch_norm(made, mean, var, gamma, beta, training=False, eps=1e-5)

    y = functional.max_pool2d(functional.relu(conv(torch.from_numpy(x), "stem", 2)), 3, 2, 1)
    for name, before, after, stride in resnet.blocks(**SMALL):
        second = conv(functional.relu(conv(y, f"{name}_1", stride)), f"{name}_2")
        y = functional.relu(second + (conv(y, f"{name}_short", stride) if (before, stride) != (after, 1) else y))
    want = functional.linear(y.mean((2, 3)), w["dense_w"].T, w["dense_b"])
    np.testing.assert_allclose(classify(x, *weights.values()), want.numpy(), rtol=1e-4, atol=1e-4)


def test_resnet_text_is_what_the_script_prints() -> None:
    """The text is what the script prints."""
    path = SAMPLES / "resnet" / "resnet18.mlc"
    assert mlcc.structural_equal(driver.parse_file(str(path)), resnet.text_module())


def code_size(layers: int) -> tuple[int, int]:
    """Lines of LLVM IR, and functions of kernels, of a network with so many blocks in a stage."""
    module = driver.run_passes(resnet.text_module((layers,), 4, 7, 16), "O2")
    lines = mlcc.build(module, pipeline="").text.count("\n")
    return lines, sum(isinstance(f, tir.PrimFunc) for f in module.functions.values())


def test_layers_share_kernels() -> None:
    """More layers of the same sizes are more calls, not more kernels, and a weight more is no code that checks it."""
    (few, kernels), (many, same) = code_size(2), code_size(10)
    assert same == kernels
    assert (many - few) / 16 < 120  # lines for a convolution and its normalisation, with five weights


# ---------------------------------------------------------------- LeNet

LENET = SAMPLES / "lenet"


@pytest.fixture(scope="module")
def recognise() -> Callable[..., Any]:
    return mlcc.load(mlcc.build(driver.parse_file(str(LENET / "lenet.mlc"))))["main"]


def digits() -> tuple[np.ndarray, np.ndarray]:
    """The test images and what they show."""
    folder = SAMPLES / "digits"
    return np.load(folder / "test.npz")["x"], np.load(folder / "labels.npz")["labels"]


def test_lenet_recognises_digits(recognise: Callable[..., Any]) -> None:
    x, labels = digits()
    scores = recognise(x)
    assert np.mean(scores.argmax(1) == labels) > 0.99
    want = script("lenet", "train").forward(x, dict(np.load(LENET / "lenet.npz")))[-1]
    np.testing.assert_allclose(scores, want, rtol=1e-4, atol=1e-4)
    for count in (0, 1, 7):
        np.testing.assert_allclose(recognise(x[:count]), scores[:count], rtol=1e-5, atol=1e-5)


def test_lenet_as_pytorch_has_it(recognise: Callable[..., Any]) -> None:
    torch = pytest.importorskip("torch")
    x, _ = digits()
    nn = torch.nn
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    weights = [value.T if name in ("w3", "w4") else value for name, value in np.load(LENET / "lenet.npz").items()]
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(torch.from_numpy(value))
        want = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(recognise(x), want, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- what the samples' commands do


def test_generate_writes_what_numpy_writes(decode: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Token by token with a cache, the decoder writes what NumPy writes without one."""
    monkeypatch.setitem(sys.modules, "model", decoder)
    program = script("decoder", "generate")
    found = program.generate(decode, program.PROMPT, 12)
    scores = decoder.reference(np.array([found]), decoder.weights())[0]
    assert found[len(program.PROMPT) :] == list(scores.argmax(-1)[len(program.PROMPT) - 1 : -1])


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_builds_and_runs_lenet(tmp_path: Path) -> None:
    tool = f"{sys.executable} -m mlcc"
    command = ["make", "-C", str(LENET), f"MLCC={tool}", f"PYTHON={sys.executable}", f"OUT={tmp_path}"]
    env = {**os.environ, "PYTHONPATH": str(SAMPLES.parent)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "accuracy on 360 test images: 99.44%" in done.stdout
