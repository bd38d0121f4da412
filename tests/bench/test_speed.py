"""The benchmark measures what it says: workloads mean the same to everyone, and what is reported is what was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest

import mlcc
from bench.speed import texts, workloads
from bench.speed.graph import Graph, count_flops, read_graph, traffic
from bench.speed.peers.numpy_peer import reference, run
from bench.speed.picture import picture
from bench.speed.record import Line, Record
from bench.speed.report import page, replace_tail
from bench.speed.session import Result, SessionPlan, competitors, race
from mlcc.tune.peak_rates import PeakRates

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "matmul_t": texts.matmul(3, 5, 7, relu=True, transposed=True),
    "bmm": texts.bmm_relu(2, 3, 5, 4),
    "conv": texts.conv(4, 6, 9, 3, stride=2, padding=1),
    "depthwise": texts.conv(5, 5, 7, 3, groups=5),
    "softmax": texts.softmax(3, 17),
    "layer_norm": texts.layer_norm(3, 17),
    "gelu": texts.elementwise(3, 17),
    "encoder": texts.encoder(1, 8, 2, 16, 5),
    "causal": texts.encoder(1, 8, 2, 16, 5, causal=True),
    "lenet": texts.lenet(),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_judge_agrees_with_the_compiler(name: str) -> None:
    workload = workloads.Workload(name, lambda: SMALL[name])
    inputs, weights = workload.arrays()
    graph = Graph.of(json.loads(json.dumps(workload.graph.plain())))
    want = reference(graph, {**inputs, **weights})
    given = [{**inputs, **weights}[n] for n in graph.params]
    got = mlcc.load(mlcc.build(mlcc.parse(SMALL[name].source)))["main"](*given)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(graph, {**inputs, **weights}), want, rtol=1e-4, atol=1e-5)


def test_every_workload_reads_and_has_its_floors() -> None:
    names = [w.name for w in workloads.suite((0, 1))]
    assert len(set(names)) == len(names)
    found = {w.name: (count_flops(w.graph), traffic(w.graph)) for w in workloads.LISTED}
    assert found["matmul_128"] == (2 * 128**3, 3 * 4 * 128**2)
    assert found["conv2d_3x3"][0] == 2 * 64 * 64 * 9 * 56 * 56
    assert found["mlp_64"] == (2 * 64 * (784 * 128 + 128 * 10), 4 * (64 * 784 + 784 * 128 + 128 + 1280 + 10 + 640))
    assert found["gelu_1M"][0] == 0
    assert 3.6e9 < found["resnet18"][0] < 3.7e9
    for workload in workloads.drawn(3):
        assert all(extent > 0 for node in workload.graph.nodes for extent in node.shape)


def test_what_peers_cannot_be_given_is_refused() -> None:
    text = texts.softmax(3, 4).source.replace("R.nn.softmax(x, axis=-1)", "R.add(x, R.const(1.0, 'float32'))")
    with pytest.raises(ValueError, match="Constant"):
        read_graph(text)


def test_a_byte_floor_is_of_the_level_that_holds_all() -> None:
    floors = PeakRates(1e11, (("L1", 2e11, 1000), ("DRAM", 1e10, None)))
    assert floors.seconds(2e11, 1000) == (2.0, 1000 / 2e11)
    assert floors.seconds(0, 1001) == (0, 1001 / 1e10)


def test_dead_competitors_are_restarted(tmp_path: Path) -> None:
    """A competitor whose process died is started again."""
    workload = workloads.Workload("tiny", lambda: texts.mlp(1))
    with competitors(["mlcc", "portable", "numpy"], 1) as running:
        assert [c.missing for c in running] == ["", "", ""]
        assert running[2].versions["numpy"] == np.__version__
        running[2].stop()
        results = race(workload, running, SessionPlan(rounds=3, seconds=0.1, sample=1e-4, level=1), tmp_path)
    assert [(r.peer, r.error) for r in results] == [("mlcc", ""), ("portable", ""), ("numpy", "")]
    assert [r.size > 400_000 for r in results] == [True, True, False]
    assert all(r.prepare > 0 and r.memory >= 0 for r in results) and results[0].memory > 400_000
    assert all(3 <= len(r.times) == len(r.waited) <= 12 for r in results)
    assert results[0].native is not None and 0 < results[0].native < 1
    assert all(0 < t < 1 for r in results for t in r.times)
    # what is left behind compiles with the command line
    mlcc.build(mlcc.parse((tmp_path / "tiny.mlc").read_text()))


def test_a_missing_peer_says_so() -> None:
    import bench.speed.worker as worker

    found = subprocess.run(
        [sys.executable, "-c", "import sys; sys.modules['onnxruntime'] = None; sys.argv = ['w', 'onnxruntime', '1']\n"
         "from bench.speed.worker import main; main()"],
        capture_output=True, cwd=ROOT, check=True,
    )  # fmt: skip
    answer = json.loads(found.stdout)
    assert not answer["ok"] and answer["missing"] and "onnxruntime" in answer["error"]
    assert "onnxruntime" in worker.PEERS


def test_disturbed_samples_do_not_count() -> None:
    result = Result("numpy", times=[1.0, 9.0, 1.2, 1.1, 8.0], waited=[0.0, 0.5, 0.01, 0.0, 0.3])
    assert sorted(result.calm) == [1.0, 1.1, 1.2]
    assert result.median == 1.1
    assert len(Result("numpy", times=[1.0, 2.0, 3.0], waited=[0.5, 0.5, 0.5]).calm) == 3
    assert result.wants_more(1.0), "three are too few"
    assert not Result("numpy", waited=[0.0] * 5).wants_more(1.0)
    assert not Result("numpy", waited=[0.5] * 5, spent=2.5).wants_more(1.0)


def record() -> Record:
    line = Line("a<b", 1, 1e-3, 2e-3)
    line.results = {
        "mlcc": Result("mlcc", [4e-3] * 3, [0.0] * 3, prepare=0.25, memory=5 << 20),
        "numpy": Result("numpy", [8e-3] * 3, [0.0] * 3),
        "portable": Result("portable", [6e-3] * 3, [0.0] * 3, size=3 << 10),
        "jax": Result("jax", [2e-3] * 3, [0.0] * 3),
        "tvm": Result("tvm", error="no tuner"),
    }
    return Record("a machine", {"numpy": "2"}, [line])


def test_report_shows_what_was_measured(tmp_path: Path) -> None:
    found = record()
    assert found.lines[0].best_peer() == "jax" and found.lines[0].ratio() == 0.5
    text = page(found)
    assert "| a<b | 1.00 | 2.00 | 4.00 | 0.50 x | 6.00 | 8.00 | **2.00** | - |" in text
    assert "1.50 x the time of native ones" in text and "over 1.1 x: a<b 1.50 x." in text
    assert "| a<b | - | 3 |" in text, "the sizes of objects"
    assert "| a<b | 0.25 | 0.00 | 5 | 0 |" in text, "compile time and memory of mlcc and jax"
    assert "- tvm, a<b: no tuner" in text
    assert "mlcc is the fastest in 0 of 1." in text and "Behind: a<b 0.50 x (jax)." in text
    assert "| mlcc run | 80 | 70 | 30 |" in page(found, [["mlcc run", "80", "70", "30"]])
    assert replace_tail("head\n" + text + "old", text) == "head\n" + text
    found.save(tmp_path / "r.json")
    assert Record.load(tmp_path / "r.json", "a machine") == found
    assert Record.load(tmp_path / "r.json", "another").lines == []
    again = Line("a<b", 1, 1e-3, 2e-3, {"numpy": Result("numpy", [1e-3] * 3, [0.0] * 3)})
    found.put(again)
    assert found.lines == [again], "samples of two runs are no race"
    found.put(Line("a<b", 2, 1e-3, 2e-3))
    assert len(found.lines) == 2


def test_picture_shows_what_was_measured() -> None:
    root = ET.fromstring(picture(record().lines))
    texts_of = [e.text for e in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a<b" in texts_of and "1 thread" in texts_of and "tvm" not in texts_of
    # mlcc is half as fast as the best: left of it, by one step of the grid
    diamond = list(root.iter("{http://www.w3.org/2000/svg}path"))[-1].get("d") or ""
    circles = [float(e.get("cx", 0)) for e in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert abs(float(diamond.split()[2][1:]) + 400 / 6 - max(circles[-2:])) < 0.2


def test_pinned_kernels_are_refused() -> None:
    found = subprocess.run(
        [sys.executable, "-m", "bench", "speed", "--list"], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"},
    )  # fmt: skip
    assert found.returncode == 2 and "OPENBLAS_CORETYPE" in found.stderr
