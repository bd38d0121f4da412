"""Commands that fail write a small program that fails likewise, unless they are told not to."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from tests.bisect.planted import PERCEPTRON, WRONG_CODE, WRONG_PASS, residual_network
from tests.cli.test_cli import Tool


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLCC_REDUCE", "20")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", residual_network(4))
    tool.file("perceptron.mlc", PERCEPTRON)
    return tool


def in_process(mlcc: Tool, *argv: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    folders = [str(Path(__file__).resolve().parents[2]), *([] if path is None else [str(path)])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "TMPDIR": str(mlcc.folder)}
    command = [sys.executable, "-m", "mlcc", *argv]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def written(mlcc: Tool, lines: int = 20) -> str:
    """The text of the one program that was written; stderr names it, and its first line runs it."""
    (path,) = mlcc.folder.glob("mlcc-reduced-*.mlc")
    assert str(path) in mlcc.err
    text = path.read_text()
    assert len(text.splitlines()) < lines
    assert str(path) in text.splitlines()[0]
    return text


def test_a_pass_that_crashes(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.passes.graph.canonicalize import Canonicalize

    def crash(self: object, module: object, ctx: object) -> None:
        if "softmax" in str(module):
            raise RuntimeError("planted")

    monkeypatch.setattr(Canonicalize, "run", crash)
    mlcc("compile", "perceptron.mlc", "-o", "net.o", code=70)
    assert mlcc.err.index("internal error: PassFailed") < mlcc.err.index("reducing it for up to 20 s (MLCC_REDUCE=0")
    text = written(mlcc)
    assert "# PASSES: canonicalize\n" in text
    assert re.findall(r"= (R\.[\w.]+)\(", text) == ["R.nn.softmax"]
    mlcc(*shlex.split(text.splitlines()[0])[2:], code=70)


def test_code_generation_that_crashes(mlcc: Tool) -> None:
    wrong = WRONG_CODE.replace("return arith.minimum(e, node) if is_relu", "return 1 // 0 if is_relu")
    mlcc.file("sitecustomize.py", f"import mlcc.targets.llvm.codegen.emitter\n{wrong}")
    done = in_process(mlcc, "compile", "perceptron.mlc", "-o", "net.o", path=mlcc.folder)
    assert done.returncode == 70
    mlcc.err = done.stderr
    assert re.match(r"# mlcc compile \S+ -t ", written(mlcc, 40))


def test_results_that_change_at_a_pass(mlcc: Tool) -> None:
    mlcc.file("mine.py", WRONG_PASS)
    shapes = {}
    for name, dims in re.findall(r"(\w+): R\.Tensor\(\(([\d, ]+)\)", residual_network(4)):
        shapes[name] = [int(n) for n in dims.split(",")]
    rng = np.random.default_rng(0)
    mlcc.npz("x.npz", **{name: rng.uniform(-1, 1, shape).astype("float32") for name, shape in shapes.items()})
    passes = "canonicalize,lower-to-tir,fuse,fuse-tir,cheap-erf"
    command = ("passes", "net.mlc", "--load", "mine.py", "-p", passes, "--check-each", "x.npz", "-o", "out.mlc")
    mlcc(*command, code=3)
    assert mlcc.err.index("E0511") < mlcc.err.index("reducing it")
    text = written(mlcc)
    assert re.findall(r"= (R\.[\w.]+)\(", text) == ["R.nn.gelu"]
    assert "# PASSES: lower-to-tir,cheap-erf\n" in text


def test_results_that_are_not_as_expected(mlcc: Tool) -> None:
    """Only if the compiler is to blame: another model is no failure to reduce."""
    mlcc.npz("y.npz", out=np.zeros((64, 64), "float32"))
    mlcc("run", "perceptron.mlc", "--random", "--expect", "y.npz", code=3)
    assert "elements differ" in mlcc.err
    assert "reducing" not in mlcc.err
    mlcc.file("mine.py", WRONG_CODE)
    done = in_process(mlcc, "run", "perceptron.mlc", "--random", "--expect", "y.npz", "--load", "mine.py")
    assert done.returncode == 3
    mlcc.err = done.stderr
    assert re.findall(r"= (R\.[\w.]+)\(", written(mlcc)) == ["R.nn.relu"]


@pytest.mark.parametrize("value", ["0", "off"])
def test_a_reduction_can_be_turned_off(mlcc: Tool, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    from mlcc.passes.graph.canonicalize import Canonicalize

    def crash(self: object, module: object, ctx: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Canonicalize, "run", crash)
    monkeypatch.setenv("MLCC_REDUCE", value)
    mlcc("compile", "perceptron.mlc", "-o", "net.o", code=70)
    assert "reducing" not in mlcc.err
    assert "For a small program that shows it: mlcc reduce" in mlcc.err
    assert not list(mlcc.folder.glob("mlcc-reduced-*"))


def test_a_reduction_that_fails_leaves_what_it_has(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best program, if the search fails; no file, if that cannot be written."""
    from mlcc.cli import reduction
    from mlcc.passes.graph.canonicalize import Canonicalize
    from mlcc.reduce.reducer import Reducer

    def crash(self: object, *given: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Canonicalize, "run", crash)
    monkeypatch.setattr(Reducer, "run", crash)
    mlcc("compile", "perceptron.mlc", "-o", "net.o", code=70)
    assert "R.nn.softmax" in written(mlcc, 40)
    (path,) = mlcc.folder.glob("mlcc-reduced-*")
    path.unlink()
    monkeypatch.setattr(reduction, "program_text", crash)
    mlcc("compile", "perceptron.mlc", "-o", "net.o", code=70)
    assert "For a small program that shows it: mlcc reduce" in mlcc.err
    assert not list(mlcc.folder.glob("mlcc-reduced-*"))


def test_a_reduction_keeps_to_its_time(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlcc.passes.graph.canonicalize import Canonicalize

    def crash(self: object, module: object, ctx: object) -> None:
        time.sleep(0.5)
        raise RuntimeError("planted")

    monkeypatch.setattr(Canonicalize, "run", crash)
    monkeypatch.setenv("MLCC_REDUCE", "2")
    started = time.monotonic()
    mlcc("compile", "net.mlc", "-o", "net.o", code=70)
    assert "stopped before the end" in mlcc.err
    assert time.monotonic() - started < 60  # and not the minutes of the whole search
    assert list(mlcc.folder.glob("mlcc-reduced-*"))
