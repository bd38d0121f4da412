"""`R.floor_mod` and `R.floor_divide` of floats are NumPy's `mod` and `floor_divide`, bit for bit, however they run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import mlcc
from mlcc import te
from mlcc.interp import run_function
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.narrow_floats import decode, encode

DTYPES = ("float64", "float32", "float16", "bfloat16")
SPECIAL = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.3, -0.3, 7, -7, 2.5, 1e8, -3e9, 1e30, -1e-30, 5e-324, 1e-45, 65504,
)  # fmt: skip
TEXT = """
@R.function
def main(x: R.Tensor((SIZE,), "DTYPE"), y: R.Tensor((SIZE,), "DTYPE")):
    with R.dataflow():
        m = R.floor_mod(x, y)
        q = R.floor_divide(x, y)
        R.output(m, q)
    return (m, q)
"""


def operands(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Special values with each other, quotients of all sizes, and those that are all but whole."""
    rng = np.random.default_rng(13)
    pairs = np.array(list(itertools.product(SPECIAL, repeat=2)))
    far = rng.standard_normal((2, 1500)) * 10.0 ** rng.integers(-3, 6, (2, 1500))
    tenths = rng.integers(-500, 500, 500) * 0.1
    first = np.concatenate([[1e8, 1e7, -3e9], pairs[:, 0], far[0], tenths])
    second = np.concatenate([[0.3, 0.7, 7.1], pairs[:, 1], far[1], np.full(500, 0.1)])
    return encode(first, DType.of(dtype)), encode(second, DType.of(dtype))


def program(dtype: str) -> tuple[IRModule, list[np.ndarray], list[np.ndarray]]:
    """The program, its arguments, and NumPy's results: in float32 where the type is narrower, rounded once."""
    given = operands(dtype)
    x, y = (decode(a, DType.of(dtype)) for a in given)
    if dtype == "float16":
        x, y = x.astype("float32"), y.astype("float32")
    with np.errstate(all="ignore"):
        wanted = [np.mod(x, y), np.floor_divide(x, y)]
        wanted = [decode(encode(w, DType.of(dtype)), DType.of(dtype)) for w in wanted]
    return mlcc.parse(TEXT.replace("DTYPE", dtype).replace("SIZE", str(len(x)))), list(given), wanted


def assert_same(got: list[np.ndarray], wanted: list[np.ndarray], dtype: str) -> None:
    """Equal, zeros with their signs; NaN is NaN."""
    for have, want in zip(got, wanted, strict=True):
        have = decode(np.asarray(have), DType.of(dtype))
        np.testing.assert_array_equal(have, want)
        told = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(have)[told], np.signbit(want)[told])


@pytest.mark.parametrize("dtype", DTYPES)
def test_interpreted_remainders_are_numpys(dtype: str) -> None:
    module, given, wanted = program(dtype)
    assert_same(run_function(module, "main", given), wanted, dtype)
    for level in ("O0", "O2", "O3"):
        assert_same(run_function(mlcc.run_passes(module, level), "main", given), wanted, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", ("llvm", "llvm{cpu=native}", "cuda{arch=sm_80}"))
def test_compiled_remainders_are_numpys(target: str, dtype: str) -> None:
    module, given, wanted = program(dtype)
    for level in range(4):
        artifact = mlcc.build(module, target, opt_level=level)
        made = mlcc.load(artifact, emulate=True) if target.startswith("cuda") else mlcc.load(artifact)
        assert_same(made["main"](*given), wanted, dtype)


@pytest.mark.parametrize("text", ["R.floor_mod(c, d)", "R.floor_divide(c, d)"])
def test_folded_remainders_are_numpys(text: str) -> None:
    source = f"""
@R.function
def main() -> R.Tensor((3,), "float32"):
    c = R.const([1e8, 1e7, -3e9], "float32")
    d = R.const([0.3, 0.7, 7.1], "float32")
    return {text}
"""
    x, y = np.array([1e8, 1e7, -3e9], "float32"), np.array([0.3, 0.7, 7.1], "float32")
    want = np.mod(x, y) if "mod" in text else np.floor_divide(x, y)
    for level in range(4):
        got = mlcc.load(mlcc.build(mlcc.parse(source), opt_level=level))["main"]()
        np.testing.assert_array_equal(got, want)


def test_bare_lowering_is_tvms() -> None:
    module, _, _ = program("float32")
    assert "T.floor(x[v_ax0] / y[v_ax0])" in mlcc.run_passes(module, "lower-to-tir").script()


@pytest.mark.parametrize("cpu", ("", "{cpu=native}"))
@pytest.mark.parametrize("level", (0, 3))
@pytest.mark.parametrize("dtype", ("float64", "float32"))
def test_remainders_of_functions_are_numpys(dtype: str, level: int, cpu: str) -> None:
    """`FloorMod` is NumPy's `mod`, `FloorDiv` the floor of the rounded quotient, as scalar and as vector code."""
    a, b = te.placeholder((4096,), dtype, "A"), te.placeholder((4096,), dtype, "B")
    c = te.compute((4096,), lambda i: te.floormod(a(i), b(i)), "C")
    d = te.compute((4096,), lambda i: te.floordiv(a(i), b(i)), "D")
    module = IRModule({"main": te.create_prim_func([a, b, c, d])})
    rng = np.random.default_rng(5)
    x, y = (rng.standard_normal(4096) * 10.0 ** rng.integers(-3, 6, 4096) for _ in range(2))
    x, y = x.astype(dtype), y.astype(dtype)
    results = np.empty((4, 4096), dtype)
    run_function(module, "main", [x, y, results[0], results[1]])
    mlcc.load(mlcc.build(module, f"llvm{cpu}", opt_level=level))["main"](x, y, results[2], results[3])
    for mod, quotient in (results[:2], results[2:]):
        np.testing.assert_array_equal(mod, np.mod(x, y))
        np.testing.assert_array_equal(quotient, np.floor(x / y))


@pytest.mark.parametrize("level", ("O0", "O1", "O2"))
def test_the_text_reads_back(level: str) -> None:
    made = mlcc.run_passes(program("float16")[0], level)
    assert mlcc.structural_equal(mlcc.parse(made.script()), made)
