"""Kernels of sizes unknown at compile time against the same kernels compiled for each size, and against PyTorch.

`python -m bench dynamic [--only NAMES] [--sizes N,N] [--rounds N] [--peers torch] [--write]`: for each kernel and size,
microseconds with the size unknown, its ratio to the time of the kernel compiled for this size, and PyTorch's time as a
multiple of it. CPU time of one thread, all measured in one run, in turns. `--write` writes them into
docs/dynamic-shapes.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import mlcc
from bench.measure import machine

SIZES = (1, 2, 7, 32, 100, 1000)
MIN_SAMPLE = 2e-3  # seconds of calls in a sample
PAGE = Path(__file__).resolve().parent.parent / "docs" / "dynamic-shapes.md"
START, END = "<!-- what follows is written by `python -m bench dynamic --write` -->", "<!-- end of dynamic shapes -->"

Shape = tuple[int | str, ...]
Times = dict[str, list[float]]  # by competitor: seconds of a call in each round


@dataclass(frozen=True)
class Case:
    """A kernel of a size `n`: its parameters, result and bindings; `weights` are known at compile time.

    `torch` computes the same from tensors, given torch and the parameters by name. Sizes above `largest` are left out.
    """

    name: str
    params: dict[str, Shape]
    result: Shape
    body: str
    torch: Callable[..., Any]
    weights: tuple[str, ...] = ()
    largest: int = 1000

    def source(self, size: int | None) -> str:
        """Return the text for a size, or for an unknown one."""

        def info(shape: Shape) -> str:
            extents = ", ".join(('"n"' if size is None else str(size)) if e == "n" else str(e) for e in shape)
            return f'R.Tensor(({extents}{"," if len(shape) == 1 else ""}), "float32")'

        params = ", ".join(f"{name}: {info(shape)}" for name, shape in self.params.items())
        *bindings, last = self.body.split("; ")
        lines = [f"@R.function\ndef main({params}) -> {info(self.result)}:", *bindings, f"return {last}"]
        return "\n    ".join(lines) + "\n"

    def arrays(self, size: int) -> dict[str, np.ndarray]:
        """Return arrays for all parameters, the same in every run."""
        random = np.random.default_rng(0)
        fixed = {n: s for n, s in self.params.items() if "n" not in s}
        sized = {n: s for n, s in self.params.items() if n not in fixed}
        return {
            name: random.normal(0, 1 if name in sized else 0.05, [size if e == "n" else e for e in shape]).astype("f4")
            for name, shape in {**fixed, **sized}.items()
        }


CASES = (
    Case(
        "dense, constant weights", {"x": ("n", 512), "w": (512, 512)}, ("n", 512), "h = R.matmul(x, w); R.nn.relu(h)",
        lambda torch, x, w: torch.relu_(torch.mm(x, w)), ("w",),
    ),
    Case(
        "dense", {"x": ("n", 512), "w": (512, 512)}, ("n", 512), "h = R.matmul(x, w); R.nn.relu(h)",
        lambda torch, x, w: torch.relu_(torch.mm(x, w)),
    ),
    Case(
        "linear, constant weights", {"x": ("n", 768), "w": (1000, 768), "b": (1000,)}, ("n", 1000),
        "t = R.permute_dims(w); h = R.matmul(x, t); R.add(h, b)",
        lambda torch, x, w, b: torch.nn.functional.linear(x, w, b), ("w", "b"),
    ),
    Case(
        "linear", {"x": ("n", 512), "w": (512, 512), "b": (512,)}, ("n", 512),
        "t = R.permute_dims(w); h = R.matmul(x, t); R.add(h, b)",
        lambda torch, x, w, b: torch.nn.functional.linear(x, w, b),
    ),
    Case(
        "batched product", {"x": ("n", 64, 64), "w": ("n", 64, 64)}, ("n", 64, 64), "R.matmul(x, w)",
        lambda torch, x, w: torch.bmm(x, w),
    ),
    Case(
        "scores", {"q": (8, "n", 64), "k": (8, "n", 64)}, (8, "n", "n"),
        "t = R.permute_dims(k, axes=[0, 2, 1]); R.matmul(q, t)",
        lambda torch, q, k: torch.bmm(q, k.transpose(1, 2)),
    ),
    Case(
        "weighted values", {"s": (8, "n", "n"), "v": (8, "n", 64)}, (8, "n", 64), "R.matmul(s, v)",
        lambda torch, s, v: torch.bmm(s, v),
    ),
    Case(
        "attention", {"q": (1, "n", 8, 64), "k": (1, "n", 8, 64), "v": (1, "n", 8, 64)}, (1, "n", 8, 64),
        "R.nn.attention(q, k, v)",
        lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        ),
    ),
    Case(
        "convolution 3x3", {"x": ("n", 32, 28, 28), "w": (32, 32, 3, 3)}, ("n", 32, 28, 28),
        "h = R.nn.conv2d(x, w, padding=1); R.nn.relu(h)",
        lambda torch, x, w: torch.relu_(torch.nn.functional.conv2d(x, w, padding=1)), ("w",), 100,
    ),
    Case(
        "convolution 1x1, stride 2", {"x": ("n", 64, 14, 14), "w": (64, 64, 1, 1)}, ("n", 64, 7, 7),
        "R.nn.conv2d(x, w, strides=2)",
        lambda torch, x, w: torch.nn.functional.conv2d(x, w, stride=2), ("w",),
    ),
    Case(
        "softmax", {"x": ("n", 1000)}, ("n", 1000), "R.nn.softmax(x, axis=-1)",
        lambda torch, x: torch.softmax(x, -1),
    ),
    Case(
        "softmax of n", {"x": (64, "n")}, (64, "n"), "R.nn.softmax(x, axis=-1)",
        lambda torch, x: torch.softmax(x, -1),
    ),
    Case(
        "layer norm", {"x": ("n", 768), "g": (768,), "b": (768,)}, ("n", 768),
        "R.nn.layer_norm(x, g, b, axes=[-1], epsilon=1e-5)",
        lambda torch, x, g, b: torch.nn.functional.layer_norm(x, (768,), g, b),
    ),
    Case(
        "rms norm", {"x": ("n", 768), "g": (768,)}, ("n", 768), "R.nn.rms_norm(x, g, axes=[-1], epsilon=1e-5)",
        lambda torch, x, g: torch.nn.functional.rms_norm(x, (768,), g, 1e-5),
    ),
    Case("gelu", {"x": ("n", 768)}, ("n", 768), "R.nn.gelu(x)", lambda torch, x: torch.nn.functional.gelu(x)),
    Case(
        "MLP of 3 layers", {"x": ("n", 256), "u": (256, 512), "v": (512, 512), "w": (512, 64), "b": (512,)}, ("n", 64),
        "a = R.matmul(x, u); c = R.nn.relu(R.add(a, b)); d = R.nn.relu(R.matmul(c, v)); R.matmul(d, w)",
        lambda torch, x, u, v, w, b: torch.relu(torch.relu(torch.addmm(b, x, u)) @ v) @ w, ("u", "v", "w", "b"),
    ),
)  # fmt: skip


def compiled(case: Case, size: int | None) -> Any:
    """Compile a case for a size, or for an unknown one, and load it."""
    module = mlcc.parse(case.source(size))
    if case.weights:
        arrays = case.arrays(1)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(Path(folder) / "weights.npz", **{name: arrays[name] for name in case.weights})
            module = mlcc.run_passes(module, "bind-params{params=weights.npz}", folder=folder)
            return mlcc.load(mlcc.build(module, "llvm{cpu=native}"))["main"]
    return mlcc.load(mlcc.build(module, "llvm{cpu=native}"))["main"]


def measure(case: Case, unknown: Any, size: int, rounds: int, torch: Any = None) -> Times:
    """Time a case at one size in turns: `unknown`, compiled for any size, a kernel compiled for this one, PyTorch.

    Raises ValueError if their results differ.
    """
    arrays = case.arrays(size)
    inputs = [arrays[name] for name in case.params if name not in case.weights]
    results = {
        name: np.empty([size if e == "n" else int(e) for e in case.result], "f4") for name in ("static", "dynamic")
    }
    calls: dict[str, Callable[[], object]] = {
        "static": compiled(case, size).bind(*inputs, out=results["static"]),
        "dynamic": unknown.bind(*inputs, out=results["dynamic"]),
    }
    if torch is not None:
        tensors = {name: torch.from_numpy(a) for name, a in arrays.items()}
        calls["torch"] = lambda: case.torch(torch, **tensors)
    numbers = {}
    for name, call in calls.items():
        call()
        begin = time.process_time()
        call()
        numbers[name] = max(1, round(MIN_SAMPLE / max(time.process_time() - begin, 1e-7)))
    if not np.allclose(results["static"], results["dynamic"], rtol=1e-4, atol=1e-4):
        raise ValueError(f"{case.name} of size {size}: results differ")
    times: Times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.process_time()
            for _ in range(numbers[name]):
                call()
            times[name].append((time.process_time() - begin) / numbers[name])
    return times


def ratio(times: Times, over: str, under: str) -> float:
    """Return the median over rounds of the ratio of two competitors' times."""
    return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))


def cell(times: Times) -> str:
    """Return the figures of one size: microseconds, the ratio to the compiled size, and PyTorch's to it."""
    parts = [f"{statistics.median(times['dynamic']) * 1e6:.0f}", f"**{ratio(times, 'dynamic', 'static'):.2f}**"]
    return " / ".join([*parts, *([f"{ratio(times, 'torch', 'dynamic'):.2f}"] if "torch" in times else [])])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark described in the module docstring."""
    parser = argparse.ArgumentParser(prog="python -m bench dynamic")
    parser.add_argument("--only", default="", help="kernels whose names contain one of these, separated by commas")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", default="torch")
    parser.add_argument("--write", action="store_true", help="write the table into docs/dynamic-shapes.md")
    given = parser.parse_args(argv)
    os.environ["MLCC_NUM_THREADS"] = "1"
    torch = None
    if given.peers:
        import torch as module

        torch = module
        torch.set_num_threads(1)
    sizes = [int(size) for size in given.sizes.split(",")]
    lines = [f"| kernel | {' | '.join(map(str, sizes))} |", f"| --- |{' ---: |' * len(sizes)}"]
    print(f"{machine()}; CPU time of one thread\n" + "\n".join(lines), flush=True)
    for case in CASES:
        if any(word in case.name for word in given.only.split(",")):
            unknown = compiled(case, None)
            timed = [n for n in sizes if n <= case.largest]
            cells = [cell(measure(case, unknown, n, given.rounds, torch)) for n in timed]
            lines.append(f"| {case.name} | {' | '.join([*cells, *[''] * (len(sizes) - len(timed))])} |")
            print(lines[-1], flush=True)
    if given.write:
        head = f"{datetime.date.today().isoformat()}, {machine()}, CPU time of one thread, {given.rounds} rounds."
        before, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text("\n".join([before + START, "", head, "", *lines, "", END + rest.partition(END)[2]]))
    return 0
