"""samples/writer: the committed text is what importing the model gives, computes what PyTorch does, and writes in C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from tests.frontend.aten_check import compare

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "writer"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's object with its header."""
    path = tmp_path_factory.mktemp("writer") / "writer.o"
    command = [sys.executable, "-m", "mlcc", "compile", str(SAMPLE / "writer.mlc"), "-t", "llvm", "-o", str(path)]
    subprocess.run([*command, "--header", str(path.with_suffix(".h"))], check=True)
    return path


@pytest.fixture
def model(torch: Any, safetensors: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The sample's module with the model."""
    monkeypatch.syspath_prepend(str(SAMPLE))
    monkeypatch.delitem(sys.modules, "model", raising=False)
    return __import__("model")


def test_it_computes_what_pytorch_does(torch: Any, model: Any, built: Path) -> None:
    run, writer = mlcc.load(str(built))["main"], model.trained()
    torch.manual_seed(1)
    for new, old in ((1, 0), (9, 0), (1, 13), (4, 7)):
        shape = (model.LAYERS, model.HEADS, old, model.DEPTH)
        given = (torch.randint(len(model.CHARACTERS), (new,)), torch.randn(shape), torch.randn(shape))
        with torch.no_grad():
            expected = writer(*given)
        for mine, theirs in zip(run(*given), expected, strict=True):
            compare(np.asarray(mine), theirs.numpy())


def test_the_text_is_what_importing_gives(torch: Any, model: Any) -> None:
    names = {"characters.0": "n", "keys.2": "m"}
    exported = model.exported(model.trained())
    module = mlcc.frontend.from_exported_program(exported, dim_names=names)
    text = mlcc.parse((SAMPLE / "writer.mlc").read_text(), name=str(SAMPLE / "writer.mlc"), folder=str(SAMPLE))
    mlcc.assert_structural_equal(module, text)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_c_and_python_write_the_same(built: Path) -> None:
    app = built.with_name("writer")
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", f"-I{built.parent}"]
    subprocess.run(["cc", *flags, str(SAMPLE / "writer.c"), str(built), "-o", str(app), "-lm"], check=True)
    in_c = subprocess.run([str(app), "The pass ", "40"], check=True, capture_output=True, text=True).stdout
    command = [sys.executable, str(SAMPLE / "generate.py"), str(built), "The pass ", "40", "0"]
    env = {**os.environ, "PYTHONPATH": str(SAMPLE.parents[1])}
    in_python = subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout
    assert in_c == in_python + "\n"
    assert in_c.split()[:2] == ["The", "pass"] and len(in_c) == len("The pass ") + 41
