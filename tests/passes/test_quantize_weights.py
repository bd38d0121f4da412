"""`quantize-weights`: what is stored against NumPy, what is computed with it, and what stays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.ir import IRModule, relax
from mlcc.ir.node import find

WAYS = ("bits=4", "bits=8", "bits=4, group=64, zero-points=true", "bits=8, group=0, scale=float32")
TEXT = """
@R.function
def main(ids: R.Tensor(("m",), "int64"), w: R.Tensor((256, 192), "{dtype}"), table: R.Tensor((500, 192), "{dtype}")):
    with R.dataflow():
        a = R.take(table, ids, axis=0)
        b = R.matmul(a, R.permute_dims(w))
        c = R.matmul(b, w)
        y = R.matmul(c, R.permute_dims(table))
        R.output(y)
    return y
"""


def _module(tmp_path: Path, dtype: str = "float32", **arrays: np.ndarray) -> IRModule:
    rng = np.random.default_rng(1)
    given = {"w": rng.normal(size=(256, 192)), "table": rng.normal(size=(500, 192)), **arrays}
    np.savez(tmp_path / "w.npz", **{name: value.astype(dtype) for name, value in given.items()})
    return mlcc.run_passes(mlcc.parse(TEXT.format(dtype=dtype)), f"bind-params{{params={tmp_path / 'w.npz'}}}")


def _constants(module: IRModule) -> dict[str, np.ndarray]:
    return {c.data.key: c.data.array for c in find(module["main"], relax.Constant) if c.data.key}


def _decoded(data: dict[str, np.ndarray], name: str, bits: int, group: int) -> np.ndarray:
    values = data[f"{name}.int{bits}"]
    if bits == 4:
        values = np.stack([values & 15, values >> 4], 1).reshape(-1, values.shape[1])
    values = values.astype("int32")
    zeros = data.get(f"{name}.zero_point")
    if bits == 4 and zeros is None:
        values = (values ^ 8) - 8
    group = group or len(values)
    moved = values if zeros is None else values - np.repeat(zeros.astype("int32"), group, 0)
    return moved * np.repeat(data[f"{name}.scale"].astype("float32"), group, 0)


@pytest.mark.parametrize("way", WAYS)
def test_stored_and_computed_values_match_numpy(tmp_path: Path, way: str) -> None:
    bits, group = int(way[5]), int(way.partition("group=")[2].partition(",")[0] or 32)
    weights = np.load(tmp_path / "w.npz") if _module(tmp_path) else {}
    made = mlcc.run_passes(_module(tmp_path), f"normalize,quantize-weights{{{way}}}")
    data = _constants(made)
    table = _decoded(data, "table", bits, group).T
    step = np.repeat(np.abs(data["table.scale"].astype("float32")), group or 192, 0).T
    assert np.all(np.abs(table - weights["table"]) <= step * 0.52)
    run = {level: mlcc.load(mlcc.build(made, opt_level=level))["main"] for level in (0, 2)}
    ids = np.array([3, 499, 0])
    # of the two forms of one weight, each has groups along its own depth
    parts = [c.data for c in find(made["main"], relax.Constant) if c.data.key.startswith("w.")]
    first, second = ({d.key: d.array for d in parts if d.shape[1] == n} for n in (256, 192))
    b = table[ids] @ _decoded(first, "w", bits, group)
    expected = b @ _decoded(second, "w", bits, group) @ table.T
    for level in run:
        np.testing.assert_allclose(run[level](ids), expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", ["float16"])
def test_halves_are_computed_in_float32(tmp_path: Path, dtype: str) -> None:
    made = mlcc.run_passes(_module(tmp_path, dtype), "normalize,quantize-weights{bits=8}")
    assert str(made["main"].ret_struct_info.dtype) == dtype
    assert {str(c.data.dtype) for c in find(made["main"], relax.Constant)} <= {"int8", "float16"}
    assert np.isfinite(mlcc.load(mlcc.build(made))["main"](np.array([1, 2])).astype("float32")).all()


def test_unsuitable_weights_stay(tmp_path: Path) -> None:
    whole = _module(tmp_path)
    for way in ("group=50", "group=0"):
        before = mlcc.run_passes(whole, "normalize")
        after = mlcc.run_passes(before, f"quantize-weights{{{way}}}")
        assert (set(_constants(after)) == {"w", "table"}) == (way == "group=50")
    small = mlcc.parse(
        '@R.function\ndef main(x: R.Tensor((2, 64), "float32"), w: R.Tensor((64, 8), "float32")):\n'
        "    return R.matmul(x, w)"
    )
    mlcc.assert_structural_equal(
        mlcc.run_passes(small, "normalize,quantize-weights"), mlcc.run_passes(small, "normalize")
    )


@pytest.mark.parametrize(
    ("way", "spoilt", "says"),
    [
        ("group=3", None, "even"),
        ("bits=4", np.nan, "not finite"),
        ("bits=4", 1e9, "too large for float16"),
    ],
)
def test_wrong_weights_are_refused(tmp_path: Path, way: str, spoilt: Any, says: str) -> None:
    w = np.ones((256, 192))
    w[7, 5] = 1 if spoilt is None else spoilt
    with pytest.raises(CompileError, match=says) as problem:
        mlcc.run_passes(_module(tmp_path, w=w), f"normalize,quantize-weights{{{way}}}")
    assert problem.value.diagnostics[0].code == "E0548"
