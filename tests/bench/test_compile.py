"""`python -m bench compile`: first results in processes of their own, and the page of what they took."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.compile import command
from bench.compile.cases import Case, cpu_cases, gpu_cases, label, mlcc_case
from bench.compile.models import MODELS, SAMPLES, files
from bench.compile.report import MARK, Part, page
from bench.compile.run import CHILD, Measurements, Runner
from bench.speed import texts
from bench.speed.graph import count_flops
from bench.speed.session import ROOT
from bench.speed.workloads import Workload

TINY = Workload("tiny", lambda: texts.softmax(3, 17))


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    folder = tmp_path_factory.mktemp("bench")
    return Runner({"tiny": files(TINY, folder)}, folder, lambda line: None)


CASES = (
    mlcc_case("first", 1),
    mlcc_case("emulated", 1, "cuda{arch=sm_90}", emulate=True),
    mlcc_case("PTX", 1, "cuda{arch=sm_90}", "build"),
    mlcc_case("run", 1, way="command", warm=True),
    Case("numpy", {"way": "peer", "peer": "numpy"}),
)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_first_result(case: Case, runner: Runner) -> None:
    answer = runner.run("tiny", case, 1)
    assert "error" not in answer, answer
    assert 0 < answer["cpu"] < 60 and 0 < answer["wall"] < 120 and answer["peak"] > 1 << 20
    assert (answer.get("size", 0) > 0) == (case.name in ("first", "emulated", "PTX"))
    if case.warm:
        assert any((runner.scratch / "cache").rglob("*")), "the cache has an entry"


def test_failures_are_reported(runner: Runner) -> None:
    missing = Case("nothing", {"way": "peer", "peer": "nothing"})
    assert runner.run("tiny", missing, 1)["error"].startswith("not installed")
    assert "CompileError" in runner.run("tiny", mlcc_case("no target", 1, "vax"), 1)["error"]
    found = runner.rounds([("tiny", missing, 1)], 3, 60.0)["tiny", "nothing", 1]
    assert found.error and found.median("wall") is None


def test_a_process_counts_those_that_it_starts() -> None:
    code = "import subprocess, sys; sys.path.insert(0, sys.argv[1]); from child import cpu_seconds\n"
    code += "busy = [sys.executable, '-c', 'for i in range(5_000_000): pass']\n"
    code += "before = cpu_seconds(); subprocess.run(busy); print(cpu_seconds() - before)"
    done = subprocess.run([sys.executable, "-c", code, str(CHILD.parent)], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.02


def test_cases_have_unique_names() -> None:
    cases = cpu_cases([1, 2, 3], 2, ROOT, ["openvino", "inductor"])
    names = [case.name for case in cases]
    assert len(set(names)) == len(names) and f"{label(ROOT)} `-O3`" in names
    assert [case.name for case in cases if case.once] == ["inductor"]
    assert json.dumps([case.task for case in cases])
    assert [case.task["way"] for case in gpu_cases([2], ROOT, emulate=False)] == ["build"] * 2


def test_models_have_the_stated_sizes() -> None:
    assert all(path.is_file() for path in SAMPLES.values())
    counts = {model.name: count_flops(model.graph) for model in MODELS}
    assert 5.9e8 < counts["mobilenet_v2"] < 6.1e8 and 3.6e9 < counts["resnet18"] < 3.7e9


def test_page_shows_what_was_measured() -> None:
    cases = [mlcc_case("mlcc `-O2`", 2), mlcc_case("before", 2), mlcc_case("broken", 2)]
    part = Part(["tiny"], cases)
    part.found["tiny", "mlcc `-O2`", 2] = Measurements([1.0, 2.0, 4.0], [3.0] * 3, [5 << 20] * 3, 2048)
    part.found["tiny", "before", 2] = Measurements([4.0], [6.0], [7 << 20], 1024)
    part.found["tiny", "broken", 2] = Measurements(error="it does not run")
    text = page(["a fact"], part, "mlcc `-O2`", ["before", "broken"], None, None)
    assert text.startswith(MARK) and "- a fact" in text
    assert "| mlcc `-O2` | 2.00 (1.00..4.00) |" in text and "| before | 4.00 |" in text
    assert "- mlcc `-O2` / before: tiny 0.50" in text
    assert "| mlcc `-O2` | 5 |" in text and "| mlcc `-O2` | 2 |" in text
    assert "- broken, tiny: it does not run" in text and "| broken |" not in text


def test_command_updates_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{MARK}\nold")
    for name, value in {"MODELS": (TINY,), "SAMPLES": {}, "FOLDER": tmp_path, "PAGE": page}.items():
        monkeypatch.setattr(command, name, value)
    assert command.main(["--peers", "", "--levels", "1", "--cores", "1", "--rounds", "1", "--write"]) == 0
    text = page.read_text()
    assert text.startswith(f"head\n{MARK}\n\n- ") and "| mlcc `-O1` |" in text and "old" not in text
    assert "did not run" not in text
    assert command.main(["--peers", "nobody"]) == 2 and "nobody" in capsys.readouterr().out
