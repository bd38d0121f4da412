"""`mlcc diff`: modules by structure, artifacts by their manifests."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.cli.test_cli import Tool, f32

NET = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 96), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        c = R.add(b, R.const(1.0, "float32"))
        R.output(c)
    return c
"""
KERNEL = """
@T.prim_func
def scale(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] * T.float32(2)
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("a.mlc", NET)
    return tool


def test_names_comments_and_dialect_do_not_count(mlcc: Tool) -> None:
    mlcc.file("b.mlc", "# another text\n" + NET.replace("a = ", "product = ").replace("(a)", "(product)"))
    mlcc("passes", "a.mlc", "-p", "", "--dialect", "tvm", "-o", "tvm.mlc")
    for other in ("a.mlc", "b.mlc", "tvm.mlc"):
        assert mlcc("diff", "a.mlc", other) == ""
        assert json.loads(mlcc("diff", "a.mlc", other, "--json")) == []


def test_a_diff_calls_variables_by_their_names_on_the_left(mlcc: Tool) -> None:
    changed = NET.replace("b = R.nn.relu(a)", "q = R.tanh(a)").replace("(b, ", "(q, ").replace("a = ", "p = ")
    mlcc.file("b.mlc", changed.replace("(a)", "(p)"))
    shown = mlcc("diff", "a.mlc", "b.mlc", code=3)
    assert shown.splitlines()[0] == ("main.body.blocks[0].bindings[1].value.op: `relax.nn.relu` against `relax.tanh`")
    edits = [line for line in shown.splitlines()[1:] if line[0] in "+-"]
    assert edits == [
        '-        b: R.Tensor((n, 96), dtype="float32") = R.nn.relu(a)',
        '+        b: R.Tensor((n, 96), dtype="float32") = R.tanh(a)',
    ]


def test_names_correspond_beyond_an_inserted_binding(mlcc: Tool) -> None:
    inserted = NET.replace("        b = ", "        s = R.sqrt(a)\n        other = ")
    mlcc.file("b.mlc", inserted.replace("relu(a)", "relu(s)").replace("add(b,", "add(other,"))
    shown = mlcc("diff", "a.mlc", "b.mlc", code=3)
    edits = [line[0] + line.partition(" = ")[2] for line in shown.splitlines()[1:] if line[0] in "+-"]
    assert edits == ["-R.nn.relu(a)", "+R.sqrt(a)", "+R.nn.relu(s)"]


def test_functions_of_one_side_alone(mlcc: Tool) -> None:
    mlcc.file("b.mlc", NET + KERNEL)
    assert mlcc("diff", "a.mlc", "b.mlc", code=3) == "+ scale: only in b.mlc\n"
    assert mlcc("diff", "b.mlc", "a.mlc", code=3) == "- scale: only in b.mlc\n"
    assert mlcc("diff", "b.mlc", "a.mlc", "--func", "main") == ""
    assert mlcc("diff", "b.mlc", "a.mlc", "--func", "scale", code=3) == "- scale: only in b.mlc\n"
    mlcc("diff", "b.mlc", "a.mlc", "--func", "scal", code=1)
    assert "E0801" in mlcc.err
    assert "did you mean `scale`?" in mlcc.err


def test_one_side_is_standard_input(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    mlcc.file("k.mlc", KERNEL)
    changed = KERNEL.replace("float32(2)", "float32(3)")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(changed.encode())))
    shown = mlcc("diff", "k.mlc", "-", code=3)
    assert "2.0 against 3.0" in shown
    mlcc("diff", "-", "-", code=2)


def test_large_constants_are_compared_by_content(mlcc: Tool) -> None:
    for name in ("a", "b"):
        np.savez(f"{name}.npz", w=f32(64, 96) + (name == "b"))
        mlcc("passes", "a.mlc", "-p", f"bind-params{{params={name}.npz}}", "-o", f"bound_{name}.mlc")
    assert mlcc("diff", "bound_a.mlc", "bound_a.mlc") == ""
    assert "sha256=" in mlcc("diff", "bound_a.mlc", "bound_b.mlc", code=3)


def test_attributes_of_the_module(mlcc: Tool) -> None:
    text = "@I.ir_module\nclass M:\n    I.module_attrs({'level': 1})\n" + "".join(
        f"    {line}\n" for line in KERNEL.strip().splitlines()
    )
    mlcc.file("one.mlc", text)
    mlcc.file("two.mlc", text.replace("1}", "2}"))
    assert mlcc("diff", "one.mlc", "two.mlc", code=3) == "module.attrs['level']: 1 against 2\n"


def test_artifacts_are_compared_by_manifest(mlcc: Tool) -> None:
    mlcc("compile", "a.mlc", "-o", "a.o", "--prefix", "net")
    mlcc("compile", "a.mlc", "-o", "again.o", "--prefix", "net")
    mlcc.file("b.mlc", NET.replace("96", "80"))
    mlcc("compile", "b.mlc", "-o", "b.o", "--prefix", "net")
    assert mlcc("diff", "a.o", "again.o") == ""
    shown = mlcc("diff", "a.o", "b.o", code=3)
    assert "functions.main.params[1].shape: [64, 96] | [64, 80]" in shown
    entries = json.loads(mlcc("diff", "a.o", "b.o", "--json", code=3))
    assert {"path": "functions.main.results.shape", "left": ["n", 96], "right": ["n", 80]} in entries
    mlcc("diff", "a.o", "a.mlc", code=2)
    assert "compile the text first" in mlcc.err
