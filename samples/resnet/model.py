"""ResNet-18 for 64x64 images: its text, built in Python; its weights and expected results, computed with NumPy.

python model.py text        prints the text in resnet18.mlc
python model.py OUT         writes OUT/in.npz (x and the weights) and OUT/expected.npz (out)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule

EPSILON = 1e-5
Arrays = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]


def blocks(layers: Sequence[int], width: int) -> Iterator[tuple[str, int, int, int]]:
    """Name, channels in, channels out and stride of every residual block."""
    before = width
    for stage, count in enumerate(layers):
        after = width << stage
        for i in range(count):
            yield f"s{stage}b{i}", before, after, 2 if stage and not i else 1
            before = after


def parameters(layers: Sequence[int] = (2, 2, 2, 2), width: int = 64, classes: int = 1000) -> Shapes:
    """The shapes of the weights by name, in the order of the text."""
    shapes: Shapes = {}

    def conv(name: str, after: int, before: int, size: int) -> None:
        shapes[f"{name}_w"] = (after, before, size, size)
        shapes.update({f"{name}_{part}": (after,) for part in ("gamma", "beta", "mean", "var")})

    conv("stem", width, 3, 7)
    for name, before, after, stride in blocks(layers, width):
        conv(f"{name}_1", after, before, 3)
        conv(f"{name}_2", after, after, 3)
        if stride > 1 or before != after:
            conv(f"{name}_short", after, before, 1)
    last = width << len(layers) - 1
    shapes |= {"dense_w": (last, classes), "dense_b": (classes,)}
    return shapes


def text_module(layers: Sequence[int] = (2, 2, 2, 2), width: int = 64, classes: int = 1000, size: int = 64) -> IRModule:
    """The network as an mlcc module; batches of any size n."""
    from mlcc import relax, te

    shapes = parameters(layers, width, classes)
    n = te.var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((n, 3, size, size), "float32"))
    w = {name: relax.Var(name, relax.TensorStructInfo(shape, "float32")) for name, shape in shapes.items()}
    op = relax.op
    bb = relax.BlockBuilder()

    def conv(data: Any, name: str, stride: int = 1) -> Any:
        """Emit a convolution with same padding, and its batch normalization."""
        pad = shapes[f"{name}_w"][-1] // 2
        data = bb.emit(op.nn.conv2d(data, w[f"{name}_w"], strides=stride, padding=pad), f"{name}_conv")
        moments = [w[f"{name}_{part}"] for part in ("gamma", "beta", "mean", "var")]
        normalized = bb.emit(op.nn.batch_norm(data, *moments, axis=1, epsilon=EPSILON, training=False), f"{name}_norm")
        return normalized[0]

    with bb.function("main", [x, *w.values()]):
        with bb.dataflow():
            y = bb.emit(op.nn.relu(conv(x, "stem", 2)), "stem")
            y = bb.emit(op.nn.max_pool2d(y, pool_size=3, strides=2, padding=1), "pooled")
            for name, before, after, stride in blocks(layers, width):
                first = bb.emit(op.nn.relu(conv(y, f"{name}_1", stride)), f"{name}_first")
                second = conv(first, f"{name}_2")
                short = conv(y, f"{name}_short", stride) if stride > 1 or before != after else y
                y = bb.emit(op.nn.relu(op.add(second, short)), name)
            mean = bb.emit(op.mean(y, axis=[2, 3]), "mean")
            out = bb.emit_output(op.add(op.matmul(mean, w["dense_w"]), w["dense_b"]), "scores")
        bb.emit_func_output(out)
    return bb.get()


def weights(shapes: Shapes, seed: int = 8) -> Arrays:
    """Random weights that keep the activations of every layer near one."""
    random = np.random.default_rng(seed)
    arrays: Arrays = {}
    for name, shape in shapes.items():
        spread = np.sqrt(2 / np.prod(shape[1:])) if name.endswith("_w") else 0.1
        value = random.standard_normal(shape, np.float32) * np.float32(spread)
        arrays[name] = np.abs(value) + np.float32(1) if name.endswith(("_gamma", "_var")) else value
    return arrays


def windows(x: np.ndarray, size: int, stride: int, pad: int, value: float) -> np.ndarray:
    """Return the windows of a convolution or pool: (n, c, h, w, size, size)."""
    around = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=value)
    return np.lib.stride_tricks.sliding_window_view(around, (size, size), (2, 3))[:, :, ::stride, ::stride]


def reference(x: np.ndarray, w: Arrays, layers: Sequence[int] = (2, 2, 2, 2), width: int = 64) -> np.ndarray:
    """Compute the network with NumPy."""

    def conv(data: np.ndarray, name: str, stride: int = 1) -> np.ndarray:
        kernel = w[f"{name}_w"]
        seen = windows(data, kernel.shape[-1], stride, kernel.shape[-1] // 2, 0)
        out = np.tensordot(seen, kernel, ((1, 4, 5), (1, 2, 3)))  # (n, h, w, channels)
        out = (out - w[f"{name}_mean"]) / np.sqrt(w[f"{name}_var"] + EPSILON) * w[f"{name}_gamma"] + w[f"{name}_beta"]
        return out.transpose(0, 3, 1, 2)

    y = np.maximum(conv(x, "stem", 2), 0)
    y = windows(y, 3, 2, 1, -np.inf).max((-1, -2))
    for name, before, after, stride in blocks(layers, width):
        second = conv(np.maximum(conv(y, f"{name}_1", stride), 0), f"{name}_2")
        short = conv(y, f"{name}_short", stride) if stride > 1 or before != after else y
        y = np.maximum(second + short, 0)
    return y.mean((2, 3)) @ w["dense_w"] + w["dense_b"]


def main() -> None:
    if sys.argv[1] == "text":
        sys.stdout.write("# Made by `python model.py text`.\n" + text_module().script())
        return
    out = Path(sys.argv[1])
    out.mkdir(exist_ok=True)
    w = weights(parameters())
    x = np.random.default_rng(9).standard_normal((2, 3, 64, 64), np.float32)
    np.savez(out / "in.npz", x=x, **w)
    np.savez(out / "expected.npz", out=reference(x, w))


if __name__ == "__main__":
    main()
