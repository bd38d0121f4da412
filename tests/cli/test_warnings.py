"""Warnings and sanitized runs on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mlcc as package
from mlcc.cli.main import run
from mlcc.codes import codes

WARNED = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), k: T.int32, B: T.Buffer((8,), "float32")):
    for i in T.parallel(8):
        B[0] = A[i]
"""
GATHER = """
@T.prim_func
def main(A: T.Buffer((8,), "float32"), I: T.Buffer((4,), "int32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = A[I[i]]
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("in.npz", A=np.arange(8, dtype="float32"), k=np.int32(1))
    path = tmp_path / "w.mlc"
    path.write_text(WARNED)
    return path


COMMANDS = [
    ["check"], ["compile", "-o", "w.o"], ["compile", "--emit", "asm", "-o", "w.s"], ["passes", "-o", "out.mlc"],
    ["run", "--in", "in.npz"],
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0] + c[-1])
def test_warnings_are_printed_by_every_command(
    text: Path, command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    """On stderr, each time, with exit code 0; not at all, or as errors, where that is asked for."""
    name, *more = command
    for _ in range(2):
        assert run([name, str(text), *more]) == 0
        err = capfd.readouterr().err
        assert err.count("warning[W0301]") == err.count("warning[W0303]") == 1
    assert run([name, str(text), *more, "--warnings=off"]) == 0
    assert capfd.readouterr().err == ""
    assert run([name, str(text), *more, "--warnings=error"]) == 1
    err = capfd.readouterr().err
    assert "error[W0301]" in err and "warning[" not in err


def test_warnings_are_reported_as_json(text: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--diagnostics", "json", "check", str(text)]) == 0
    found = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert {(f["code"], f["severity"]) for f in found} == {("W0301", "warning"), ("W0303", "warning")}


def test_every_warning_is_explained(capfd: pytest.CaptureFixture[str]) -> None:
    for code in codes("W03"):
        assert run(["explain", code]) == 0
        assert capfd.readouterr().out.startswith(f"{code}: ")


def test_python_is_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Warnings are listed where they are asked for."""
    module = package.parse(WARNED)
    package.build(module)
    assert capfd.readouterr() == ("", "")
    assert sorted(d.code for d in package.lint(module)) == ["W0301", "W0303"]


@pytest.mark.parametrize("path", sorted(ROOT.glob("samples/**/*.mlc")), ids=lambda p: p.stem)
def test_samples_have_no_warnings(path: Path) -> None:
    from mlcc.driver import parse_file

    assert package.lint(parse_file(str(path))) == []


def test_sanitized_runs_report_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.mlc").write_text(GATHER)
    np.savez("good.npz", A=np.arange(8, dtype="float32"), I=np.array([7, 0, 1, 2], "int32"))
    np.savez("bad.npz", A=np.arange(8, dtype="float32"), I=np.array([7, 0, 8, 2], "int32"))
    assert run(["compile", "g.mlc", "--sanitize", "-o", "g.o"]) == 0
    assert run(["compile", "g.mlc", "-o", "plain.o"]) == 0
    for file in ("g.mlc", "g.o"):
        assert run(["run", file, "--sanitize", "--in", "good.npz", "--out", "out.npz"]) == 0
        assert np.load("out.npz")["B"].tolist() == [7, 0, 1, 2]
        capfd.readouterr()
        assert run(["run", file, "--sanitize", "--in", "bad.npz"]) == 1
        assert "g.mlc:5:16: index 8 is outside dimension 0 of `A`, which has 8" in capfd.readouterr().err
    assert run(["run", "plain.o", "--sanitize", "--in", "good.npz"]) == 1
    assert "E0736" in capfd.readouterr().err
    assert run(["passes", "g.mlc", "-p", "lower-loops", "--check-each", "bad.npz", "--check-work", "0"]) == 1
    assert "E0870" in capfd.readouterr().err
    assert run(["passes", "g.mlc", "-p", "lower-loops", "--check-each", "good.npz", "--check-work", "0"]) == 0
    assert "compiled, its accesses checked (--sanitize)" in capfd.readouterr().err
