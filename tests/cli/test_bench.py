"""`mlcc bench`: profiles by kernel, verdicts against a baseline, competitors that take different arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlcc.cli.cmd_bench import format_comparison, format_ratio, table
from mlcc.progress import Listener, Work, listening
from mlcc.tune.ratio_statistics import Comparison, compare
from tests.cli.test_cli import Tool, f32

NET = """
@R.function
def main(x: R.Tensor((1, 8, 14, 14), "float32"), k: R.Tensor((16, 8, 3, 3), "float32"),
         a: R.Tensor((24, 40), "float32"), b: R.Tensor((40, 32), "float32")):
    c = R.nn.conv2d(x, k, padding=(1, 1))  # layer1.conv (Conv2d) net.py:7
    d = R.matmul(a, b)
    e = R.nn.softmax(d)
    return (c, e)
"""
TWICE = """
@R.function
def main(x: R.Tensor(("n", 16), "float32"), w: R.Tensor((16, 16), "float32")):
    a = R.matmul(x, w)
    b = R.matmul(a, w)
    return b
"""
LOOPS = """
@T.prim_func
def twice(x: T.Buffer((64,), "float32"), y: T.Buffer((64,), "float32")):
    for i in range(64):
        with T.block("B"):
            vi = T.axis.spatial(64, i)
            y[vi] = x[vi] * T.float32(2)
"""
QUICK = ("--repeat", "4", "--number", "2")


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    for name, text in (("net.mlc", NET), ("twice.mlc", TWICE), ("loops.mlc", LOOPS)):
        tool.file(name, text)
    return tool


# ---------------------------------------------------------------- profiles


@pytest.mark.parametrize("level", ["-O1", "-O2", "-O3"])
def test_profile_counts_operations_and_bytes(mlcc: Tool, level: str) -> None:
    found = json.loads(mlcc("bench", "net.mlc", "--profile", "--random", "--json", *QUICK, level))
    rows = {row["kernel"]: row for row in found["kernels"] if "transpose" not in row["kernel"]}
    expected = {
        "conv2d": (2 * 16 * 14 * 14 * 8 * 9, 4 * (8 * 14 * 14 + 16 * 8 * 9 + 16 * 14 * 14)),
        "matmul": (2 * 24 * 32 * 40, 4 * (24 * 40 + 40 * 32 + 24 * 32)),
        "softmax": (5 * 24 * 32, 4 * 2 * 24 * 32),  # maximum, difference, exp, sum, quotient
    }
    assert all(row["operations"] == 0 for row in found["kernels"] if row["kernel"] not in rows)
    assert {name: (row["operations"], row["bytes"]) for name, row in rows.items()} == expected
    assert [row["calls"] for row in rows.values()] == [1, 1, 1]
    total = sum(row["seconds"] for row in found["kernels"]) + found["rest_seconds"]
    assert total == pytest.approx(found["seconds"], rel=1e-9)
    assert found["rest_seconds"] > 0
    assert all(row["seconds"] > 0 and row["roofline_share"] > 0 for row in rows.values())
    assert {name: row["places"][0]["line"] for name, row in rows.items()} == {"conv2d": 5, "matmul": 6, "softmax": 7}
    assert rows["conv2d"]["places"] == [{"file": "net.mlc", "line": 5, "origin": "layer1.conv (Conv2d) net.py:7"}]
    rules = {name: row["rule"] for name, row in rows.items()}
    scheduled = {"conv2d": "conv", "matmul": "matmul", "softmax": "rows"}
    assert rules == (dict.fromkeys(scheduled, "none") if level == "-O1" else scheduled)
    assert [*found["machine"]["levels"]] == ["L1", "L2", "L3", "DRAM"]


def test_profile_of_calls_and_symbolic_sizes(mlcc: Tool) -> None:
    found = json.loads(mlcc("bench", "twice.mlc", "--profile", "--random", "--size", "n=6", "--json", *QUICK))
    (row,) = found["kernels"]
    assert (row["calls"], row["operations"]) == (2, 2 * 2 * 6 * 16 * 16)
    assert row["bytes"] == 2 * 4 * (6 * 16 + 16 * 16 + 6 * 16)
    assert [place["line"] for place in row["places"]] == [4, 5]


def test_profile_of_a_function_of_loops(mlcc: Tool) -> None:
    found = json.loads(mlcc("bench", "loops.mlc", "--profile", "--random", "--json", *QUICK))
    (row,) = found["kernels"]
    assert (row["kernel"], row["operations"], row["bytes"], row["threads"]) == ("twice", 64, 2 * 4 * 64, 1)


def test_profile_as_text(mlcc: Tool) -> None:
    lines = mlcc("bench", "net.mlc", "--profile", "--random", *QUICK, "--threads", "1").splitlines()
    assert lines[0].startswith("main of net.mlc: a call takes ")
    assert lines[1].startswith("this machine, 1 thread: ")
    head = next(line for line in lines if "GFLOP/s" in line and "rule" in line)
    assert head.split() == ["time", "share", "GFLOP/s", "GB/s", "roofline", "threads", "rule", "kernel"]
    (conv,) = (line for line in lines if "conv2d  line 5 (layer1.conv)" in line)
    assert "1 of 1  conv " in conv
    whole = next(line for line in lines if line.endswith("the whole call"))
    assert whole.split()[2] == "100.0%"
    assert any(line.endswith("outside kernels: packed calls, checks, the clock") for line in lines)
    assert "  matmul: matmul: `matmul` is a matrix product" in lines
    assert "mlcc schedule net.mlc --auto --why" in lines[-1]
    assert max(map(len, lines)) <= 120


def test_profile_leaves_numbers_as_they_are(mlcc: Tool) -> None:
    import mlcc as m

    module = m.parse(NET)
    given = f32(1, 8, 14, 14), f32(16, 8, 3, 3), f32(24, 40), f32(40, 32)
    counted = m.load(m.build(module, "llvm{cpu=native}", profile=True))
    plain = m.load(m.build(module, "llvm{cpu=native}"))
    for got, want in zip(counted["main"](*given), plain["main"](*given), strict=True):
        assert np.array_equal(got, want)
    counters = counted.profile_counters()
    assert [count.calls for count in counters.read()] == [1] * len(counters.sites)
    counters.reset()
    assert [count.calls for count in counters.read()] == [0] * len(counters.sites)
    assert plain.profile_counters() is None
    assert "profile" not in plain.manifest


def test_what_cannot_be_profiled(mlcc: Tool) -> None:
    mlcc("compile", "loops.mlc", "-o", "loops.o")
    mlcc("bench", "loops.o", "--profile", "--random", code=1)
    assert "E0876" in mlcc.err and "profile the text" in mlcc.err
    mlcc("bench", "net.mlc", "--profile", "--random", "-t", "cuda{arch=sm_80}", code=1)
    assert "E0876" in mlcc.err
    mlcc("bench", "net.mlc", "loops.mlc", "--profile", "--random", code=2)
    mlcc("bench", "net.mlc", "--against", "loops.mlc", "--profile", "--random", code=2)


# ---------------------------------------------------------------- a baseline


def test_verdicts() -> None:
    base = [1.0 + 0.01 * (at % 5) for at in range(25)]
    halves = [0.5 * t for t in base]
    assert compare(base, halves) == Comparison(2.0, (2.0, 2.0))
    assert compare(base, halves).verdict == "faster"
    assert compare(halves, base).verdict == "slower"
    assert compare([1.0, 2.0] * 12, [2.0, 1.0] * 12).verdict == "no difference"
    assert compare(base[:10], halves[:10]) == Comparison(2.0, None)
    assert compare(base[:10], halves[:10]).verdict == "no difference"
    assert compare(base[:11], halves[:11]).verdict == "faster"


def test_interval_covers_the_median() -> None:
    """By simulation: the interval of 25 samples contains the true ratio in at least 99 of 100 cases."""
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        low, high = compare(rng.lognormal(0.2, 0.3, 25).tolist(), rng.lognormal(0, 0.3, 25).tolist()).interval or (0, 9)
        covered += low <= np.exp(0.2) <= high
    assert 0.985 < covered / 2000 < 1


def test_ratios_in_words() -> None:
    assert format_ratio(1.8, "big3.o") == "1.8 times as fast as big3.o"
    assert format_ratio(1 / 220.16, "big3.o") == "220 times as slow as big3.o"
    assert format_ratio(1.001, "a.o") == "as fast as a.o"
    assert format_comparison(Comparison(2.0, (1.5, 2.5)), "a.o") == (
        "faster: 2 times as fast as a.o (99% interval 1.5 to 2.5 times its speed)"
    )
    assert format_comparison(Comparison(0.98, (0.9, 1.1)), "a.o") == (
        "no difference: 0.98 times the speed of a.o (99% interval 0.9 to 1.1)"
    )
    assert "--repeat 11" in format_comparison(Comparison(2.0, None), "a.o")
    first, second = table(("a.o", "b.o"), [[2.0, 2.0, 2.0], [1.0, 1.0, 1.0]])
    assert "times" not in first and second.endswith("2 times as fast as a.o")


def test_against_a_baseline(mlcc: Tool) -> None:
    mlcc("compile", "loops.mlc", "-o", "base.o")
    found = json.loads(mlcc("bench", "loops.mlc", "--against", "base.o", "--random", "--json", "--repeat", "12"))
    assert [entry["file"] for entry in found] == ["base.o", "loops.mlc"]
    assert "against" not in found[0] and len(found[1]["seconds"]) == 12
    result = found[1]["against"]
    assert result["file"] == "base.o" and result["interval"][0] <= result["ratio"] <= result["interval"][1]
    assert result["verdict"] in ("faster", "slower", "no difference")
    lines = mlcc("bench", "loops.mlc", "--against", "base.o", "--random", *QUICK).splitlines()
    assert len(lines) == 3 and lines[2].startswith("loops.mlc  no difference: too few samples")


# ---------------------------------------------------------------- competitors with different parameters


def test_each_file_takes_its_arrays(mlcc: Tool) -> None:
    x, w = f32(6, 16), f32(16, 16)
    np.savez("in.npz", x=x, w=w)
    np.savez("w.npz", w=w)
    mlcc("passes", "twice.mlc", "-p", "bind-params{params=w.npz}", "-o", "bound.mlc")
    for files in (("twice.mlc", "bound.mlc"), ("bound.mlc", "twice.mlc"), ("bound.mlc", "--against", "twice.mlc")):
        assert "bound.mlc" in mlcc("bench", *files, "--in", "in.npz", *QUICK)

    np.savez("more.npz", x=x, w=w, other=w)
    mlcc("bench", "twice.mlc", "bound.mlc", "--in", "more.npz", *QUICK, code=1)
    assert "none of twice.mlc, bound.mlc has a parameter `other`" in mlcc.err and "parameter `w`" not in mlcc.err
    mlcc("bench", "twice.mlc", "bound.mlc", "--in", "more.npz", "--ignore-extra", *QUICK)

    np.savez("less.npz", x=x)
    mlcc("bench", "bound.mlc", "twice.mlc", "--in", "less.npz", *QUICK, code=1)
    assert "twice.mlc: no array for parameter `w` of `main`" in mlcc.err and "bound.mlc: " not in mlcc.err

    np.savez("wrong.npz", x=x, w=f32(3, 3))
    mlcc("bench", "bound.mlc", "twice.mlc", "--in", "wrong.npz", *QUICK, code=1)
    assert "twice.mlc: " in mlcc.err


def test_progress_of_samples_is_announced(mlcc: Tool) -> None:
    class Stages(Listener):
        def __init__(self) -> None:
            self.seen: list[tuple[str, int, int]] = []

        def done(self, work: Work, seconds: float) -> None:
            self.seen.append((work.stage, work.at, work.count))

    stages = Stages()
    with listening(stages):
        mlcc("bench", "loops.mlc", "--random", *QUICK)
    assert mlcc.err == ""  # which is no terminal
    assert [one for one in stages.seen if one[0] == "time"] == [("time", at, 4) for at in range(4)]
