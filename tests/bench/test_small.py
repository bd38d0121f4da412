"""`python -m bench small`: calls of small models, from Python and from C."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from bench import small
from bench.speed.graph import count_flops
from bench.speed.peers.numpy_peer import reference
from bench.speed.session import competitors
from bench.speed.small import SMALL


def test_models_have_the_stated_sizes() -> None:
    """Multiplications of the reference models of MLPerf Tiny, to a percent."""
    counts = {w.name: count_flops(w.graph) / 2 for w in SMALL}
    expected = {"digits": 4736, "keyword_spotting": 2.66e6, "anomaly_detection": 264_192, "person_detection": 7.49e6}
    assert counts == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_results_are_neither_lost_nor_too_large(workload: small.Workload) -> None:
    inputs, weights = workload.arrays()
    result = reference(workload.graph, {**inputs, **weights})
    assert np.isfinite(result).all() and result.std() > 1e-4


def test_calls_are_measured_in_each_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "FOLDER", tmp_path)
    monkeypatch.setattr(small, "LEAST", 1e-4)
    page = tmp_path / "page.md"
    page.write_text(f"head\n{small.START}\nold\n{small.END}\ntail\n")
    monkeypatch.setattr(small, "PAGE", page)
    assert small.main(["--only", "digits", "--peers", "mlcc,numpy", "--rounds", "2", "--write"]) == 0
    text = page.read_text()
    assert text.startswith("head\n") and text.endswith(f"{small.END}\ntail\n") and "old" not in text
    in_c = " | mlcc, C" if shutil.which("cc") else ""
    assert f"| | mlcc, bound | mlcc, plain{in_c} | numpy, bound | numpy, plain |" in text and "| digits | " in text


def test_a_competitor_that_fails_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "FOLDER", tmp_path)
    monkeypatch.setattr(small, "LEAST", 1e-4)
    monkeypatch.setattr(small, "TOLERANCE", -1.0)
    with competitors(["numpy"], 1) as running:
        assert small.measure(SMALL[0], running, 1, 1) == {}
    assert small.table({}) == ["| |  |", "| --- |"]
