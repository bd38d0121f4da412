"""Slower schedules do not replace the default, however noisy the machine: by noise that was recorded, and for real.

`noise.json` has ratios of a kernel to itself, by the time of one call and the clock, ten from each process in turn: as
the local runner measured them on two cores with a load of 16.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import pytest

from mlcc import Schedule, parse
from mlcc.ir import tir
from mlcc.tune.contracts import Status, Task
from mlcc.tune.kernel_search import ACCEPT_BOUND, FINAL_SAMPLES
from mlcc.tune.measure.local import LocalRunner
from mlcc.tune.ratio_statistics import median_ratio, ratio_upper_bound
from tests.tune.measure.kernels import NATIVE, func_of

NOISE: dict[str, list[float]] = json.loads(Path(__file__).with_name("noise.json").read_text())
PROCESS = 10  # samples of one process
TRIALS = 1000


def drawn(noise: Sequence[float], truth: float, count: int, rng: random.Random) -> list[float]:
    """Ratios of a kernel that takes `truth` times as long as the default: processes that were recorded, at random."""

    def processes() -> Iterator[float]:
        while True:
            at = rng.randrange(len(noise) // PROCESS) * PROCESS
            yield from noise[at : at + PROCESS]

    return [truth * ratio for ratio, _ in zip(processes(), range(count), strict=False)]


def replaced(noise: Sequence[float], truth: float, seed: int) -> float:
    """How often such a kernel replaces the default, on fresh samples."""
    rng = random.Random(seed)
    found = sum(ratio_upper_bound(drawn(noise, truth, FINAL_SAMPLES, rng)) < ACCEPT_BOUND for _ in range(TRIALS))
    return found / TRIALS


@pytest.mark.parametrize("setting", NOISE)
def test_slower_twins_do_not_replace_the_default(setting: str) -> None:
    for truth in (1.03, 1.1):
        assert replaced(NOISE[setting], truth, 1) < 0.01


@pytest.mark.parametrize("setting", [s for s in NOISE if s != "3 ms, wall time"])
def test_faster_ones_do(setting: str) -> None:
    assert replaced(NOISE[setting], 0.9, 2) > 0.85


@pytest.mark.parametrize("setting", NOISE)
def test_the_luckiest_of_many_slower_ones_does_not_either(setting: str) -> None:
    """The best of 36 on a few samples is measured afresh, so that its luck does not count."""
    rng, noise = random.Random(3), NOISE[setting]
    false = 0
    for _ in range(200):
        best = min(median_ratio(drawn(noise, 1.03, 3, rng)) for _ in range(36))
        false += best < ACCEPT_BOUND and ratio_upper_bound(drawn(noise, 1.03, FINAL_SAMPLES, rng)) < ACCEPT_BOUND
    assert false / 200 < 0.01


TWIN = """
@T.prim_func
def main(A: T.Buffer((100, 64), "float32"), B: T.Buffer((64, 128), "float32"), C: T.Buffer((100, 128), "float32")):
    T.func_attr({"tir.noalias": True})
    X = T.alloc_buffer((100, 128), "float32")
    Y = T.alloc_buffer((100, 128), "float32")
    for i, j, k in T.grid(EXTRA, 128, 64):
        with T.block("X"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                X[vi, vj] = T.float32(0)
            X[vi, vj] = X[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j, k in T.grid(100, 128, 64):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(100, 128):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.if_then_else(vi < EXTRA, T.max(X[vi, vj], Y[vi, vj]), Y[vi, vj])
"""


def matmul_with_extra_work(extra: int) -> tir.PrimFunc:
    """A @ B of 100 rows, of which the first `extra` are computed twice."""
    sch = Schedule(parse(TWIN.replace("EXTRA", str(extra))))
    for name in ("X", "Y"):
        block = sch.get_block(name)
        i, j, k = sch.get_loops(block)
        across, lanes = sch.split(j, [None, 64])
        sch.reorder(i, across, k, lanes)
        sch.vectorize(lanes)
        sch.decompose_reduction(block, k)
    return func_of(sch.mod)


@pytest.mark.parametrize("extra", [3, 10])
def test_slightly_slower_kernels_are_found(pytestconfig: pytest.Config, extra: int) -> None:
    """A kernel that does 3 or 10 percent more, against itself that does not; `--all-cases` asks 200 times."""
    campaigns = 200 if pytestconfig.getoption("--all-cases") else 2
    usual, slower = matmul_with_extra_work(0), matmul_with_extra_work(extra)
    task = Task("0" * 32, ("main",), func_of(parse(TWIN.replace("EXTRA", "0"))), NATIVE)
    with LocalRunner() as runner:
        found = [runner.measure(task, usual, [slower], FINAL_SAMPLES)[0] for _ in range(campaigns)]
    assert all(one.status is Status.OK for one in found)
    assert sum(ratio_upper_bound(one.ratios) < ACCEPT_BOUND for one in found) <= campaigns // 100
    assert median(median_ratio(one.ratios) for one in found) > 1 + extra / 400
