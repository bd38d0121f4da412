"""`python -m bench alone`: compiling by itself, and how it grows with the number of layers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.compile import alone
from bench.compile.cases import Case
from bench.compile.models import files
from bench.compile.run import Runner
from bench.speed.chains import CHAINS
from bench.speed.graph import count_flops
from bench.speed.small import SMALL
from bench.speed.texts import resnet50
from bench.speed.workloads import Workload


@pytest.mark.parametrize("name", CHAINS)
def test_chains_have_that_many_layers(name: str, tmp_path: Path) -> None:
    graphs = {n: Workload(name, lambda n=n: CHAINS[name](n)).graph for n in (6, 12)}
    assert len(graphs[12].nodes) == 2 * len(graphs[6].nodes)
    if name != "elementwise":
        heavy = [n for n in graphs[6].nodes if n.op in ("matmul", "nn.conv2d")]
        assert len(heavy) == 6
    chain = Workload(f"{name}_6", lambda: CHAINS[name](6))
    runner = Runner({"chain": {**files(chain, tmp_path), "before": files(SMALL[0], tmp_path)}}, tmp_path, print)
    mine = alone.all_cases()[0]
    answer = runner.run("chain", mine, 1)
    assert "error" not in answer, answer
    assert 0 < answer["alone"] < answer["cpu"]
    assert set(answer["shares"]) == set(alone.STAGES) and 0.3 < sum(answer["shares"].values()) < 1.3


def test_resnet50_is_the_known_network() -> None:
    """4.1 billion multiplications."""
    assert count_flops(Workload("r", resnet50).graph) / 2 == pytest.approx(4.09e9, rel=0.01)


def test_failures_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(SMALL[0], tmp_path)
    runner = Runner({"digits": {**before, "before": before}}, tmp_path, print)
    cases = [Case("numpy", {"way": "peer_alone", "peer": "numpy"}), Case("no", {"way": "peer_alone", "peer": "no"})]
    found = alone.measure(runner, "digits", cases, 2, {})
    assert list(found) == ["numpy"] and "not installed" in capsys.readouterr().out


def test_exponents() -> None:
    assert alone.exponent({250: 9.0, 1000: 2.0, 2000: 8.0}) == pytest.approx(2.0)
    assert alone.exponent({1000: 3.0, 2000: 6.0}) == pytest.approx(1.0) and math.isnan(alone.exponent({1000: 1.0}))


def test_the_page_has_all_results_that_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"head\n{alone.START}\nold\n{alone.END}\ntail\n")
    monkeypatch.setattr(alone, "FOLDER", tmp_path)
    monkeypatch.setattr(alone, "PAGE", page)
    seconds = {
        "lenet": {"mlcc": 0.5, "openvino": 0.25, "tvm": 1.0},
        "chain_conv_1000": {"mlcc": 2.0, "openvino": 1.5}, "chain_conv_2000": {"mlcc": 4.0},
    }  # fmt: skip
    record = {
        "seconds": seconds,
        "versions": {"tvm": "1"},
        "when": "today",
        "shares": {"lenet": {"LLVM": 0.25, "read": 0.5}},
    }
    (tmp_path / "alone.json").write_text(json.dumps(record))
    assert alone.main(["--report", "--write"]) == 0
    text = page.read_text()
    assert text.startswith("head\n") and text.endswith(f"{alone.END}\ntail\n") and "old" not in text
    assert "| lenet | 50 % | 0 % | 0 % | 0 % | 0 % | 0 % | 25 % | 0 % | 25 % |" in text
    assert "| lenet | 0.50 | 0.25 | 1.00 | 2.0 |" in text and "| conv | - | - | 2.00 | 4.00 | 1.00 | 1.50 |" in text
