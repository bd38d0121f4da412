"""The suite: texts, which of their parameters are weights, and arrays for them from a seed."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bench.speed.graph import Graph, read_graph
from bench.speed.texts import Text, bmm_relu, conv, elementwise, encoder, layer_norm, matmul, mlp, resnet18, softmax


@dataclass(frozen=True)
class Workload:
    """One line of the table. `make` writes its text; which of its parameters are weights, the text says."""

    name: str
    make: Callable[[], Text]

    @functools.cached_property
    def text(self) -> Text:
        return self.make()

    @functools.cached_property
    def graph(self) -> Graph:
        return read_graph(self.text.source)

    def arrays(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Return inputs and weights by name, the same in every run; activations keep their magnitude in deep models."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        inputs, weights = {}, {}
        for name, shape in self.graph.params.items():
            if name in self.text.weights:
                fan_in = int(np.prod(shape[1:] if len(shape) == 4 else shape[:-1]))
                scale = 1 / max(1.0, fan_in) ** 0.5 if len(shape) > 1 else 0.5
                weights[name] = random.normal(0, scale, shape).astype(np.float32)
            else:
                inputs[name] = random.normal(0, 1, shape).astype(np.float32)
        return inputs, weights


LISTED: tuple[Workload, ...] = (
    *(Workload(f"matmul_{n}", functools.partial(matmul, n, n, n)) for n in (128, 512, 1024, 2048)),
    Workload("mm_relu_128", functools.partial(matmul, 128, 128, 128, relu=True)),
    Workload("bmm_relu_16x128", functools.partial(bmm_relu, 16, 128, 128, 128)),
    Workload("mlp_1", functools.partial(mlp, 1)),
    Workload("mlp_64", functools.partial(mlp, 64)),
    Workload("conv2d_3x3", functools.partial(conv, 64, 64, 56, 3)),
    Workload("conv2d_depthwise", functools.partial(conv, 128, 128, 56, 3, groups=128)),
    Workload("conv2d_1x1", functools.partial(conv, 256, 64, 56, 1)),
    Workload("softmax_128x1024", functools.partial(softmax, 128, 1024)),
    Workload("layer_norm_128x768", functools.partial(layer_norm, 128, 768)),
    Workload("gelu_1M", functools.partial(elementwise, 1024, 1024)),
    Workload("resnet18", resnet18),
    Workload("encoder_4x256", functools.partial(encoder, 4, 256, 4, 1024, 128)),
)
PRIMES = (7, 11, 13, 17, 31, 53, 67, 97, 101, 127, 149, 211, 257, 307, 401, 499, 521, 641, 797, 1009, 1277)


def drawn(seed: int) -> list[Workload]:
    """Return unusual shapes: primes, thin and flat ones, odd strides and paddings."""
    random = np.random.default_rng(seed)

    def prime(low: int, high: int) -> int:
        return int(random.choice([p for p in PRIMES if low <= p <= high]))

    workloads: list[Workload] = []

    def add(kind: str, sizes: tuple[int, ...], make: Callable[[], Text]) -> None:
        workloads.append(Workload(f"odd{seed}_{kind}_{'x'.join(map(str, sizes))}", make))

    for kind, low, high in (("matmul", 31, 257), ("matmul", 257, 1009)):
        m, k, n = (prime(low, high) for _ in range(3))
        add(kind, (m, k, n), functools.partial(matmul, m, k, n))
    m, k, n = int(random.integers(1, 12)), prime(211, 1277), prime(211, 1277)
    add("flat", (m, k, n), functools.partial(matmul, m, k, n))
    m, k, n = prime(211, 1277), prime(211, 1277), int(random.integers(1, 12))
    add("thin", (m, k, n), functools.partial(matmul, m, k, n))
    m, k, n = prime(31, 257), prime(211, 1277), prime(31, 257)
    add("matmul_t", (m, k, n), functools.partial(matmul, m, k, n, transposed=True))
    k, n = prime(401, 1277), prime(401, 1277)
    add("gemv", (1, k, n), functools.partial(matmul, 1, k, n))
    b, m, k, n = prime(7, 17), prime(31, 127), prime(31, 127), prime(31, 127)
    add("bmm", (b, m, k, n), functools.partial(bmm_relu, b, m, k, n))
    for stride in (2, 3):
        c, o, size, kernel = prime(7, 67), prime(7, 97), prime(31, 67), int(random.choice((2, 3, 5)))
        pad = int(random.integers(0, 3))
        add(f"conv_s{stride}p{pad}k{kernel}", (c, o, size),
            functools.partial(conv, c, o, size, kernel, stride=stride, padding=pad))  # fmt: skip
    c, size = prime(31, 127), prime(31, 67)
    add("depthwise_s2", (c, size), functools.partial(conv, c, c, size, 3, groups=c, stride=2))
    m, n = prime(31, 257), prime(211, 1277)
    add("softmax", (m, n), functools.partial(softmax, m, n))
    m, n = prime(31, 257), prime(211, 1277)
    add("layer_norm", (m, n), functools.partial(layer_norm, m, n))
    m, n = prime(211, 1277), prime(211, 1277)
    add("gelu", (m, n), functools.partial(elementwise, m, n))
    return workloads


def suite(seeds: tuple[int, ...]) -> list[Workload]:
    """Return the listed workloads and those drawn from each seed."""
    return [*LISTED, *(w for seed in seeds for w in drawn(seed))]
