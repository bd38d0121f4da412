"""docs/abi.md: its examples run, and its tables are those of the code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import mlcc
from mlcc.runtime.abi import KINDS
from mlcc.runtime.env import load_env
from mlcc.runtime.manifest import OPERATORS
from mlcc.runtime.registry import remove_func

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "abi.md").read_text()
CC = ["cc", "-std=c99", "-Wall", "-Wextra", "-Werror"]


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.S | re.M)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    made = mlcc.build(mlcc.parse(blocks("mlc")[0]), target="llvm")
    made.save(tmp_path / "model.o")
    (tmp_path / "model.h").write_text(made.header("model.o"))
    return tmp_path


def test_c_program_of_the_page_runs(model: Path) -> None:
    (model / "app.c").write_text(blocks("c")[0])
    subprocess.run([*CC, "app.c", "model.o", "-lm", "-o", "app"], cwd=model, check=True)
    done = subprocess.run(["./app"], cwd=model, capture_output=True, text=True, check=True)
    assert f"prints `{done.stdout.strip()}`" in PAGE


def test_python_environment_of_the_page_runs(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model)
    scope: dict[str, object] = {}
    exec(blocks("python")[0], scope)
    remove_func("env.shift")
    assert scope["y"].tolist() == [[0.5, 10.5, 200.5], [3.5, 40.5, 500.5]]  # type: ignore[attr-defined]


def test_c_environment_of_the_page_runs(model: Path) -> None:
    (model / "env.c").write_text(blocks("c")[1])
    subprocess.run([*CC, "-shared", "-fPIC", "env.c", "-o", "env.so"], cwd=model, check=True)
    assert load_env(str(model / "env.so")) == ["env.shift"]
    y = mlcc.load(model / "model.o")["main"](np.ones((1, 3), np.float32))
    remove_func("env.shift")
    assert y.tolist() == [[1.5, 10.5, 100.5]]


def test_table_of_errors_is_complete() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \| (.*) \|$", PAGE, re.M)
    assert rows == [(str(k.code), k.name, k.text) for k in KINDS]


def test_the_manifest_has_the_documented_keys(model: Path) -> None:
    manifest = mlcc.load(model / "model.o").manifest
    section = PAGE.split("## The manifest")[1]
    top = re.findall(r"^\| `(\w+)` \|", section.split("A function has")[0], re.M)
    assert set(manifest) == set(top)
    main = manifest["functions"]["main"]
    assert all(f"`{key}`" in section for key in main)
    for value in (*main["params"], main["results"]):
        row = next(line for line in section.splitlines() if line.startswith(f"| `{value['kind']}` |"))
        assert all(f"`{key}`" in row for key in value if key != "kind")
    words = re.search(r"`\[operator, a, b\]` with `([^`]*)`", section)
    assert words is not None and words[1].split() == list(OPERATORS)
