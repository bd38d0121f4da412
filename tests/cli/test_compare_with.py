"""`mlcc run --compare-with`: the largest differences from a framework or the interpreter, and whether they pass."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcc.frontend import runners, source
from mlcc.ir.dtypes import DType
from mlcc.report.numeric_difference import numeric_difference, rows
from tests.cli.test_check_nan import NET, PRIM, inputs
from tests.cli.test_cli import Tool, f32, mlcc  # noqa: F401
from tests.frontend.fake_model import FakeRunner, write_model

F32 = DType.of("float32")


# ---------------------------------------------------------------- differences


@settings(max_examples=100)
@given(
    st.sampled_from(["float16", "float32", "float64"]),
    st.floats(allow_nan=False, allow_infinity=False, width=16), st.integers(0, 40), st.booleans(),
)  # fmt: skip
def test_ulps_are_steps_of_nextafter(name: str, start: float, steps: int, up: bool) -> None:
    dtype = np.dtype(name)
    first = other = dtype.type(start)
    for _ in range(steps):
        other = np.nextafter(other, dtype.type(np.inf if up else -np.inf))
    if not np.isfinite(other):
        return
    found = numeric_difference("x", np.array([first]), np.array([other]), DType.of(name), 0, 0)
    assert found.ulps is not None and found.absolute is not None
    assert found.ulps.value == steps and found.outside == (first != other)
    assert found.absolute.value == abs(float(first) - float(other))


def test_places_and_tolerances() -> None:
    want = np.array([[1.0, 100.0, 0.0], [2.0, np.nan, np.inf]], np.float32)
    got = want.copy()
    assert rows([numeric_difference("x", got, want, F32, 0, 0)]) == ["x: float32[2, 3]: pass: equal"]
    got[0, 1] += np.float32(0.5)
    got[1, 0] += np.float32(0.25)
    found = numeric_difference("x", got, want, F32, 0.01, 0)
    assert (found.absolute.at, found.relative.at, found.outside) == ((0, 1), (1, 0), 1)  # type: ignore[union-attr]
    assert rows([found])[1].endswith("1 of 6 elements are outside the tolerance, the worst 2.25 instead of 2.0")
    assert numeric_difference("x", got, want, F32, 0.125, 0).passes
    got[1, 2] = 1
    found = numeric_difference("x", got, want, F32, 1, 1)
    assert not found.passes and found.absolute is not None and found.absolute.value == np.inf
    got[1, 2], got[1, 1] = np.inf, 0
    assert not numeric_difference("x", got, want, F32, 1, 1).passes
    got[1, 1], got[0, 2] = np.nan, 1e-30
    found = numeric_difference("x", got, want, F32, 0.125, 1e-6)
    assert found.passes and found.relative is not None and found.relative.value == np.inf


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "bool"])
def test_integers_are_exact(dtype: str) -> None:
    low = np.array([0, 0, 1], dtype)
    high = np.array([0, 1, 1], dtype)
    assert numeric_difference("x", low, low, DType.of(dtype), 1, 1).passes
    found = numeric_difference("x", low, high, DType.of(dtype), 1, 1)
    assert not found.passes and found.absolute is not None and (found.absolute.value, found.absolute.at) == (1, (1,))


def test_what_cannot_be_compared() -> None:
    a = np.zeros((2, 3), np.float32)
    assert "shape [2, 3] instead of [3]" in rows([numeric_difference("x", a, a[0], F32, 1, 1)])[0]
    assert "dtype float32 instead of int32" in rows([numeric_difference("x", a, a.astype("int32"), F32, 1, 1)])[0]
    assert numeric_difference("x", a[:0], a[:0], F32, 0, 0).passes


# ---------------------------------------------------------------- runs


@pytest.mark.parametrize("options", [(), ("-O0",), ("-t", "cuda{arch=sm_80}", "--emulate")], ids=" ".join)
def test_the_interpreter(mlcc: Tool, options: tuple[str, ...]) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET)
    inputs(mlcc)
    out = mlcc("run", "net.mlc", "--in", "in.npz", "--compare-with", "interp", *options)
    assert out.startswith("compared with the interpreter: rtol 1e-05, atol 1e-06\nout: float32[5, 8]: pass: ")
    mlcc("run", "net.mlc", "--in", "in.npz", "--out", "y.npy", *options)
    mlcc("run", "net.mlc", "--in", "in.npz", "--compare-with", "interp", "--out", "z.npy", *options)
    assert np.array_equal(np.load("y.npy"), np.load("z.npy"))


def test_results_that_differ(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    import mlcc.interp as interp

    real = interp.run_function

    def off(*args: object) -> np.ndarray:
        result = real(*args).copy()  # type: ignore[arg-type]
        result[1, 2] += np.float32(0.5)
        return result

    monkeypatch.setattr(interp, "run_function", off)
    mlcc.file("net.mlc", NET)
    inputs(mlcc)
    out = mlcc("run", "net.mlc", "--in", "in.npz", "--compare-with", "interp", code=3)
    assert "out: float32[5, 8]: FAIL: absolute 0.5 at [1, 2]" in out and "1 of 40 elements are outside" in out
    mlcc("run", "net.mlc", "--in", "in.npz", "--compare-with", "interp", "--atol", "1")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_functions_of_loops(mlcc: Tool, dtype: str) -> None:  # noqa: F811
    mlcc.file("m.mlc", PRIM.replace("float16(300)", "float16(3)").replace("float16", dtype))
    stored = {"float16": "float16", "bfloat16": "uint16", "int8": "int8"}[dtype]
    mlcc.npz("in.npz", A=np.array([1, 2, 3, 4, 5, 6], stored))
    out = mlcc("run", "m.mlc", "--in", "in.npz", "--compare-with", "interp")
    assert f"B: {dtype}[6]: pass: equal" in out


def test_the_model_s_framework(mlcc: Tool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.setitem(source.IMPORTERS, ".fake", "tests.frontend.fake_model:read_model")
    monkeypatch.setitem(runners.RUNNERS, ".fake", FakeRunner)
    write_model(Path("net.fake"))
    mlcc.npz("x.npz", x=f32(3, 8))
    mlcc("import", "net.fake", "-o", "net.mlc")
    out = mlcc("run", "net.mlc", "--in", "x.npz", "--compare-with", "net.fake", "--rtol", "1e-4")
    assert re.search(r"^compared with .*\nout: float32\[3, \d+\]: pass", out), out


def test_onnx_runtime(mlcc: Tool) -> None:  # noqa: F811
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [onnx.numpy_helper.from_array(f32(16, 4), "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")
    mlcc.npz("x.npz", x=f32(5, 16))
    for kind in ("onnx", "net.onnx"):
        out = mlcc("run", "net.onnx", "--in", "x.npz", "--compare-with", kind)
        assert out.startswith("compared with ONNX Runtime") and "out: float32[5, 4]: pass" in out
    mlcc("import", "net.onnx", "-o", "net.mlc")
    assert ": pass" in mlcc("run", "net.mlc", "--in", "x.npz", "--compare-with", "net.onnx")
    mlcc("run", "net.onnx", "--in", "x.npz", "--compare-with", "torch", code=1)
    assert "E1077" in mlcc.err and "model.pt2" in mlcc.err


def test_torch(mlcc: Tool) -> None:  # noqa: F811
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))
    x = torch.from_numpy(f32(5, 16))
    torch.export.save(torch.export.export(model.eval(), (x,)), "net.pt2")
    mlcc.npz("x.npz", input=x.numpy())
    out = mlcc("run", "net.pt2", "--in", "x.npz", "--compare-with", "torch")
    assert out.startswith("compared with PyTorch") and "out: float32[5, 3]: pass" in out


def test_what_there_is_no_reference_for(mlcc: Tool) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET)
    inputs(mlcc)
    mlcc("compile", "net.mlc", "-o", "net.o", "-O0")
    for file, kind, said in (
        ("net.mlc", "torch", "net.mlc is no model that torch runs"), ("net.mlc", "tvm", "nothing runs tvm"),
        ("net.o", "interp", "net.o is compiled already"), ("net.o", "onnx", "net.o is no model that onnx runs"),
    ):  # fmt: skip
        mlcc("run", file, "--in", "in.npz", "--compare-with", kind, code=1)
        assert "E1077" in mlcc.err and said in mlcc.err and "help:" in mlcc.err
