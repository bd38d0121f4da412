"""Tuning by TVM's functions, with a runner whose times follow from decisions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import tune as ms
from mlcc.ir import tir
from mlcc.ir.hashing import structural_hash
from mlcc.machine.target import Target
from mlcc.records.database import Database
from mlcc.tune.contracts import Outcome, Status, Task
from tests.tune.landscapes import matmul

TARGET = "llvm --num-cores=1"


class HashRunner:
    """Says of each function a time that follows from its hash; counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def measure(
        self, task: Task, baseline: tir.PrimFunc, candidates: Sequence[tir.PrimFunc], samples: int
    ) -> list[Outcome]:
        self.asked += len(candidates)
        ratios = [1.0 if c is baseline else 0.5 + structural_hash(c) % 1000 / 500 for c in candidates]
        return [Outcome(Status.OK, (r * 1e-3,) * samples, (r,) * samples) for r in ratios]

    def close(self) -> None:
        """Nothing to end."""


def tiles(sch: Any) -> None:
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    outer, inner = sch.split(j, factors=sch.sample_perfect_tile(j, n=2))
    sch.reorder(i, outer, k, inner)
    sch.decompose_reduction(block, k)


SCRIPT = """
def tiles(sch):
    i, j, k = sch.get_loops("C")
    outer, inner = sch.split(j, factors=sch.sample_perfect_tile(j, n=2))
    sch.reorder(i, outer, k, inner)
"""


@pytest.mark.parametrize("space", [ms.space_generator.ScheduleFn(tiles), tiles, SCRIPT, "post-order-apply"])
def test_best_schedule_is_stored(space: Any, tmp_path: Path) -> None:
    mod = matmul()
    database = ms.tune_tir(
        mod=mod, target=TARGET, max_trials_global=8, num_trials_per_iter=8, space=space, runner=HashRunner(),
        work_dir=str(tmp_path), cost_model="random",
    )  # fmt: skip
    records = database.get_all_tuning_records()
    best = ms.tir_integration.compile_tir(database, mod, TARGET)
    assert best is not None and "sample_perfect_tile" in str(best.trace)
    assert min(r.seconds for r in records) == database.query_tuning_record(mod, TARGET).seconds
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    assert [r.seconds for r in again.get_all_tuning_records()] == [r.seconds for r in records]
    mlcc.assert_structural_equal(again.query_ir_module(mod, TARGET), best.mod)


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    runner = HashRunner()
    made = [
        ms.tune_tir(matmul(), TARGET, str(tmp_path), 16, runner=runner, database=ms.database.MemoryDatabase(), seed=3)
        for _ in range(2)
    ]
    counts = [len(database) for database in made]
    assert counts[0] == counts[1] and runner.asked < 2 * counts[0] + 16
    traces = [str(database.query_tuning_record(matmul(), TARGET).trace) for database in made]
    assert traces[0] == traces[1]


def test_what_another_machine_measured_is_not_in_the_database(tmp_path: Path) -> None:
    class Elsewhere(HashRunner):
        device = "a machine far away"

    class Twice(HashRunner):
        def measure(self, *given: Any) -> list[Outcome]:
            return [replace(o, ratios=tuple(2 * r for r in o.ratios)) for o in super().measure(*given)]

    counts = []
    for runner, trials in ((Elsewhere(), 32), (Twice(), 8)):
        database = ms.database.MemoryDatabase()
        ms.tune_tir(matmul(), TARGET, str(tmp_path), trials, runner=runner, database=database, seed=3)
        counts.append(len(database))
    with Database(str(tmp_path / "tune.db")) as records:
        own = {r.candidate for r in records.records() if r.setting.device != Elsewhere.device}
    assert counts[1] == len(own) < counts[0]


def test_analysed_schedules_come_behind_measured_ones(tmp_path: Path) -> None:
    """In databases too that were written, merged or pruned."""
    trace, target = mlcc.Schedule(matmul()).trace, Target.parse("nvidia/tesla-p100")
    database = ms.database.JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(matmul())
    for seconds, by_analysis in ((1e-6, True), (1e-3, False), (2e-3, False)):
        database.commit_tuning_record(
            ms.database.TuningRecord(trace, workload, [seconds], target, by_analysis=by_analysis)
        )
    again = ms.database.JSONDatabase(work_dir=str(tmp_path))
    pruned = ms.database.MemoryDatabase()
    again.dump_pruned(pruned)
    for one in (database, again, pruned, ms.database.UnionDatabase(database, again)):
        best = one.query_tuning_record(matmul(), "nvidia/tesla-p100")
        assert best.seconds == 1e-3 and not best.by_analysis
    assert [r.by_analysis for r in again.get_all_tuning_records()] == [True, False, False]


def test_a_line_that_a_crash_cut_short(tmp_path: Path) -> None:
    """What is recorded afterwards stands on lines of its own, and can be read again."""
    trace = mlcc.Schedule(matmul()).trace
    for _ in range(2):
        database = ms.database.JSONDatabase(work_dir=str(tmp_path))
        database.commit_tuning_record(ms.database.TuningRecord(trace, database.commit_workload(matmul()), [1e-3]))
        path = tmp_path / "database_tuning_record.json"
        path.write_text(path.read_text() + '[0, ["", [0.0')
    assert [r.run_secs for r in ms.database.JSONDatabase(work_dir=str(tmp_path)).get_all_tuning_records()] == [
        [1e-3]
    ] * 2


def test_the_year_of_the_course(tmp_path: Path) -> None:
    """`tune_tir` of 2022 takes a config and returns a schedule."""
    sch = ms.tune_tir(
        mod=matmul(), target=TARGET, config=ms.TuneConfig(max_trials_global=4, num_trials_per_iter=4),
        space=ms.space_generator.ScheduleFn(tiles), runner=HashRunner(), work_dir=os.fspath(tmp_path), task_name="main",
    )  # fmt: skip
    assert isinstance(sch, mlcc.Schedule)


class Recorder(ms.MeasureCallback):  # type: ignore[misc, name-defined]
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def apply(self, scheduler: Any, task: int, candidates: Any, built: Any, ran: Any) -> None:
        assert scheduler.tasks_[task].ctx.task_name == "main" and len(built) == len(ran) == len(candidates)
        assert all(candidate.sch.trace for candidate in candidates)
        self.seconds += [one.run_secs[0] for one in ran if one.run_secs]


def test_objects_of_tvms_scripts_are_accepted(tmp_path: Path) -> None:
    """Builders, runners, schedulers and callbacks as scripts for TVM make them, measuring in earnest."""
    seen = Recorder()
    database = ms.tune_tir(
        matmul(), TARGET, str(tmp_path), 8, space=tiles, cost_model="random",
        builder=ms.builder.LocalBuilder(max_workers=1, timeout_sec=60),
        runner=ms.runner.LocalRunner(timeout_sec=5, evaluator_config=ms.runner.EvaluatorConfig(number=1, repeat=1)),
        task_scheduler=ms.task_scheduler.RoundRobin(),
        measure_callbacks=[seen, ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
    )  # fmt: skip
    assert 0 < len(seen.seconds) == len(database) <= 8 and all(0 < s < 1 for s in seen.seconds)
    silent = ms.tune_tir(matmul(), TARGET, None, 4, space=tiles, runner=HashRunner(), measure_callbacks=[seen])
    assert len(silent) == 0, "no AddToDatabase"


class TimingRunner(ms.runner.PyRunner):  # type: ignore[misc, name-defined]
    """Runs what was built here and now, once."""

    def run(self, runner_inputs: Any) -> list[Any]:
        return [self._ran(one) for one in runner_inputs]

    def _ran(self, given: Any) -> Any:
        assert given.device_type == "cpu"
        arrays = [np.ones(info.shape, info.dtype) for info in given.args_info]
        timer = mlcc.load(given.artifact_path).time_evaluator("main", number=1, repeat=2)
        result = ms.runner.RunnerResult(timer(*arrays).times)
        os.unlink(given.artifact_path)
        np.testing.assert_allclose(arrays[-1], arrays[0].shape[1])

        class Future(ms.runner.PyRunnerFuture):  # type: ignore[misc, name-defined]
            def done(self) -> bool:
                return True

            def result(self) -> Any:
                return result

        return Future()


def test_a_runner_of_ones_own() -> None:
    database = ms.tune_tir(matmul(), TARGET, None, 4, space=tiles, cost_model="random", runner=TimingRunner())
    assert 0 < len(database) <= 4 and all(0 < r.seconds < 1 for r in database.get_all_tuning_records())


def test_round_robin_takes_tasks_in_turn() -> None:
    chosen = ms.task_scheduler.TaskScheduler.create("round-robin").choose
    kernels: Any = [SimpleNamespace(batches=n) for n in (2, 1, 1)]
    assert chosen(None, kernels) is kernels[1]


def test_union_databases_answer_with_the_best() -> None:
    mod = matmul()
    fast, slow = ms.database.MemoryDatabase(), ms.database.MemoryDatabase()
    sch = mlcc.Schedule(mod, seed=1)
    for database, seconds in ((slow, 2.0), (fast, 1.0)):
        workload = database.commit_workload(mod)
        database.commit_tuning_record(ms.database.TuningRecord(sch.trace, workload, [seconds]))
    assert ms.database.UnionDatabase(slow, fast).query(mod, TARGET, kind="record").seconds == 1.0
    assert ms.database.OrderedUnionDatabase(slow, fast).query(mod, TARGET, kind="record").seconds == 2.0
    pruned = ms.database.MemoryDatabase()
    fast.dump_pruned(pruned)
    assert len(pruned) == 1 and pruned.query_schedule(mod, TARGET) is not None
    made = ms.database.ScheduleFnDatabase(lambda s: tiles(s) is None)
    with made:
        assert ms.Database.current() is made
    assert "split" in str(made.query_schedule(mod, TARGET).trace)


GRAPH = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4, 32), "float32"), w: R.Tensor((32, 48), "float32"), v: R.Tensor((48, 8), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.matmul(b, v)
            R.output(c)
        return c
"""


def test_graphs_are_tuned_kernel_by_kernel(tmp_path: Path) -> None:
    mod = mlcc.parse(GRAPH)
    random = np.random.default_rng(0)
    x, w, v = (random.random(s).astype("float32") for s in ((4, 32), (32, 48), (48, 8)))
    tasks = ms.extract_tasks(mod, TARGET, {"w": w})
    assert [t.weight for t in tasks] == [1, 1]
    database = ms.tune_relax(mod, {"w": w}, TARGET, str(tmp_path), 16, runner=HashRunner(), op_names=["matmul"])
    made = ms.compile_relax(database, mod, TARGET, {"w": w})
    np.testing.assert_allclose(mlcc.load(made)["main"](x, v), np.maximum(x @ w, 0) @ v, rtol=1e-4)
    scheduled = ms.relax_integration.apply_database(mod, TARGET, database, {"w": w}).module
    assert any("tuning database" in str(f.attrs.get("mlcc.made_by")) for f in scheduled.functions.values())


def test_arguments_that_mean_nothing_here() -> None:
    for name, value in (
        ("builder", "rpc"), ("measure_callbacks", ["print"]), ("task_scheduler", "best"), ("runner", "remote"),
        ("post_optimization", True),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=name):
            ms.tune_tir(matmul(), TARGET, None, 4, **{name: value})
    with pytest.raises(ValueError, match="--cluster"):
        ms.tune_tir(matmul(), TARGET, None, 4, runner=ms.runner.Runner.create("rpc", ms.runner.RPCConfig("host", 9190)))
    with pytest.raises(ValueError, match="f_build"):
        ms.builder.LocalBuilder(f_build=print)
    with pytest.raises(ValueError, match="needs a custom runner"):
        ms.tune_tir(matmul(), TARGET, None, 4, builder=ms.Builder())
    with pytest.raises(ValueError, match="max_trials_global"):
        ms.tune_tir(matmul(), TARGET)
