"""`mlcc graph`: a picture, or a text for Graphviz."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.cli.test_cli import Tool

NET = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 96), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)
        b = R.nn.relu(a)
        c = R.add(b, R.const(1.0, "float32"))
        R.output(c)
    return c

@R.function
def second(x: R.Tensor((8,), "float32")):
    y = R.exp(x)
    return y
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
    tool.file("net.mlc", NET)
    tool.file("kernel.mlc", KERNEL)
    return tool


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_picture_names_operators_and_shapes(mlcc: Tool) -> None:
    shown = texts(mlcc("graph", "net.mlc"))
    assert {"R.matmul", "R.nn.relu", "R.add", "(n, 96) float32", "x", "w"} <= {*shown}
    mlcc("graph", "net.mlc", "-o", "net.svg")
    assert texts((mlcc.folder / "net.svg").read_text()) == shown


def test_functions_are_chosen(mlcc: Tool) -> None:
    assert "R.exp" in texts(mlcc("graph", "net.mlc", "--func", "second"))
    mlcc("graph", "net.mlc", "--func", "third", code=1)
    assert "E0005" in mlcc.err and "main, second" in mlcc.err
    assert "T.block" in texts(mlcc("graph", "kernel.mlc"))


def test_a_text_for_graphviz(mlcc: Tool) -> None:
    mlcc("graph", "net.mlc", "-o", "net.dot")
    assert (mlcc.folder / "net.dot").read_text().startswith('digraph "main" {')
    mlcc("graph", "net.mlc", "-o", "net.png", code=1)
    assert "E0012" in mlcc.err
    mlcc("graph", "net.mlc", "-o", "net.mlc", code=1)
    for name in ("net", "net.txt"):  # nothing says which of both
        mlcc("graph", "net.mlc", "-o", name, code=1)
        assert "E0012" in mlcc.err and "use one of .svg, .dot\n" in mlcc.err
        assert not (mlcc.folder / name).exists()
    mlcc("graph", "net.mlc", "-o", "net.gv")
    assert (mlcc.folder / "net.gv").read_text() == (mlcc.folder / "net.dot").read_text()
    for text in (".svg", ".dot", ".gv", "stdout"):
        assert text in mlcc("graph", "--help")


def test_artifacts_have_no_graph(mlcc: Tool) -> None:
    mlcc("compile", "kernel.mlc", "-o", "kernel.o")
    mlcc("graph", "kernel.o", code=2)
    assert "name the text" in mlcc.err
