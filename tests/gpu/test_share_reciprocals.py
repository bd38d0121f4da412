"""Quotients by a divisor that allows reciprocals: products within 1.5 ULP, where the divisor stays the same."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc import backends
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from tests.targets.test_quotients import divisors, numerators

TARGET = "cuda{arch=sm_80}"
ROWS = """
@T.prim_func
def main(A: T.Buffer(({rows}, {length}), "{dtype}"), D: T.Buffer(({rows},), "{dtype}"),
         B: T.Buffer(({rows}, {length}), "{dtype}")):
    T.func_attr({{"tir.noalias": True}})
    for i in T.thread_binding({rows}, "blockIdx.x"):
        for t in T.thread_binding(32, "threadIdx.x"):
            for j in range({length} // 32):
                B[i, j * 32 + t] = A[i, j * 32 + t] / T.allow_reciprocal(D[i])
"""


def ulps(made: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The distances of results from quotients of a wider type, in units in the last place of the quotients."""
    info = np.finfo(made.dtype)
    exponents = np.maximum(np.frexp(exact.astype(np.float64))[1] - 1, info.minexp)
    difference = np.abs((made.astype(exact.dtype) - exact).astype(np.float64))
    return np.asarray(np.ldexp(difference, info.nmant - exponents))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_are_within_the_bound(dtype: str) -> None:
    """Every kind of divisor and numerator: zeros, denormals, infinities and NaN give what the division gives."""
    d = divisors(dtype)
    length = 512
    a = np.stack([numerators(dtype, length, seed) for seed in range(d.size)])
    text = ROWS.format(rows=d.size, length=length, dtype=dtype)
    made = mlcc.load(mlcc.build(mlcc.parse(text), TARGET), emulate=True)["main"]
    out = np.full_like(a, 7)
    made(a, d, out)
    with np.errstate(all="ignore"):
        expected = a / d[:, None]
        exact = a.astype(np.longdouble) / d.astype(np.longdouble)[:, None]
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    special = (expected == 0) | np.isinf(expected)
    np.testing.assert_array_equal(out[special], expected[special])
    np.testing.assert_array_equal(np.signbit(out[special]), np.signbit(expected[special]))
    usual = ~special & ~np.isnan(expected)
    assert usual.sum() > a.size // 4
    errors = ulps(out[usual], exact[usual])
    assert errors.max() <= 1.5 + 1e-6
    assert errors.max() > 0.5  # it was no division


def lowered(body: str) -> str:
    text = f"""
@T.prim_func
def main(A: T.Buffer((4, 64), "float32"), D: T.Buffer((64,), "float32"), B: T.Buffer((4, 64), "float32")):
    for i in T.thread_binding(4, "threadIdx.x"):
{body}
"""
    steps = backends.of(TARGET).lowering
    shared = steps[: steps.index("share-reciprocals") + 1]
    return mlcc.script(mlcc.run_passes(mlcc.parse(text), ",".join(shared), target=TARGET))


@pytest.mark.parametrize(
    ("divisor", "shared"),
    [
        ("T.allow_reciprocal(D[i])", True),
        ("D[i]", False),  # correctly rounded, as docs/targets.md promises
        ("T.allow_reciprocal(D[j])", False),
        ("T.allow_reciprocal(B[i, 0])", False),  # which the loop stores
    ],
)
def test_only_divisors_that_allow_it_and_stay(divisor: str, shared: bool) -> None:
    body = f"        for j in range(64):\n            B[i, j] = A[i, j] / {divisor}\n"
    text = lowered(body)
    assert ("reciprocal: T.float32" in text) == shared


def test_a_divisor_is_read_early_only_where_it_is_read_anyway() -> None:
    """Not under a condition, nor above a loop that may not run; nor where it serves a single quotient."""
    quotient = "B[i, j] = A[i, j] / T.allow_reciprocal(D[i])"
    selected = "B[i, j] = T.if_then_else(i < 1, A[i, j] / T.allow_reciprocal(D[i]), T.float32(0))"
    for extent, statements in (
        (64, f"            {quotient}\n"),
        (64, f"            if A[i, j] > T.float32(0):\n                {quotient}\n"),
        (64, f"            {selected}\n"),
        (1, f"            {quotient}\n"),
    ):
        text = lowered(f"        for j in range({extent}):\n{statements}")
        assert ("reciprocal: T.float32" in text) == (extent == 64 and statements.strip() == quotient)


def test_a_row_of_a_softmax_divides_once() -> None:
    text = 'x: R.Tensor((4096, 1024), "float32")'
    mod = mlcc.parse(f"@R.function\ndef main({text}):\n    return R.nn.softmax(x)\n")
    ptx = mlcc.build(mod, TARGET).emit("ptx").decode()
    assert ptx.count("rcp.rn.f32") == 1 and "div." not in ptx and ptx.count("ex2.approx") == 32
    if find_ptxas() is not None:
        (resources,) = assemble(ptx, "sm_80").values()
        assert resources.spill_stores == resources.stack == 0
