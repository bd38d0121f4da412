"""Outcomes of programs: the same as before with less work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlcc.driver import build_pipeline, run_emulated, run_passes
from mlcc.grammar.parser import parse
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.auto_pass import AutoSchedule
from mlcc.passes.gpu.insert_barriers import InsertBarriers
from mlcc.reduce.outcomes import CHECKS, Run
from mlcc.reduce.program import Program

PRODUCT = """
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((16, 16), "float32"), w: R.Tensor((16, 16), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            R.output(a)
        return a
"""
CODE = """
import sys
from mlcc.reduce.outcomes import run_apart

def job():
    import mlcc.report.module_diff
    return "mlcc.report.module_diff" in sys.modules

assert "mlcc.report.module_diff" not in sys.modules
assert run_apart(job, 60)
assert "mlcc.report.module_diff" in sys.modules
"""


def test_modules_that_a_job_imports_are_there_for_the_next_one() -> None:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True)


def test_emulation_generates_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.targets.cuda import module

    monkeypatch.delattr(module, "emit_ptx")
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(-1, 1, (16, 16)).astype("float32") for _ in range(2))
    pipeline = build_pipeline(parse(PRODUCT), Target.parse("cuda"), 2, None)
    lowered = run_passes(parse(PRODUCT), pipeline, target="cuda")
    result: Any = run_emulated("cuda", lowered, "main", [x, w])
    np.testing.assert_allclose(result, x @ w, rtol=1e-5, atol=1e-5)


def test_what_comes_before_the_last_pass_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    right = AutoSchedule.run

    def counted(self: AutoSchedule, *given: Any) -> Any:
        runs.append(self)
        return right(self, *given)

    monkeypatch.setattr(AutoSchedule, "run", counted)
    monkeypatch.setattr(InsertBarriers, "lower", lambda self, func, functions, options: func)
    passes = [str(one) for one in build_pipeline(parse(PRODUCT), Target.parse("cuda"), 2, None).passes]
    passes = passes[: passes.index("insert-barriers") + 1]
    assert Run("cuda", 2, CHECKS).outcome(Program(parse(PRODUCT), tuple(passes))) == "fails without the last pass"
    assert len(runs) == 1
