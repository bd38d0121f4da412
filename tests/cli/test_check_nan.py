"""`mlcc run --check-nan`: the first kernel that makes a NaN or an infinity, by the compiled module's own tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc as package
from mlcc.errors import NotFiniteError
from mlcc.report.nan_check import NanCheck
from mlcc.runtime import observer
from tests.cli.test_cli import Tool, f32, mlcc  # noqa: F401

NET = """@R.function
def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor((8, 8), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)  # fc1 (Linear) net.py:7
        b = R.log(a)
        c = R.nn.softmax(b)
        d = R.add(c, a)
        R.output(d)
    return d
"""
TARGETS = [(), ("-O0",), ("-t", "cuda{arch=sm_80}", "--emulate"), ("--sanitize",)]


def inputs(tool: Tool, bad_row: int | None = None, rows: int = 5) -> Path:
    x, w = np.abs(f32(rows, 8)) + 1, np.abs(f32(8, 8)) + 1
    if bad_row is not None:
        x[bad_row] *= -1
    return tool.npz("in.npz", x=x, w=w)


@pytest.mark.parametrize("options", TARGETS, ids=" ".join)
def test_the_first_kernel_is_named(mlcc: Tool, options: tuple[str, ...]) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET)
    inputs(mlcc)
    out = mlcc("run", "net.mlc", "--in", "in.npz", "--check-nan", *options)
    assert "check-nan: none of " in mlcc.err and "out: float32[5, 8]" in out
    inputs(mlcc, bad_row=3)
    out = mlcc("run", "net.mlc", "--in", "in.npz", "--check-nan", "--out", "y.npy", *options, code=3)
    assert out == "" and not Path("y.npy").exists()
    assert mlcc.err.startswith("net.mlc:5:13: error[E0877]: the kernel `"), mlcc.err
    assert "makes a NaN: 8 NaN of 40 elements in its result float32[5, 8] (`b`); element [3, 0] is nan" in mlcc.err
    assert "        b = R.log(a)\n" in mlcc.err
    x, w = np.load("in.npz").values()
    assert f"is {(x @ w)[3, 0]:.4f}"[:8] in mlcc.err and "at [3, 0]" in mlcc.err


def test_nodes_of_models_are_named(mlcc: Tool) -> None:  # noqa: F811
    """A model has no lines: what makes a NaN, ranges, and traces name its nodes."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
             helper.make_node("Log", ["y"], ["z"], name="logarithm")]  # fmt: skip
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [5, 8]) for name in "xz"]
    weights = [onnx.numpy_helper.from_array(-np.eye(8, dtype=np.float32), "w")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")
    mlcc.npz("x.npz", x=np.ones((5, 8), np.float32))
    mlcc("run", "net.onnx", "--in", "x.npz", "--check-nan", "-O0", "--trace", "t.json", code=3)
    assert "logarithm = Log" in mlcc.err and "makes a NaN" in mlcc.err
    places = [e["args"] for e in json.loads(Path("t.json").read_text())["traceEvents"] if e.get("cat") == "kernel"]
    assert [(p["place"], p["origin"]) for p in places] == [
        ("net.onnx", "product = MatMul"), ("net.onnx", "logarithm = Log"),
    ]  # fmt: skip
    out = mlcc("analyze", "net.onnx", "--ranges", "--in", "x.npz")
    assert "(logarithm)" in out and "line 2" not in out


def test_infinities(mlcc: Tool) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET.replace("R.log(a)", "R.exp(a)").replace("R.nn.softmax(b)", "R.subtract(b, b)"))
    mlcc.npz("in.npz", x=np.full((2, 8), 10, np.float32), w=np.eye(8, dtype=np.float32) * 10)
    mlcc("run", "net.mlc", "--in", "in.npz", "--check-nan", "-O0", code=3)
    assert "net.mlc:5:13" in mlcc.err and "makes an infinity: 16 infinite of 16 elements" in mlcc.err
    mlcc("run", "net.mlc", "--in", "in.npz", "--check-nan", "--allow-inf", "-O0", code=3)
    assert "net.mlc:6:13" in mlcc.err and "makes a NaN: 16 NaN of 16" in mlcc.err and "is inf at [0, 0]" in mlcc.err


def test_what_comes_in_is_nobody_s_fault(mlcc: Tool) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET)
    path = inputs(mlcc)
    x, w = np.load(path).values()
    x[0, 0] = np.nan
    mlcc.npz("in.npz", x=x, w=w)
    mlcc("run", "net.mlc", "--in", "in.npz", "--check-nan")
    assert "note: the argument `x` has 1 NaN of 40 elements" in mlcc.err and "none of " in mlcc.err


IN_PLACE = """
@I.ir_module
class Module:
    @T.prim_func(private=True)
    def put(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(2):
            with T.block("put"):
                vi = T.axis.spatial(2, i)
                C[vi] = A[vi]

    @R.function
    def main(a: R.Tensor((4,), "float32"), cache: R.Tensor((4,), "float32")):
        cls = Module
        b = R.call_tir_inplace(cls.put, (a, cache), inplace_indices=[1], out_sinfo=R.Tensor((4,), "float32"))
        c = R.call_dps_packed("t.spoil", (b,), R.Tensor((4,), "float32"))
        return c
"""


SPOIL = """
import mlcc, numpy as np

@mlcc.register_func("t.spoil", override=True)
def spoil(x, y):
    with np.errstate(divide="ignore"):
        y[...] = 1 / x
"""


def test_calls_in_place_and_packed_functions(mlcc: Tool) -> None:  # noqa: F811
    """A cache that has a NaN already is not the fault of the kernel that writes other elements of it."""
    mlcc.file("m.mlc", IN_PLACE)
    mlcc.file("env.py", SPOIL)
    mlcc.npz("in.npz", a=np.ones(4, np.float32), cache=np.array([0, 0, 0, np.nan], np.float32))
    mlcc("run", "m.mlc", "--in", "in.npz", "--env", "env.py", "--check-nan", "--allow-inf")
    mlcc.npz("in.npz", a=np.ones(4, np.float32), cache=np.zeros(4, np.float32))
    mlcc("run", "m.mlc", "--in", "in.npz", "--env", "env.py", "--check-nan", code=3)
    assert "the packed function `t.spoil` makes an infinity: 2 infinite of 4 elements" in mlcc.err
    assert "element [2] is inf" in mlcc.err and "is 0.0 at [2], from 0.0 to 1.0" in mlcc.err


PRIM = """
@T.prim_func
def main(A: T.Buffer((6,), "float16"), B: T.Buffer((6,), "float16")):
    for i in range(6):
        with T.block("B"):
            vi = T.axis.spatial(6, i)
            B[vi] = A[vi] * T.float16(300)
"""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_function_of_loops_and_narrow_floats(mlcc: Tool, dtype: str) -> None:  # noqa: F811
    mlcc.file("m.mlc", PRIM.replace("float16(300)", "float16(300)").replace("float16", dtype))
    if dtype == "float16":
        mlcc.npz("in.npz", A=np.array([1, 2, 300, 4, 5, 6], np.float16))
    else:
        mlcc.npz("in.npz", A=np.array([0x3F80, 0x4000, 0x7F7F, 0, 0, 0], np.uint16))
    mlcc("run", "m.mlc", "--in", "in.npz", "--check-nan", code=3)
    assert f"makes an infinity: 1 infinite of 6 elements in its result {dtype}[6]; element [2] is inf" in mlcc.err


def test_what_was_not_built_for_it(mlcc: Tool) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET)
    inputs(mlcc)
    mlcc("compile", "net.mlc", "-o", "net.o", "-O0")
    mlcc("run", "net.o", "--in", "in.npz", "--check-nan", code=1)
    assert "E0876" in mlcc.err


OPS = {"exp": np.exp, "log": np.log, "sqrt": np.sqrt, "negative": np.negative, "square": np.square, "tanh": np.tanh}


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(sorted(OPS)), min_size=1, max_size=6),
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=7),
)
def test_chains_agree_with_numpy(ops: list[str], numbers: list[float]) -> None:
    """NumPy, operator by operator, finds the same culprit and the same element."""
    lines = [f"        v{at + 1} = R.{op}(v{at})\n" for at, op in enumerate(ops)]
    text = f'@R.function\ndef main(v0: R.Tensor(({len(numbers)},), "float32")):\n    with R.dataflow():\n'
    text += f"{''.join(lines)}        R.output(v{len(ops)})\n    return v{len(ops)}\n"
    exe = package.load(package.build(package.parse(text), "llvm{cpu=native}", 0, observe=True))
    sites = observer.sites(exe.manifest)
    assert sites is not None and [site.binding for site in sites] == [f"v{at + 1}" for at in range(len(ops))]
    value = np.array(numbers, np.float32)
    expected = None
    with np.errstate(all="ignore"):
        for at, op in enumerate(ops):
            value = OPS[op](value)
            if not np.isfinite(value).all():
                bad = np.isnan(value) if np.isnan(value).any() else np.isinf(value)
                expected = f"(`v{at + 1}`); element [{int(bad.argmax())}] is "
                break
    check = NanCheck(sites)
    with observer.observing(check):
        if expected is None:
            exe["main"](np.array(numbers, np.float32))
            assert check.calls == len(ops)
            return
        with pytest.raises(NotFiniteError) as caught:
            exe["main"](np.array(numbers, np.float32))
    assert expected in caught.value.diagnostics[0].message


def test_code_without_observers_has_none() -> None:
    artifact = package.build(package.parse(NET), "llvm{cpu=native}")
    assert "observed" not in artifact.manifest and not artifact.manifest.get("packed")
