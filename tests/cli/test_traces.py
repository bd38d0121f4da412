"""`--trace` of `run` and `compile`: valid files whose events nest, and agree with counters and tables of times."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc as package
from mlcc.cli.main import run
from mlcc.driver import build
from mlcc.progress import listening
from mlcc.report.compile_trace import CompileTrace
from mlcc.report.run_trace import add_execution
from mlcc.report.trace_events import Trace
from mlcc.runtime.execution_log import Event, ExecutionLog, Row
from tests.cli.test_cli import Tool
from tests.cli.test_faults import MODULE as FAULT
from tests.cli.test_signals import CODES, ENDLESS, STARTED, start, stop

NET = """
@R.function
def main(x: R.Tensor((384, 384), "float32"), w: R.Tensor((384, 384), "float32")):
    with R.dataflow():
        a = R.nn.relu(R.matmul(x, w))  # fc1 (Linear) net.py:3
        b = R.matmul(a, w)
        R.output(b)
    c = R.call_dps_packed("t.half", (b,), R.Tensor((384, 384), "float32"))
    return R.nn.softmax(c)
"""
ENV = """
import mlcc

@mlcc.register_func("t.half", override=True)
def half(x, out):
    out[...] = x / 2
"""
FAILING = """
@T.prim_func
def main(A: T.Buffer((8,), "float32")):
    T.evaluate(T.call_packed("t.half", A.data))
"""
SCALARS: dict[str, Any] = {"name": str, "ph": str, "pid": int, "tid": int, "ts": (int, float), "args": dict}
CATEGORIES = {"command", "kernel", "packed", "copy", "loop", "share", "waiting", "upload", "download", "fill"}


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    from mlcc.runtime.threads import set_num_threads

    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", NET)
    tool.file("env.py", ENV)
    yield tool
    set_num_threads(None)


def events(path: Path | str) -> list[dict[str, Any]]:
    """Return the complete events of a file, in nanoseconds, after checking its form, its names and its nesting."""
    return checked(Path(path).read_text())


def checked(text: str) -> list[dict[str, Any]]:
    document = json.loads(text)
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    names: dict[str, set[int]] = {}
    found = []
    for record in document["traceEvents"]:
        assert all(isinstance(record[key], kind) for key, kind in SCALARS.items()), record
        assert set(record) == set(SCALARS) | ({"cat", "dur"} if record["ph"] == "X" else set())
        if record["ph"] == "M":
            assert record["name"] in ("process_name", "thread_name", "thread_sort_index")
            names.setdefault(record["name"], set()).add(record["tid"])
            continue
        assert record["ph"] == "X" and record["ts"] >= 0 and record["dur"] >= 0 and record["name"]
        found.append(
            {**record, "start": round(record["ts"] * 1000), "stop": round((record["ts"] + record["dur"]) * 1000)}
        )
    assert len(names["process_name"]) == 1 and {e["tid"] for e in found} <= names["thread_name"]
    assert [e["start"] for e in found] == sorted(e["start"] for e in found)
    for thread in {e["tid"] for e in found}:
        under_way: list[dict[str, Any]] = []
        for event in (e for e in found if e["tid"] == thread):
            while under_way and under_way[-1]["stop"] <= event["start"]:
                under_way.pop()
            assert not under_way or event["stop"] <= under_way[-1]["stop"], (under_way[-1], event)
            under_way.append(event)
    return found


def named(found: list[dict[str, Any]], category: str) -> list[str]:
    return [event["name"] for event in found if event["cat"] == category]


# ---------------------------------------------------------------- runs


def test_a_run(mlcc: Tool) -> None:
    arguments = ("run", "net.mlc", "--random", "--env", "env.py", "--threads", "2", "--out")
    mlcc(*arguments, "plain.npy")
    mlcc(*arguments, "traced.npy", "--trace", "t.json")
    assert np.array_equal(np.load("plain.npy"), np.load("traced.npy"))
    found = events("t.json")
    assert {event["cat"] for event in found} <= CATEGORIES
    assert named(found, "command") == ["compile and load", "read arguments", "call main", "write results"]
    assert named(found, "kernel") == ["fused_matmul_relu", "matmul", "softmax"]
    assert named(found, "packed") == ["t.half"]
    (call,) = (e for e in found if e["name"] == "call main")
    inner = [e for e in found if e["cat"] in ("kernel", "packed")]
    assert all(call["start"] <= e["start"] and e["stop"] <= call["stop"] for e in inner)
    assert inner[0]["args"] == {"function": "main", "place": "net.mlc:5", "origin": "fc1 (Linear) net.py:3"}
    loops = [e for e in found if e["cat"] == "loop"]
    shares = [e for e in found if e["cat"] == "share"]
    assert loops and sum(e["args"]["iterations"] for e in loops) == sum(e["args"]["iterations"] for e in shares)
    for loop in loops:
        inside = [e for e in shares if loop["start"] <= e["start"] and e["stop"] <= loop["stop"]]
        assert sum(e["args"]["share"] for e in inside) == pytest.approx(1)
        assert all(e["args"]["busy_us"] * 1000 <= e["stop"] - e["start"] + 1 for e in inside)


def test_rows_agree_with_the_counters() -> None:
    exe: Any = package.load(
        build(package.parse(NET.replace("t.half", "t.trace_half")), "llvm{cpu=native}", profile=True)
    )
    package.register_func("t.trace_half", lambda x, out: np.divide(x, 2, out), override=True)
    x = np.ones((384, 384), np.float32)
    exe["main"](x, x)
    counters = exe.profile_counters()
    counters.reset()
    log: ExecutionLog = exe.execution_log()
    for _ in range(3):
        exe["main"](x, x)
    log.detach()
    counts = counters.read()
    exe["main"](x, x)  # is not logged
    for site, count in zip(counters.sites, counts, strict=True):
        rows = [r for r in log.read() if r.event.kind == "kernel" and r.event.name == site.kernel]
        assert len(rows) == count.calls == 3
        assert sum(r.stop - r.start for r in rows) == round(count.seconds * 1e9)
    assert log.lost == 0


def test_events_without_space_are_counted() -> None:
    exe: Any = package.load(build(package.parse(FAILING.replace("A.data", "A[0]")), "llvm{cpu=native}", profile=True))
    package.register_func("t.half", lambda x: None, override=True)
    log = ExecutionLog(_head(exe), exe.manifest["events"], capacity=2)
    x = np.zeros(8, np.float32)
    for _ in range(3):
        exe["main"](x)
    assert [row.event.kind for row in log.read()] == ["packed", "kernel"] and log.lost == 4
    log.detach()
    exe["main"](x)
    assert log.lost == 4
    trace = Trace("full")
    add_execution(trace, log)
    assert json.loads(trace.text())["otherData"] == {"lost_events": 4}


def _head(exe: Any) -> int:
    from mlcc.runtime.abi import ProfileFn

    exe.profile_counters()
    address: int = ProfileFn(exe._find(f"{exe._facts.prefix}_profile_log"))()
    return address


class Rows:
    """A log whose rows are given."""

    lost = 0

    def __init__(self, *rows: Row) -> None:
        self.rows = rows

    def read(self) -> list[Row]:
        return list(self.rows)


def test_shares_and_waiting() -> None:
    part, loop = Event("part", "k", file="a.mlc", line=3), Event("loop", "k", file="a.mlc", line=3)
    caller, one, two = 10, 11, 12
    trace = Trace("shares", clock=lambda: 0)
    add_execution(trace, Rows(
        Row(part, 5_000, 20_000, caller, 3), Row(part, 9_000, 30_000, one, 2), Row(part, 21_000, 40_000, caller, 3),
        Row(part, 31_000, 50_000, one, 2), Row(part, 12_000, 55_000, two, 5), Row(loop, 0, 60_000, caller, 15),
        Row(part, 70_000, 80_000, one, 4), Row(loop, 65_000, 81_000, caller, 4),
        Row(Event("kernel", "k", "main"), 0, 90_000, caller, 0),
    ))  # fmt: skip
    found = checked(trace.text())
    shares = [(e["tid"], e["start"], e["stop"], e["args"]) for e in found if e["cat"] == "share"]
    assert shares == [
        (caller, 5_000, 40_000, {"parts": 2, "iterations": 6, "busy_us": 34.0, "share": 0.4}),
        (one, 9_000, 50_000, {"parts": 2, "iterations": 4, "busy_us": 40.0, "share": 4 / 15}),
        (two, 12_000, 55_000, {"parts": 1, "iterations": 5, "busy_us": 43.0, "share": 1 / 3}),
        (one, 70_000, 80_000, {"parts": 1, "iterations": 4, "busy_us": 10.0, "share": 1.0}),
    ]
    waits = [(e["name"], e["tid"], e["start"], e["stop"]) for e in found if e["cat"] == "waiting"]
    assert waits == [
        ("wake workers", caller, 0, 5_000), ("wait for workers", caller, 40_000, 60_000),
        ("wait for workers", caller, 65_000, 81_000),
    ]  # fmt: skip
    threads = {
        e["tid"]: e["args"]["name"] for e in json.loads(trace.text())["traceEvents"] if e["name"] == "thread_name"
    }
    assert threads[one] == "worker 1 of the pool" and threads[two] == "worker 2 of the pool"


def test_an_emulated_run(mlcc: Tool) -> None:
    mlcc.file("gpu.mlc", NET.replace('    c = R.call_dps_packed("t.half", (b,), ', "    c = R.add(b, b)\n#"))
    small = Path("gpu.mlc").read_text().replace("384", "16")
    mlcc.file("gpu.mlc", small)
    target = ("-t", "cuda{arch=sm_80}", "--emulate", "--random")
    mlcc("run", "gpu.mlc", *target, "--out", "plain.npy")
    mlcc("run", "gpu.mlc", *target, "--out", "traced.npy", "--trace", "t.json")
    assert np.array_equal(np.load("plain.npy"), np.load("traced.npy"))
    found = events("t.json")
    assert len(named(found, "kernel")) >= 3 and "softmax_kernel" in named(found, "kernel")
    assert len(named(found, "upload")) == 2
    downloads = [e["args"]["bytes"] for e in found if e["cat"] == "download"]
    assert downloads[-1] == 4 * 16 * 16
    mlcc("run", "gpu.mlc", *target, "--out", "after.npy")  # nothing of the log is left
    assert np.array_equal(np.load("plain.npy"), np.load("after.npy"))


def test_a_failed_run(mlcc: Tool) -> None:
    mlcc.file("env.py", ENV.replace("x, out", "x").replace("out[...] = x / 2", "raise ValueError('no')"))
    mlcc.file("m.mlc", FAILING.replace("A.data", "A[0]"))
    mlcc("run", "m.mlc", "--random", "--env", "env.py", "--trace", "t.json", code=1)
    found = events("t.json")
    assert "E0812" in mlcc.err and named(found, "packed") == ["t.half"]
    (call,) = (e for e in found if e["name"] == "call main")
    assert call["args"] == {"failed": "ValueError"}


def test_an_interrupted_run(tmp_path: Path) -> None:
    (tmp_path / "env.py").write_text(STARTED)
    (tmp_path / "m.mlc").write_text(ENDLESS)
    np.savez(tmp_path / "in.npz", A=np.zeros(8, "float32"))
    process = start(tmp_path, "-m", "mlcc", "run", "m.mlc", "--in", "in.npz", "--env", "env.py", "--trace", "t.json")
    assert stop(process, tmp_path, signal.SIGINT)[::2] == CODES[signal.SIGINT][:1] + ("interrupted\n",)
    found = events(tmp_path / "t.json")
    assert named(found, "packed") == ["t.started"]
    (call,) = (e for e in found if e["name"] == "call main")
    assert call["args"] == {"unfinished": True}


def test_a_run_that_ends_in_a_fault(tmp_path: Path) -> None:
    (tmp_path / "m.mlc").write_text(FAULT)
    np.savez(tmp_path / "in.npz", x=np.ones(8, "float32"), s=np.ones(1000, "float32"))
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "mlcc", "run", "m.mlc", "--in", "in.npz", "--trace", "t.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(root)})
    assert done.returncode == 139 and "E0874" in done.stderr
    assert "call main" in named(events(tmp_path / "t.json"), "command")


def test_what_has_no_log(mlcc: Tool) -> None:
    mlcc.file("net.mlc", NET.replace('R.call_dps_packed("t.half", (b,), R.Tensor((384, 384), "float32"))', "b"))
    mlcc("compile", "net.mlc", "-o", "net.o", "-O0")
    mlcc("run", "net.o", "--random", "--trace", "t.json", code=1)
    assert "E0876" in mlcc.err and "trace the text" in mlcc.err
    mlcc("run", "net.mlc", "--random", "--trace", "t.png", code=1)
    assert "E0012" in mlcc.err


# ---------------------------------------------------------------- compilations


@pytest.mark.parametrize(("target", "output"), [("llvm", "net.o"), ("cuda", "net.mlca"), ("c", "net.c")])
def test_a_compilation(mlcc: Tool, target: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCC_CACHE", "0")
    mlcc("compile", "net.mlc", "-t", target, "-o", output, "--trace", "t.json", "--time")
    found = events("t.json")
    assert named(found, "group") == ["passes", "lower"]
    passes = [e for e in found if e["cat"] == "pass"]
    table = [line.split() for line in mlcc.err.split("\n\n")[0].splitlines()]
    assert [e["name"] for e in passes] == [row[-1] for row in table][: len(passes)]
    for row, event in zip(table, passes, strict=False):
        assert float(row[0]) == pytest.approx((event["stop"] - event["start"]) / 1e6, abs=0.006)
    groups = {e["name"]: e for e in found if e["cat"] == "group"}
    for event in passes:
        group = groups["lower" if event["name"] in ("realize-blocks", "flatten-buffers") else "passes"]
        if event["name"] in ("realize-blocks", "flatten-buffers", "fuse", "lower-to-tir"):
            assert group["start"] <= event["start"] and event["stop"] <= group["stop"]
    assert {"read", "verify", "write", "emit"} <= {e["cat"] for e in found}
    emitted = named(found, "emit")
    assert any("softmax" in name for name in emitted)
    if target == "llvm":
        units = [e for e in found if e["cat"] == "LLVM"]
        assert {"LLVM: code around the kernels"} < {e["name"] for e in units} and "link" in named(found, "link")
        (code,) = (e for e in found if e["cat"] == "generate code")
        assert all(code["start"] <= e["start"] and e["stop"] <= code["stop"] for e in units)
        assert all(e["args"]["cpu_us"] * 1000 <= 1.01 * (e["stop"] - e["start"]) + 1e6 for e in units)
        emits = [e for e in found if e["cat"] == "emit"]
        assert min(e["start"] for e in units) >= min(e["start"] for e in emits)


def test_times_and_trace_are_the_same_readings() -> None:
    """By a clock that counts its readings, every pass takes as long in the trace as in the table."""
    readings = iter(range(1_000_000))
    trace = Trace("counted", clock=lambda: 10**9 * next(readings))
    times = CompileTrace(trace, "llvm", lambda text: None, clock=lambda: float(next(readings)))
    with listening():
        build(package.parse(NET), "llvm", observers=[times])
    spent = [(e["name"], (e["stop"] - e["start"]) // 10**9) for e in checked(trace.text()) if e["cat"] == "pass"]
    assert spent == [(name, round(seconds)) for name, seconds in times.spent] and len(spent) > 10


def test_a_failed_compilation(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCC_CACHE", "0")
    mlcc.file("bad.mlc", NET.replace("R.nn.softmax(c)", "R.nn.softmax(d)"))
    mlcc("compile", "bad.mlc", "-o", "bad.o", "--trace", "t.json", code=1)
    assert [e["name"] for e in events("t.json")] == ["read"] and not Path("bad.o").exists()
    from mlcc.passes.fusion.fuse import Fuse

    monkeypatch.setattr(Fuse, "run", lambda self, module, ctx: 1 / 0)
    mlcc("compile", "net.mlc", "-o", "net.o", "--trace", "t.json", code=70)
    (fuse,) = (e for e in events("t.json") if e["name"] == "fuse")
    assert fuse["args"]["failed"] is True


def test_jobs_do_not_change_the_trace_s_form(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLCC_CACHE", "0")
    monkeypatch.setenv("MLCC_JOBS", "1")
    assert run(["compile", "net.mlc", "-o", "net.o", "--trace", "t.json", "-t", "llvm{cpu=native}"]) == 0
    found = events("t.json")
    assert len({e["tid"] for e in found}) == 1 and "LLVM" in {e["cat"] for e in found}
