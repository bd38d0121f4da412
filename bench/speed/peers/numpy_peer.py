"""NumPy with its OpenBLAS; also the judge of all others, in float64."""

from __future__ import annotations

import ctypes
import glob
import math
import os
from typing import Any

import numpy as np

from bench.speed.graph import Graph, Node
from bench.speed.peers.base import Arrays, Kept, Peer, Ready, Work


def erf(x: np.ndarray) -> np.ndarray:
    """To 1.5e-7 for float32 (Abramowitz and Stegun 7.1.26), exactly for float64."""
    if x.dtype == np.float64:
        return np.vectorize(math.erf, otypes=[np.float64])(x)
    t = 1 / (1 + np.float32(0.3275911) * np.abs(x))
    poly = np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = poly * t + np.float32(factor)
    return np.copysign(1 - poly * t * np.exp(-x * x), x)


def windows(x: np.ndarray, kernel: tuple[int, ...], strides: tuple[int, ...], padding: Any, fill: float) -> np.ndarray:
    """(n, c, h, w, kh, kw): the windows of the last two axes."""
    top, left, bottom, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    seen = np.lib.stride_tricks.sliding_window_view(x, kernel, axis=(2, 3))
    return seen[:, :, :: strides[0], :: strides[1]]


def conv2d(x: np.ndarray, w: np.ndarray, strides: tuple[int, ...], padding: Any, groups: int) -> np.ndarray:
    """As a product over unfolded windows; depthwise as a sum over them."""
    outer, inner, high, wide = w.shape
    seen = windows(x, (high, wide), strides, padding, 0)
    n, _, rows, columns = seen.shape[:4]
    if inner == 1 and groups == outer:
        return np.einsum("nchwij,cij->nchw", seen, w[:, 0])
    if groups != 1:
        raise NotImplementedError("grouped convolutions")
    flat = seen.transpose(0, 2, 3, 1, 4, 5).reshape(n * rows * columns, -1)
    return (flat @ w.reshape(outer, -1).T).reshape(n, rows, columns, outer).transpose(0, 3, 1, 2)


def evaluate(node: Node, values: Arrays) -> np.ndarray:
    """One operator."""
    args = [values[a] if isinstance(a, str) else a for a in node.args]
    attrs: Any = node.attrs
    x = args[0]
    match node.op:
        case "matmul":
            return x @ args[1]
        case "add":
            return x + args[1]
        case "multiply":
            return x * args[1]
        case "nn.relu":
            return np.maximum(x, 0)
        case "clip":
            return np.clip(x, args[1], args[2])
        case "nn.gelu":
            return x * (x.dtype.type(0.5) * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))))
        case "nn.softmax":
            power = np.exp(x - x.max(axis=attrs["axis"], keepdims=True))
            return power / power.sum(axis=attrs["axis"], keepdims=True)
        case "nn.layer_norm":
            centred = x - x.mean(axis=-1, keepdims=True)
            scale = 1 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + x.dtype.type(attrs["epsilon"]))
            return centred * scale * args[1] + args[2]
        case "nn.conv2d":
            return conv2d(x, args[1], attrs["strides"], attrs["padding"], attrs["groups"])
        case "nn.max_pool2d":
            return windows(x, attrs["pool_size"], attrs["strides"], attrs["padding"], -np.inf).max(axis=(4, 5))
        case "mean":
            return x.mean(axis=tuple(attrs["axis"]), keepdims=attrs["keepdims"])
        case "reshape":
            return x.reshape(args[1])
        case "permute_dims":
            return x.transpose(attrs["axes"])
    raise NotImplementedError(node.op)


def run(graph: Graph, given: Arrays) -> np.ndarray:
    """The whole graph."""
    values = dict(given)
    for node in graph.nodes:
        values[node.out] = evaluate(node, values)
    return values[graph.result]


def reference(graph: Graph, given: Arrays) -> np.ndarray:
    """Return the reference result, computed in float64."""
    return run(graph, {name: value.astype(np.float64) for name, value in given.items()})


def core_name() -> str:
    """The kernels that NumPy's OpenBLAS picked for this CPU; "" where it does not say."""
    folder = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for path in glob.glob(os.path.join(folder, "*openblas*")):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename"):
            function = getattr(library, name, None)
            if function is not None:
                function.restype = ctypes.c_char_p
                return str(function().decode())
    return ""


class NumPy:
    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__, "openblas_get_corename": core_name()}

    def prepare(self, work: Work) -> Ready:
        given = {**work.inputs, **work.weights}
        graph = work.graph
        if [n.op for n in graph.nodes] == ["matmul"]:
            a, b = (given[name] for name in graph.nodes[0].args)
            out = np.empty(graph.nodes[0].shape, np.float32)
            return Ready(lambda: np.matmul(a, b, out=out), lambda: out)
        kept = Kept(lambda: run(graph, given))
        return Ready(kept, lambda: np.asarray(kept.value))


def make(threads: int) -> Peer:
    return NumPy()  # its threads come from OPENBLAS_NUM_THREADS
