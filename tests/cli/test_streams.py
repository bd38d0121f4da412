"""Standard streams that are full, closed, or of another encoding, and variables that say nonsense."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mlcc.errors import MlccError
from tests.cli.test_cli import SCALE, Tool, f32

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
COMMANDS = [
    "--help", "--version", "run --help", "fmt m.mlc", "passes m.mlc -p ''", "passes --list", "passes --help-pass fuse",
    "passes --print-pipeline", "explain", "explain E0001", "inspect m.o", "inspect --json m.o", "cache stat",
    "run m.mlc --in x.npz", "run m.mlc --in x.npz --out -", "compile m.mlc -o -", "compile m.mlc -o /dev/stdout",
    "schedule m.mlc --auto", "bench m.o --in x.npz --repeat 2 --number 1", "cache clear",
]  # fmt: skip


@pytest.fixture
def folder(mlcc: Tool) -> Path:
    mlcc.file("m.mlc", SCALE)
    mlcc.npz("x.npz", A=f32(8))
    mlcc("compile", "m.mlc", "-o", "m.o")
    return mlcc.folder


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    return Tool(tmp_path, capfd)


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MLCC": f"{sys.executable} -m mlcc", **environment}
    return subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True, errors="replace", timeout=120)


def test_full_standard_output_ends_with_code_1(folder: Path) -> None:
    for command in COMMANDS:
        done = shell(f"$MLCC {command} > /dev/full")
        assert done.returncode == 1, (command, done.stderr)
        assert "error[E0002]: cannot write" in done.stderr and "No space left" in done.stderr
        assert "Exception" not in done.stderr and "bug" not in done.stderr, (command, done.stderr)


def test_closed_streams_end_with_the_right_code(folder: Path) -> None:
    for command, code in (("fmt m.mlc >&-", 1), ("compile m.mlc -o - >&-", 1), ("run m.mlc --in x.npz --out - >&-", 1),
                          ("check - <&-", 1), ("check no.mlc 2>&-", 1), ("check no.mlc 2>/dev/full", 1),
                          ("compile m.mlc -o new.o <&- >&- 2>&-", 0)):  # fmt: skip
        done = shell(f"$MLCC {command}")
        assert done.returncode == code and "bug" not in done.stderr, (command, done.stderr)
    assert Path("new.o").read_bytes().startswith(b"\x7fELF")


def test_a_reader_that_goes(folder: Path) -> None:
    done = shell("set -o pipefail; for i in 1 2 3; do $MLCC passes --list | true; done")
    assert done.returncode == 0 and done.stderr == ""


def test_names_and_texts_in_other_encodings(folder: Path) -> None:
    os.rename(b"m.o", b"\xff\xe9.o")
    for variables in ({}, {"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}):
        for command in ("check $'no\\xff.mlc'", "bench $'\\xff\\xe9.o' --in x.npz --repeat 2 --number 1",
                        "run $'\\xff\\xe9.o' --in $'no\\xe9.npz'"):  # fmt: skip
            done = shell(f"$MLCC {command}", **variables)
            assert done.returncode in (0, 1) and "bug" not in done.stderr, (command, done.stderr)
        Path("t.mlc").write_text("# caf\u00e9\n" + SCALE, encoding="utf-8")
        assert "caf" in shell("$MLCC fmt t.mlc", **variables).stdout


NONSENSE = {
    "MLCC_CACHE": "perhaps", "MLCC_CACHE_DIR": "m.mlc", "MLCC_CACHE_SIZE": "1G", "MLCC_NUM_THREADS": "many",
    "MLCC_JOBS": "0", "MLCC_CUDA_DEVICE": "-1", "MLCC_CUDA_DRIVER": "rocm", "MLCC_TRACEBACK": "maybe",
}  # fmt: skip


@pytest.mark.parametrize("name", NONSENSE)
def test_variables_that_say_nonsense(mlcc: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, NONSENSE[name])
    for command in (["check", "m.mlc"], ["run", "m.o", "--in", "x.npz"], ["compile", "m.mlc", "-o", "n.o"]):
        mlcc(*command, code=1)
        assert f"{name} is `{NONSENSE[name]}`" in mlcc.err and "[E0015]" in mlcc.err or "[E0817]" in mlcc.err
    assert not Path("n.o").exists()
    monkeypatch.setenv(name, "")
    mlcc("check", "m.mlc")


def test_memory_that_is_not_there(mlcc: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc import driver

    def fail(path: str) -> None:
        raise MemoryError

    monkeypatch.setattr(driver, "parse_file", fail)
    mlcc("check", "m.mlc", code=1)
    assert "[E0016]" in mlcc.err


@pytest.mark.parametrize("times", [1, 2])
def test_memory_that_is_not_there_for_the_report(
    mlcc: Tool, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], times: int
) -> None:
    """The command fails, and so do its first reports: memory for one is there when the failing frames are gone."""
    from mlcc import driver
    from mlcc.cli import main

    report, failures = main.report, iter(range(times))

    def parse_file(path: str) -> None:
        raise MemoryError

    def scarce_report(problem: MlccError, style: str = "text", color: str = "auto") -> None:
        if next(failures, None) is not None:
            raise MemoryError
        report(problem, style, color)

    monkeypatch.setattr(driver, "parse_file", parse_file)
    monkeypatch.setattr(main, "report", scarce_report)
    mlcc("check", "m.mlc", code=1)
    assert "[E0016]" in mlcc.err + capfd.readouterr().err


# ---------------------------------------------------------------- `-`


def test_artifacts_from_standard_input(folder: Path) -> None:
    """Objects and kernels for a GPU, through pipes; a text stays a text."""
    expected = shell("$MLCC run m.mlc --in x.npz").stdout
    for line in (
        "$MLCC compile m.mlc -o - | $MLCC run - --in x.npz", "$MLCC compile < m.mlc | $MLCC run --in x.npz",
        "$MLCC run - --in x.npz < m.o", "$MLCC run --sanitize - --in x.npz < m.mlc", "$MLCC run m.o --in - < x.npz",
        "$MLCC compile --sanitize < m.mlc | $MLCC run - --sanitize --in x.npz",
        "$MLCC compile -t cuda < m.mlc | $MLCC run --emulate --in x.npz",
        "$MLCC compile -t cuda --emit mlca < m.mlc | $MLCC run --emulate --in x.npz",
        "(head -c 1 m.o; sleep 0.3; tail -c +2 m.o) | $MLCC run --in x.npz",
    ):  # fmt: skip
        done = shell(f"set -o pipefail; {line}")
        assert (done.returncode, done.stdout) == (0, expected), (line, done.stderr)
    for line in ("$MLCC inspect - < m.o", "$MLCC compile -t cuda < m.mlc | $MLCC inspect -"):
        assert shell(line).stdout.startswith("main(A: float32(8,), B: float32(8,) out)\n"), line
    assert shell("$MLCC bench - --in x.npz --repeat 2 --number 1 < m.o").stdout.startswith("-  median")


def test_what_standard_input_cannot_be(folder: Path) -> None:
    for line, code, said in (
        ("$MLCC run - --in - < m.o", 2, "standard input (-) can be read only once"),
        ("$MLCC bench - - --in x.npz < m.o", 2, "standard input (-) can be read only once"),
        ("$MLCC run --sanitize --in x.npz < m.o", 1, "standard input was compiled without --sanitize"),
        ("$MLCC inspect - < m.mlc", 1, "E0851"), ("$MLCC run --db t.db --in x.npz < m.o", 2, "is already compiled"),
        ("$MLCC import - < m.mlc", 1, "E1041"), ("$MLCC import - --compare < m.mlc", 2, "reads the model twice"),
    ):  # fmt: skip
        done = shell(line)
        assert done.returncode == code and said in done.stderr, (line, done.stderr)


def test_models_from_standard_input(folder: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8]) for name in "AB"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["A", "A"], ["B"])], "g", value[:1], value[1:])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "m.onnx")
    done = shell("$MLCC import - < m.onnx | $MLCC run --in x.npz --out y.npz")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load("y.npz")["out"], f32(8) * 2)
