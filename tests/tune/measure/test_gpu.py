"""Candidates for GPUs: scored by analysis, and checked by emulation, where there is no GPU."""

from __future__ import annotations

import types
from collections.abc import Iterator

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.device import ANALYSIS
from mlcc.machine.target import Target
from mlcc.tune.contracts import Status, Task
from mlcc.tune.engine import runner_for
from mlcc.tune.measure import gpu_worker
from mlcc.tune.measure.gpu import GpuRunner
from mlcc.tune.measure.gpu_worker import can_run
from tests.tune.measure.kernels import MM_RELU, func_of, mm_relu

TURING = Target.parse("cuda{arch=sm_75}")


@pytest.fixture(scope="module")
def runner() -> Iterator[GpuRunner]:
    with GpuRunner(on_gpu=False) as made:
        yield made


def tiled(module: IRModule, across: int, down: int) -> tir.PrimFunc:
    """Blocks of `across` x `down` threads, an element of the result for each."""
    sch = mlcc.Schedule(module)
    for name in ("Y", "C"):
        i, j, *_ = sch.get_loops(sch.get_block(name))
        rows, row = sch.split(i, [None, down])
        columns, column = sch.split(j, [None, across])
        sch.reorder(rows, columns, row, column)
        for loop, axis in zip((rows, columns, row, column), ("blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"),
                              strict=True):  # fmt: skip
            sch.bind(loop, axis)
    return func_of(sch.mod)


def task(module: IRModule) -> Task:
    return Task("0" * 32, ("main",), func_of(module), TURING)


def test_an_analysis_ranks_candidates(runner: GpuRunner) -> None:
    module = mm_relu(64, 64, 64)
    usual = tiled(module, 32, 2)
    same, strided, few, many = runner.measure(
        task(module), usual, [tiled(module, 32, 2), tiled(module, 2, 32), tiled(module, 1, 1), tiled(module, 64, 64)], 3
    )
    assert same.status is Status.OK and same.ratios == (1.0,) * 3 and same.why == "by analysis"
    assert strided.ratios[0] > 1.005, "rows across threads: more sectors of memory"
    assert few.ratios[0] > 3, "a thread in each block"
    assert many.status is Status.REFUSED and "threads" in many.why


def test_shared_memory_that_no_block_has_is_refused(runner: GpuRunner) -> None:
    module = mm_relu(64, 64, 512)
    sch = mlcc.Schedule(module)
    block = sch.get_block("Y")
    copy = sch.cache_read(block, 0, "shared")
    rows, row = sch.split(sch.get_loops(block)[0], [None, 64])
    sch.bind(rows, "blockIdx.x")
    sch.bind(row, "threadIdx.x")
    sch.compute_at(copy, rows)  # 64 x 512 floats
    sch.bind(sch.get_loops(sch.get_block("C"))[0], "blockIdx.x")
    (found,) = runner.measure(task(module), tiled(module, 32, 2), [func_of(sch.mod)], 3)
    assert found.status is Status.REFUSED and "shared memory" in found.why


def test_the_results_of_finalists_are_checked(runner: GpuRunner) -> None:
    module = mm_relu(32, 32, 16)
    text = MM_RELU.replace("T.grid(N, M, K)", "T.grid(N, M, K - 1)")
    wrong = mlcc.parse(text.replace("N", "32").replace("M", "32").replace("K", "16"))
    right, other = runner.measure(task(module), tiled(module, 32, 2), [tiled(module, 16, 4), tiled(wrong, 32, 2)], 20)
    assert right.status is Status.OK and len(right.ratios) == 20
    assert other.status is Status.WRONG and "`C`" in other.why


def test_a_gpu_that_cannot_run_the_code_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is scored by analysis is recorded as that, also where there is another GPU."""
    monkeypatch.setattr(gpu_worker, "has_gpu", lambda: True)
    monkeypatch.setattr(gpu_worker.host, "gpu", lambda: types.SimpleNamespace(capability=(7, 5)))
    with runner_for(Target.parse("cuda{arch=sm_90}")) as made:  # type: ignore[attr-defined]
        assert made.device == ANALYSIS
    with runner_for(TURING) as made:  # type: ignore[attr-defined]
        assert made.device is None


@pytest.mark.gpu
def test_a_gpu_measures() -> None:
    if not can_run(Target.parse("cuda{arch=sm_75}")):  # type: ignore[arg-type]
        pytest.skip("needs an NVIDIA GPU")
    module = mm_relu(64, 64, 64)
    with GpuRunner() as here:
        found = here.measure(task(module), tiled(module, 32, 2), [tiled(module, 32, 4), tiled(module, 1, 1)], 5)
    assert [o.status for o in found] == [Status.OK] * 2
    assert found[1].ratios[0] > 1
