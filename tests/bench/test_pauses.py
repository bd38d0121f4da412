"""`python -m bench pauses`: single calls after pauses, from Python and from C."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import pauses
from bench.speed import texts, workloads
from bench.speed.session import competitors


def test_calls_after_pauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_LEVEL", "2")
    monkeypatch.setattr(pauses, "FOLDER", tmp_path)
    monkeypatch.setattr(pauses, "PAUSES", (0.0, 1e-3))
    workload = workloads.Workload("tiny", lambda: texts.mlp(1))
    with competitors(["mlcc", "numpy"], 1) as running:
        found = pauses.measure(workload, running, 1, 2)
    names = ["mlcc", "numpy", *(["mlcc in C"] if shutil.which("cc") else [])]
    assert list(found) == names
    for by_pause in found.values():
        assert list(by_pause) == [0.0, 1e-3] and all(len(s) == 2 and min(s) > 0 for s in by_pause.values())
    lines = pauses.table("tiny", 1, found)
    assert lines[0] == "tiny, 1 thread" and [line[2:14].strip() for line in lines[1:]] == names
    assert "(1.00 x)" in lines[1]


def test_the_workloads_are_there() -> None:
    assert set(pauses.WORKLOADS) <= {w.name for w in workloads.suite((0,))}
