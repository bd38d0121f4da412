"""Candidates for GPUs: scored by analysis, and checked by emulation, where there is no GPU."""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import replace

import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine import device
from mlcc.machine.device import ANALYSIS, is_gpu, measured_on
from mlcc.machine.target import Target
from mlcc.records.choice import choose
from mlcc.records.database import MEMORY, Database
from mlcc.tune.contracts import Status, Task
from mlcc.tune.measure.gpu import GpuRunner
from mlcc.tune.recorded_runner import task_setting
from tests.tune.measure.kernels import MM_RELU, func_of, mm_relu
from tests.tune.test_database import SETTING, record

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


@pytest.mark.parametrize(("arch", "runs"), [("sm_75", True), ("sm_89", True), ("sm_90", False), ("sm_100a", False)])
def test_a_gpu_that_cannot_run_the_code_measures_nothing(
    arch: str, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is scored by analysis is recorded as that, also where there is another GPU."""
    monkeypatch.setattr(device.host, "gpu", lambda: types.SimpleNamespace(capability=(8, 9), sizes={"l2": 1}))
    target = Target.parse(f"cuda{{arch={arch}}}")
    own = task_setting(replace(task(mm_relu(8, 8, 8)), target=target, threads=4))
    assert is_gpu(own.device) is runs and (own.device == ANALYSIS) is not runs
    assert own.threads == 1, "how many threads this machine has is nothing to a GPU"


def test_what_a_gpu_measured_decides() -> None:
    """An analysis, made where there is no GPU, replaces nothing that a GPU measured, and is no record for one."""
    analysed = record("a", 0.5, setting=replace(SETTING, device=ANALYSIS, target="cuda{arch=sm_90}"))
    measured = record("m", 0.8, setting=replace(analysed.setting, device="cuda sm_90 0a1b2c3d"))
    with Database(MEMORY) as database:
        database.add([analysed])
        assert choose(database, "w1", analysed.setting).record == analysed
        assert choose(database, "w1", measured.setting).record is None
        database.add([replace(measured, candidate="slow", ratio=1.0, bound=1.01)])
        assert choose(database, "w1", analysed.setting).why == "nothing better was found"
        database.add([measured])
        assert choose(database, "w1", analysed.setting).record == measured
        assert choose(database, "w1", measured.setting).record == measured


@pytest.mark.gpu
def test_a_gpu_measures() -> None:
    if measured_on(TURING) == ANALYSIS:
        pytest.skip("needs an NVIDIA GPU")
    module = mm_relu(64, 64, 64)
    with GpuRunner() as here:
        found = here.measure(task(module), tiled(module, 32, 2), [tiled(module, 32, 4), tiled(module, 1, 1)], 5)
    assert [o.status for o in found] == [Status.OK] * 2
    assert found[1].ratios[0] > 1
