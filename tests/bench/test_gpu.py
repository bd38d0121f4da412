"""The benchmark of GPUs, over emulation: what it builds is right, and a line says all that it should."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mlcc
from bench.gpu import command
from bench.gpu.workloads import Workload, workloads
from tests.runtime.devices import PythonDevice

SMALL = (
    Workload("negate", "R.negative(x0)", ((7, 33),), flops=231.0, peer="negate"),
    Workload("add", "R.add(x0, x1)", ((8, 16), (8, 16)), bytes=3 * 512, peer="add"),
)


class Stub(PythonDevice):
    """Keeps time; what runs is emulated elsewhere."""

    capability = (8, 0)


@pytest.mark.parametrize("work", SMALL, ids=lambda w: w.name)
def test_a_line_of_the_table(work: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    real = mlcc.load
    monkeypatch.setattr(command.mlcc, "load", lambda made, device: real(made, emulate=True, check=False))
    device: Any = Stub({})
    cells = [cell.strip() for cell in command.one(work, device, 2, 2, 1e9).split("|")[1:-1]]
    assert cells[0] == work.name and cells[1].endswith("us") and cells[4] == "none"
    assert float(cells[5]) < 1e-5
    assert ("TFLOP/s" in cells[2]) == bool(work.flops) and "asked: 0.9" in cells[3]


def test_workloads_parse_for_every_capability() -> None:
    assert all(w.module()["main"] for w in workloads(True))
    for capability, scripts in (((7, 5), 0), ((8, 0), 1), ((9, 0), 2), ((10, 0), 1)):
        assert sum(bool(w.script) for w in workloads(True) if w.runs_on(capability)) == scripts


def test_figures_are_put_in_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(command.PAGE.read_text())
    around = [page.read_text().partition(command.START)[0], page.read_text().partition(command.END)[2]]
    monkeypatch.setattr(command, "PAGE", page)
    for name in ("first", "second"):
        command.record([f"| {name} |"], "a device", 1e12, 3)
    text = page.read_text()
    assert "| second |" in text and "| first |" not in text and "copies at 1000 GB/s" in text
    assert [text.partition(command.START)[0], text.partition(command.END)[2]] == around, "the rest of the page stays"
