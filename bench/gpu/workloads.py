"""The timed workloads: graphs of one operator, with their work and the equivalent calls of peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np

import mlcc

SAMPLES = Path(__file__).resolve().parents[2] / "samples" / "tensor-cores"
Peer = Callable[..., Any]  # (torch, arrays...) -> a function that runs once


@dataclass(frozen=True)
class Workload:
    """A graph over `shapes`. `flops` of one run, or `bytes` that it has to move; `peer` names what others call it.

    `goal` is the part of the peer's speed (for `bytes`: of the copy bandwidth) that the project asks for. `script` is a
    schedule of samples/tensor-cores, for a product as the text there has it, and `least` the compute capability that it
    takes (`only`: and no other).
    """

    name: str
    body: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "float32"
    flops: float = 0.0
    bytes: float = 0.0
    peer: str = ""
    goal: float = 0.9
    script: str = ""
    least: tuple[int, int] = (0, 0)
    only: bool = False

    def runs_on(self, capability: tuple[int, int]) -> bool:
        return capability == self.least if self.only else capability >= self.least

    def module(self) -> mlcc.IRModule:
        """Return the module to compile: a graph of the operator, or of the sample kernel with its schedule applied."""
        if not self.script:
            return mlcc.parse(self.text)
        n = self.shapes[0][0]
        kernel = (SAMPLES / "matmul.mlc").read_text().replace("1024", str(n))
        graph = (
            f"@R.function\ndef main(x0: R.Tensor(({n}, {n}), 'bfloat16'), x1: R.Tensor(({n}, {n}), 'bfloat16')):\n"
            "    cls = Module\n    with R.dataflow():\n"
            f"        out = R.call_tir(cls.matmul, (x0, x1), R.Tensor(({n}, {n}), 'float32'))\n"
            "        R.output(out)\n    return out\n"
        )
        text = f"@I.ir_module\nclass Module:\n{indent(kernel + graph, '    ')}"
        return mlcc.apply_schedule(mlcc.parse(text), (SAMPLES / self.script).read_text())

    @property
    def text(self) -> str:
        params = ", ".join(f'x{i}: R.Tensor({shape}, "{self.dtype}")' for i, shape in enumerate(self.shapes))
        return (
            f"@I.ir_module\nclass Module:\n    @R.function\n    def main({params}):\n        with R.dataflow():\n"
            f"            out = {self.body}\n            R.output(out)\n        return out\n"
        )

    def arrays(self) -> list[np.ndarray]:
        """Return the inputs, bfloat16 as bit patterns."""
        rng = np.random.default_rng(0)
        inputs = [rng.standard_normal(s, dtype=np.float32) for s in self.shapes]
        if self.dtype == "bfloat16":
            return [(a.view(np.uint32) >> 16).astype(np.uint16) for a in inputs]
        return inputs


def product(n: int, dtype: str, goal: float) -> Workload:
    return Workload(
        f"matmul {n} {dtype}", "R.matmul(x0, x1)", ((n, n), (n, n)), dtype, flops=2.0 * n**3, peer="matmul", goal=goal
    )


def scheduled(n: int, script: str, least: tuple[int, int], only: bool = False) -> Workload:
    """Return a product of bfloat16 matrices with the schedule of a sample."""
    return Workload(
        f"matmul {n} bfloat16, {script}", "", ((n, n), (n, n)), "bfloat16", flops=2.0 * n**3, peer="matmul", goal=0.8,
        script=script, least=least, only=only,
    )  # fmt: skip


def workloads(quick: bool) -> list[Workload]:
    """Return all workloads, at small sizes if `quick`."""
    small = 4 if quick else 1
    rows, columns = 8192 // small, 8192
    size = 4.0 * rows * columns
    return [
        product(4096 // small, "float32", 0.9),
        product(8192 // small, "bfloat16", 0.8),
        scheduled(8192 // small, "mma-sync.mls", (8, 0)),
        scheduled(8192 // small, "wgmma.mls", (9, 0), only=True),
        Workload("add", "R.add(x0, x1)", ((rows, columns), (rows, columns)), bytes=3 * size, peer="add"),
        Workload("softmax", "R.nn.softmax(x0, axis=-1)", ((rows, columns),), bytes=2 * size, peer="softmax"),
        Workload(
            "layer norm", "R.nn.layer_norm(x0, x1, x2, axes=[-1])", ((rows, columns), (columns,), (columns,)),
            bytes=2 * size, peer="layer_norm",
        ),
    ]  # fmt: skip


def reference(work: Workload, arrays: list[np.ndarray], rows: int = 4) -> np.ndarray:
    """Return the first rows of the reference result in float64."""
    wide = [_wide(a) for a in arrays]
    match work.peer:
        case "matmul":
            return wide[0][:rows] @ wide[1]
        case "negate":
            return -wide[0][:rows]
        case "add":
            return wide[0][:rows] + wide[1][:rows]
        case "softmax":
            shifted = np.exp(wide[0][:rows] - wide[0][:rows].max(axis=1, keepdims=True))
            return shifted / shifted.sum(axis=1, keepdims=True)
        case "layer_norm":
            x = wide[0][:rows]
            return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * wide[1] + wide[2]
    raise AssertionError(work.peer)


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def widened(array: np.ndarray) -> np.ndarray:
    """Convert a result to float64, bfloat16 from its bit patterns."""
    return _wide(array)
