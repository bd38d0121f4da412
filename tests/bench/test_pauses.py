"""`python -m bench pauses`: single calls after pauses, from Python and from C."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bench import pauses
from bench.speed import texts, workloads
from bench.speed.session import competitors


def test_calls_after_pauses_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FOLDER", tmp_path)
    monkeypatch.setattr(pauses, "PAUSES", (0.0, 1e-3))
    workload = workloads.Workload("tiny", lambda: texts.mlp(1))
    with competitors(["mlcc", "numpy"], 1) as running:
        found = pauses.measure(workload, running, 1, 2, 1)
    names = ["mlcc", "numpy", *(["mlcc in C"] if shutil.which("cc") else [])]
    assert list(found) == names
    for by_pause in found.values():
        assert list(by_pause) == [0.0, 1e-3] and all(
            len(s) == 2 * pauses.CALLS and min(s) > 0 for s in by_pause.values()
        )
    lines = pauses.table("tiny", 1, found)
    assert lines[0] == "tiny, 1 thread" and [line[2:14].strip() for line in lines[1:]] == names
    assert "(1.00 x)" in lines[1]
    row = pauses.rows("tiny", found)[0].split(" | ")
    assert row[:2] == ["| tiny", "mlcc"] and len(row) == 4 and pauses.header()[0].count("|") == 5


def test_the_workloads_are_there() -> None:
    assert {*pauses.WORKLOADS, *pauses.QUICK} <= {w.name for w in pauses.known()}


def test_95th_percentile_is_right() -> None:
    assert pauses.late([float(n) for n in range(101)]) == 95.0 and pauses.late([2.0]) == 2.0


def test_figures_are_put_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{pauses.START}\nold\n{pauses.END}\ntail\n")
    workload = workloads.Workload("tiny", lambda: texts.mlp(1))
    for name, value in {"PAGE": page, "FOLDER": tmp_path, "PAUSES": (0.0,), "known": lambda: [workload]}.items():
        monkeypatch.setattr(pauses, name, value)
    assert pauses.main(["--only", "tiny", "--peers", "numpy", "--rounds", "1", "--write"]) == 0
    text = page.read_text()
    assert text.startswith("head\n") and text.endswith(f"{pauses.END}\ntail\n") and "old" not in text
    assert "| tiny | numpy | " in text
