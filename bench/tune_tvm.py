"""The TVM part of `python -m bench tune --tvm PYTHON`, which runs in the Python with TVM and does not import mlcc.

    PYTHON -m bench.tune_tvm tune FOLDER TRIALS     tunes FOLDER/kernel.py, and writes FOLDER/tvm.so
    PYTHON -m bench.tune_tvm race FOLDER ROUNDS     times FOLDER/tvm.so and FOLDER/mlcc.o, interleaved

Both print one line of JSON. Candidates are built and run in this process, and of TVM's tensor intrinsics only
those of x86 are parsed: what the tuning costs is less than TVM's own workers take.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import resource
import shutil
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

os.environ["TVM_NUM_THREADS"] = "1"

import tvm  # noqa: E402

_INTRINSICS = "tvm.s_tir.tensor_intrin"
sys.modules[_INTRINSICS] = types.ModuleType(_INTRINSICS)
sys.modules[_INTRINSICS].__path__ = [str(Path(tvm.__file__).parent / "s_tir" / "tensor_intrin")]
importlib.import_module(f"{_INTRINSICS}.x86")

from tvm.ir.utils import derived_object  # noqa: E402
from tvm.s_tir import meta_schedule as ms  # noqa: E402
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock  # noqa: E402
from tvm.script import from_source  # noqa: E402

CALLS = 200  # in a sample
SAMPLE_MS = 5
BUILT: list[Any] = []


def main(job: str, folder: str, count: str) -> None:
    print(json.dumps({"tune": tune, "race": race}[job](Path(folder), int(count))))


def tune(folder: Path, trials: int) -> dict[str, Any]:
    """Tune a kernel, and write the best candidate as a library."""
    module = from_source((folder / "kernel.py").read_text())
    target = tvm.target.Target({"kind": "llvm", "mcpu": _cpu(), "num-cores": 1})
    model = "xgb" if importlib.util.find_spec("xgboost") else "random"
    shutil.rmtree(folder / "tvm_records", ignore_errors=True)
    began, wall = _cpu_seconds(), time.monotonic()
    database = ms.tune_tir(
        module, target, str(folder / "tvm_records"), trials, num_trials_per_iter=64, builder=Builds(), runner=Runs(),
        cost_model=model, num_tuning_cores=1, seed=0,
        measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
    )  # fmt: skip
    spent = _cpu_seconds() - began
    best = min(
        (r for r in database.get_all_tuning_records() if r.run_secs), key=lambda r: float(np.mean([*r.run_secs]))
    )
    schedule = tvm.s_tir.Schedule(best.workload.mod)
    best.trace.apply_to_schedule(schedule, remove_postproc=False)
    tvm.compile(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(schedule.mod), target).export_library(
        str(folder / "tvm.so")
    )
    return {
        "version": tvm.__version__, "model": model, "trials": len(database), "cpu": spent,
        "wall": time.monotonic() - wall,
    }  # fmt: skip


def race(folder: Path, rounds: int) -> dict[str, Any]:
    """Return the CPU seconds per call in each round, of both libraries interleaved on the same arrays."""
    import mlcc

    arrays = dict(np.load(folder / "in.npz"))
    given, out = [*arrays.values()][:-1], [*arrays.values()][-1]
    results = {name: np.zeros_like(out) for name in ("tvm", "mlcc")}
    library = tvm.runtime.load_module(str(folder / "tvm.so"))
    tensors = [tvm.runtime.tensor(a) for a in (*given, out)]
    timed = library.time_evaluator("main", tvm.cpu(), number=CALLS, repeat=1)
    bound = mlcc.load(str(folder / "mlcc.o"))["main"].bind(*given, results["mlcc"])
    calls: dict[str, Callable[[], object]] = {"tvm": lambda: timed(*tensors), "mlcc": lambda: bound.timed(CALLS + 1)}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for at in range(rounds):
        for name in sorted(calls, reverse=bool(at % 2)):
            began = time.thread_time()
            calls[name]()
            seconds[name].append((time.thread_time() - began) / (CALLS + 1))
    results["tvm"] = tensors[-1].numpy()
    np.testing.assert_allclose(results["mlcc"], results["tvm"], rtol=1e-4, atol=1e-4)
    return seconds


@derived_object
class Builds(ms.builder.PyBuilder):
    """A builder that runs in this process; the path of a result is its number."""

    def build(self, build_inputs: Any) -> list[Any]:
        return [self._built(one) for one in build_inputs]

    def _built(self, one: Any) -> Any:
        try:
            clean = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(one.mod)
            BUILT.append(tvm.driver.build(clean, target=one.target))
        except Exception as exc:
            print(exc, file=sys.stderr)
            return ms.builder.BuilderResult(None, str(exc))
        return ms.builder.BuilderResult(str(len(BUILT) - 1), None)


@derived_object
class Runs(ms.runner.PyRunner):
    """A runner that runs in this process."""

    def run(self, runner_inputs: Any) -> list[Any]:
        return [Ran(self._seconds(one)) for one in runner_inputs]

    def _seconds(self, one: Any) -> list[float]:
        module = BUILT[int(one.artifact_path)]
        tensors = [
            tvm.runtime.tensor(np.random.default_rng(0).random([*map(int, info.shape)]).astype(info.dtype))
            for info in one.args_info
        ]
        evaluator = module.time_evaluator("main", tvm.cpu(), number=3, repeat=1, min_repeat_ms=SAMPLE_MS)
        return [float(s) for s in evaluator(*tensors).results]


@derived_object
class Ran(ms.runner.PyRunnerFuture):
    def __init__(self, seconds: list[float]) -> None:
        super().__init__()
        self.seconds = seconds

    def done(self) -> bool:
        return True

    def result(self) -> Any:
        return ms.runner.RunnerResult(self.seconds, None)


def _cpu() -> str:
    cpu: str = tvm.target.codegen.llvm_get_system_cpu()
    return cpu


def _cpu_seconds() -> float:
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
