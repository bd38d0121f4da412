"""`mlcc analyze --ranges`: what NumPy finds in the same tensors, and what casts make of them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import mlcc as package
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode
from mlcc.report.value_ranges import FORMATS, QUANTILES, TensorRange, ValueRanges
from mlcc.runtime import observer
from tests.cli.test_cli import Tool, mlcc  # noqa: F401

NET = """@R.function
def main(x: R.Tensor((6, 8), "float32"), w: R.Tensor((8, 8), "float32")):
    with R.dataflow():
        a = R.matmul(x, w)  # fc1 (Linear) net.py:7
        b = R.exp(a)
        s = R.multiply(b, R.const(1e-7, "float32"))
        q = R.quantize(b, R.const(0.5, "float32"), R.const(0, "int8"), axis=-1, out_dtype="int8")
        d = R.multiply(R.nn.softmax(b), s)
        R.output(s, q, d)
    return (s, q, d)
"""


def cast_shares(x: np.ndarray, name: str) -> tuple[int, int, int]:
    """What a cast to the format makes of finite elements, counted by looking at its results."""
    dtype = DType.of(name)
    x = x[np.isfinite(x)]
    with np.errstate(over="ignore"):
        made = np.asarray(decode(encode(x, dtype), dtype), np.float64)
    least = {"float16": 2.0**-14, "bfloat16": 2.0**-126}[name]
    zero = (made == 0) & (x != 0)
    return int(np.isinf(made).sum()), int(((made != 0) & (np.abs(made) < least)).sum()), int(zero.sum())


EDGES = [
    65504.0, 65519.9, 65520.0, 65519.996, 2.0**-14, 2.0**-14 - 2.0**-25, 2.0**-14 - 2.0**-24, 2.0**-24, 2.0**-25,
    1.0001 * 2.0**-25, 3.3895313892515355e38, 3.3961775292304601e38, 2.0**-126, 2.0**-126 - 2.0**-134, 2.0**-133,
    2.0**-134, 1.001 * 2.0**-134, 0.0, np.inf, np.nan,
]  # fmt: skip


@settings(max_examples=60)
@given(
    arrays.arrays(
        np.float64, arrays.array_shapes(max_dims=2, max_side=17),
        elements=st.one_of(st.sampled_from(EDGES), st.floats(-1e39, 1e39), st.floats(-1e-3, 1e-3)),
    )
)  # fmt: skip
def test_shares_are_those_of_casts(x: np.ndarray) -> None:
    for dtype in (np.float64, np.float32):
        with np.errstate(over="ignore"):
            given_array = x.astype(dtype)
        found = TensorRange("x", np.dtype(dtype).name, ())
        found.add(given_array)
        for form in FORMATS:
            assert tuple(found.lost[form.name]) == cast_shares(given_array, form.name), form


@settings(max_examples=60)
@given(
    st.lists(
        arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(-1e6, 1e6, width=32)), min_size=1, max_size=4
    )
)
def test_statistics_over_calls(parts: list[np.ndarray]) -> None:
    found = TensorRange("x", "float32", ())
    for part in parts:
        found.add(part)
    whole = np.concatenate(parts)
    assert (found.calls, found.count, found.zeros) == (len(parts), whole.size, int((whole == 0).sum()))
    if not whole.size:
        assert found.as_json()["min"] is None and found.quantile(0.5) == 0
        return
    assert (found.least, found.greatest) == (whole.min(), whole.max())
    for q in QUANTILES:
        true = np.quantile(np.abs(whole.astype(np.float64)), q, method="inverted_cdf")
        assert true * (1 - 2.0**-7) <= found.quantile(q) <= true


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_limits(dtype: str) -> None:
    info = np.iinfo(dtype)
    found = TensorRange("x", dtype, ())
    found.add(np.array([info.min, info.max, info.max, 1, 2, 3, 4, 5], dtype))
    assert found.as_json()["at_limits"] == 3 / 8 and "float16" not in found.as_json()


def numpy_values(x: np.ndarray, w: np.ndarray) -> dict[str, np.ndarray]:
    a = x @ w
    b = np.exp(a)
    s = b * np.float32(1e-7)
    e = np.exp(b.astype(np.float64) - b.max(-1, keepdims=True))
    softmax = (e / e.sum(-1, keepdims=True)).astype(np.float32)
    q = np.clip(np.rint(b / np.float32(0.5)), -128, 127).astype(np.int8)
    return {"x": x, "w": w, "a": a, "b": b, "s": s, "q": q, "d": softmax * s}


@pytest.mark.parametrize("options", [(), ("-O0",), ("-t", "cuda{arch=sm_80}", "-O0")], ids=" ".join)
def test_a_network(mlcc: Tool, options: tuple[str, ...]) -> None:  # noqa: F811
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((6, 8), (8, 8)))
    mlcc.file("net.mlc", NET)
    mlcc.npz("in.npz", x=x, w=w)
    found = json.loads(mlcc("analyze", "net.mlc", "--in", "in.npz", "--ranges", "--json", *options))
    by_name: dict[str, dict[str, Any]] = {}
    for row in found["tensors"]:
        if row["name"] in numpy_values(x, w) and (row["line"] is None or row["made_by"] != "softmax"):
            by_name[row["name"]] = row
    for name, value in numpy_values(x, w).items():
        row = by_name[name]
        assert row["shape"] == list(value.shape) and row["elements"] == value.size and row["calls"] == 1
        assert row["min"] == pytest.approx(float(value.min()), rel=1e-3, abs=1e-30)
        assert row["max"] == pytest.approx(float(value.max()), rel=1e-3)
        if name == "q":
            assert row["at_limits"] == pytest.approx(float(((value == 127) | (value == -128)).mean()))
            beyond = np.rint(numpy_values(x, w)["b"] / np.float32(0.5)) > 127
            assert row["clamped"] == pytest.approx(float(beyond.mean()))
            continue
        over, small, zero = cast_shares(value.astype(np.float64).ravel(), "float16")
        assert row["float16"] == {
            "overflow": over / value.size,
            "subnormal": small / value.size,
            "zero": zero / value.size,
        }
    assert (by_name["a"]["line"], by_name["a"]["origin"]) == (4, "fc1 (Linear) net.py:7")
    assert by_name["x"]["made_by"] == "argument" and len([r for r in found["tensors"] if r["name"] == "x"]) == 1


def test_as_text(mlcc: Tool) -> None:  # noqa: F811
    mlcc.file("net.mlc", NET)
    out = mlcc("analyze", "net.mlc", "--ranges").splitlines()
    assert out[0].startswith("main of net.mlc: ") and out[2].split()[-1] == "tensor"
    (row,) = (line for line in out if "a: float32[6, 8]  matmul  line 4 (fc1)" in line)
    assert row.split()[5:11] == ["."] * 6
    assert any(line.startswith("float16 loses precision or becomes 0 in `") for line in out)
    mlcc("analyze", "net.mlc", "--ranges", "--blocks", "1", code=2)
    mlcc("compile", "net.mlc", "-o", "net.o", "-O0")
    mlcc("analyze", "net.o", "--ranges", code=1)
    assert "E0876" in mlcc.err


LOOP = """@R.function
def main(x: R.Tensor((4,), "float32"), n: R.Tensor((), "bool")):
    if n:
        r = R.exp(x)
    else:
        r = R.negative(x)
    return r
"""


def test_only_what_runs_is_reported() -> None:
    exe = package.load(package.build(package.parse(LOOP), "llvm{cpu=native}", 0, observe=True))
    sites = observer.sites(exe.manifest)
    assert sites is not None and len(sites) == 2
    x = np.array([1, 2, 3, 100], np.float32)
    for taken, greatest in ((True, np.inf), (False, -1)):
        found = ValueRanges(sites)
        with observer.observing(found):
            exe["main"](x, np.array(taken))
        (row,) = (one for one in found.tensors if one.made_by != "argument")
        assert row.calls == 1 and row.infinite == int(taken)
        assert row.greatest == (pytest.approx(np.exp(3.0)) if np.isinf(greatest) else greatest)


QUANTIZED = """@R.function
def main(x: R.Tensor((2, 3, 40), "float32"), s: R.Tensor((3,), "float32")):
    with R.dataflow():
        a = R.quantize(x, s, R.const([5, 0, -7], "int8"), axis=1, out_dtype="int8")
        b = R.quantize(x, R.const(0.02, "float32"), R.const(128, "uint8"), axis=-1, out_dtype="uint8")
        c = R.clip(R.round(R.divide(x, R.const(0.01, "float32"))), -128, 127)
        d = R.astype(c, "int8")
        R.output(a, b, d)
    return (a, b, d)
"""


def clamped(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    return {row["name"]: row.get("clamped") for row in rows if row["name"] in "abcd"}


def test_clamped_elements(mlcc: Tool) -> None:  # noqa: F811
    """What a quantization clamps is counted, per channel as well, and not what just reaches a limit."""
    x = np.random.default_rng(5).normal(0, 2, (2, 3, 40)).astype(np.float32)
    s = np.array([0.01, 0.02, 0.05], np.float32)
    x[0, 1, :5] = np.float32(127) * s[1]  # at the limit
    mlcc.file("net.mlc", QUANTIZED)
    mlcc.npz("in.npz", x=x, s=s)
    found = json.loads(mlcc("analyze", "net.mlc", "--in", "in.npz", "--ranges", "--json"))["tensors"]
    point = np.array([5, 0, -7], np.float32)
    a = np.rint(x / s[:, None]) + point[:, None]
    b = np.rint(x / np.float32(0.02)) + np.float32(128)
    c = np.rint(x / np.float32(0.01))
    expected = {
        "a": ((a < -128) | (a > 127)).mean(), "b": ((b < 0) | (b > 255)).mean(), "c": ((c < -128) | (c > 127)).mean(),
    }  # fmt: skip
    assert min(expected.values()) > 0 and max(expected.values()) < 1
    assert clamped(found) == {**{name: pytest.approx(share) for name, share in expected.items()}, "d": None}
    at_limits = next(row["at_limits"] for row in found if row["name"] == "a")
    assert at_limits > expected["a"]
    lines = mlcc("analyze", "net.mlc", "--in", "in.npz", "--ranges").splitlines()
    assert any(line.startswith("elements beyond the limits were clamped in `") for line in lines)


def test_fused_kernels_tell_nothing_of_clamping(mlcc: Tool) -> None:  # noqa: F811
    """A kernel whose result is not that of the operator at its place has no count, rather than a wrong one."""
    text = QUANTIZED.replace("R.quantize(x, s", "R.quantize(R.multiply(x, x), s")
    mlcc.file("net.mlc", text)
    x = np.random.default_rng(5).normal(0, 2, (2, 3, 40)).astype(np.float32)
    mlcc.npz("in.npz", x=x, s=np.array([0.01, 0.02, 0.05], np.float32))
    fused = json.loads(mlcc("analyze", "net.mlc", "--in", "in.npz", "--ranges", "--json", "-O2"))["tensors"]
    assert clamped(fused)["a"] is None
    alone = json.loads(mlcc("analyze", "net.mlc", "--in", "in.npz", "--ranges", "--json"))["tensors"]
    assert clamped(alone)["a"] is not None


def test_imported_quantizations(mlcc: Tool) -> None:  # noqa: F811
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    scale, point = (onnx.numpy_helper.from_array(a, n) for a, n in ((np.float32(0.5), "s"), (np.int8(3), "z")))
    graph = helper.make_graph(
        [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="input_q")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 50])],
        [helper.make_tensor_value_info("q", TensorProto.INT8, [4, 50])], [scale, point],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "net.onnx")
    x = np.random.default_rng(1).normal(0, 60, (4, 50)).astype(np.float32)
    mlcc.npz("in.npz", x=x)
    (row,) = [r for r in json.loads(mlcc("analyze", "net.onnx", "--in", "in.npz", "--ranges", "--json"))["tensors"]
              if r["dtype"] == "int8" and r["made_by"] not in ("constant", "argument")]  # fmt: skip
    moved = np.rint(x / np.float32(0.5)) + 3
    assert row["clamped"] == pytest.approx(float(((moved < -128) | (moved > 127)).mean()))
