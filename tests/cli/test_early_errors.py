"""What a command can know to be wrong with a call or an output, it says before it compiles anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc as package
from mlcc import driver
from mlcc.passes.manage import manager
from mlcc.runtime.manifest import read_function
from mlcc.targets.plan.interface import DeclaredFunctions
from tests.cli.test_cli import Tool
from tests.generate import graphs

NET = """
@I.ir_module
class Net:
    @R.function
    def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 4), "float32")):
        with R.dataflow():
            y = R.matmul(x, w)
            z = R.nn.relu(y)
            R.output(z)
        return z

    @R.function
    def pair(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        b = R.tanh(x)
        return (a, b)
"""
PRIM = """
@T.prim_func
def scale(A: T.Buffer((8,), "float32"), n: T.int32, B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.block("b"):
            v = T.axis.spatial(8, i)
            B[v] = A[v] * T.Cast("float32", n)
"""


@pytest.fixture
def mlcc(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    tool = Tool(tmp_path, capfd)
    tool.file("net.mlc", NET)
    tool.npz("x.npz", x=np.ones((3, 8), np.float32))
    tool.npz("all.npz", x=np.ones((3, 8), np.float32), w=np.ones((8, 4), np.float32))
    tool.npz("wide.npz", x=np.ones((3, 9), np.float32), w=np.ones((8, 4), np.float32))
    return tool


@pytest.fixture
def no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pass run: a command that gets as far has told too late."""

    def refuse(*args: Any) -> Any:
        raise AssertionError("a pass ran")

    monkeypatch.setattr(manager, "_run_pass", refuse)


CALLS = [
    (("--in", "x.npz"), "E0004", "no array for parameter `w`"),
    (("--in", "wide.npz"), "E0805", "argument `x`"),
    (("--in", "all.npz", "--func", "man"), "E0005", "did you mean `main`?"),
    (("--in", "all.npz", "--func", "pair"), "E0004", "has no parameter `w`"),
    (("--random",), "E0017", "the size of `n`"),
    (("--random", "--size", "n=3,k=2"), "E0017", "`k`"),
    (("--random", "--size", f"n={2**62}"), "E0017", "does not fit into memory"),
    (("--random", "--size", f"n={10**20}"), "E0017", "does not fit into memory"),
]
COMMANDS = [
    ("run",), ("run", "-O0", "--trace", "t.json"), ("run", "--compare-with", "interp"), ("run", "--check-nan"),
    ("bench", "--profile"), ("bench",), ("report", "-o", "r.html"), ("report", "--json", "-t", "cuda"),
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(("options", "error", "said"), CALLS, ids=lambda v: " ".join(v) if isinstance(v, tuple) else v)
@pytest.mark.usefixtures("no_pass")
def test_calls_are_checked_before_passes(
    mlcc: Tool, command: tuple[str, ...], options: tuple[str, ...], error: str, said: str
) -> None:
    mlcc(*command, "net.mlc", *options, code=1)
    assert error in mlcc.err and said in mlcc.err
    assert {path.name for path in Path().iterdir()} <= {"net.mlc", "x.npz", "all.npz", "wide.npz", "t.json"}


@pytest.mark.usefixtures("no_pass")
@pytest.mark.parametrize("options", [("--func", "man"), ("--size", "k=2"), ("--in", "x.npz", "--size", "n=3")])
@pytest.mark.parametrize("ranges", [(), ("--ranges",)])
def test_analyses_are_checked_before_passes(mlcc: Tool, ranges: tuple[str, ...], options: tuple[str, ...]) -> None:
    wrong = options != ("--in", "x.npz", "--size", "n=3")
    if wrong:
        mlcc("analyze", "net.mlc", *ranges, *options, code=1)
        assert "E0005" in mlcc.err or "E0017" in mlcc.err
    else:  # random weights beside given inputs
        with pytest.raises(AssertionError, match="a pass ran|exit code"):
            mlcc("analyze", "net.mlc", *ranges, *options)


@pytest.mark.usefixtures("no_pass")
@pytest.mark.parametrize(
    ("kind", "said"), [("torch", "no model that torch runs"), ("tvm", "nothing runs tvm"), ("no.onnx", "no.onnx")]
)
def test_references_are_found_before_passes(mlcc: Tool, kind: str, said: str) -> None:
    mlcc("run", "net.mlc", "--in", "all.npz", "--compare-with", kind, code=1)
    assert said in mlcc.err


@pytest.mark.usefixtures("no_pass")
def test_one_array_for_several_results_is_refused_before_passes(mlcc: Tool) -> None:
    mlcc("run", "net.mlc", "--random", "--func", "pair", "--out", "y.npy", code=1)
    assert "E0012" in mlcc.err and "has 2 results" in mlcc.err


def test_pipelines_may_bind_parameters(mlcc: Tool) -> None:
    """A pipeline of the user changes what a function takes; so the arrays are matched when it is compiled."""
    mlcc.npz("w.npz", w=np.ones((8, 4), np.float32))
    line = ("net.mlc", "-p", "bind-params{params=w.npz},O1", "--in", "x.npz")
    mlcc("run", *line, "--out", "y.npz")
    assert np.array_equal(np.load("y.npz")["out"], np.full((3, 4), 8, np.float32))
    mlcc("report", *line, "--repeat", "2", "-o", "r.html")


@pytest.mark.usefixtures("no_pass")
@pytest.mark.parametrize("place", ["/proc/no", "no" * 200, "none/no"], ids=["no folder for files", "long", "missing"])
@pytest.mark.parametrize(
    "line",
    [
        ("report", "-o", "{}.html"), ("report", "--json", "-o", "{}.json"), ("graph", "-o", "{}.svg"),
        ("compile", "-o", "net.o", "--trace", "{}.json"), ("compile", "-o", "{}.o"),
        ("run", "--in", "all.npz", "--trace", "{}.json"), ("run", "--in", "all.npz", "--out", "{}.npz"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_outputs_are_checked_before_passes(mlcc: Tool, line: tuple[str, ...], place: str) -> None:
    mlcc(line[0], "net.mlc", *(word.format(place) for word in line[1:]), code=1)
    assert "E0002" in mlcc.err and f"cannot write {place}" in mlcc.err


def test_graphs_of_unknown_functions(mlcc: Tool) -> None:
    mlcc("graph", "net.mlc", "--func", "pear", "-o", "g.svg", code=1)
    assert "E0005" in mlcc.err and "pair" in mlcc.err


@pytest.mark.parametrize("target", ["llvm", "cuda", "c"])
@pytest.mark.parametrize("seed", range(6))
def test_declared_parameters_are_those_of_the_artifact(seed: int, target: str) -> None:
    module = graphs.module(seed)
    declared = DeclaredFunctions(module)
    built = driver.build(module, target).manifest["functions"]
    assert [*declared.functions] == [*built]
    for name, spec in built.items():
        assert read_function(name, spec).params == declared[name].spec.params


def test_declared_parameters_of_loops(mlcc: Tool) -> None:
    module = package.parse(PRIM)
    spec = DeclaredFunctions(module)["scale"].spec
    assert [(p.name, p.kind, p.role) for p in spec.params] == [
        ("A", "tensor", "in"), ("n", "scalar", "in"), ("B", "tensor", "out"),
    ]  # fmt: skip
    assert spec.params == read_function("scale", driver.build(module).manifest["functions"]["scale"]).params
