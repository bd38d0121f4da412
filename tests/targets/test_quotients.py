"""Quotients by a divisor that stays the same in a loop: the division's bits, without divisions."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.targets.llvm.object.compile import Machine
from tests.targets.harness import Native
from tests.targets.test_vmath import CPUS, compiled_text

ROWS = 3


def divided(length: int, lanes: int, dtype: str, divisor: str = "D[i]") -> tir.PrimFunc:
    """Rows by a divisor, that of each if nothing is said, in vectors."""
    row = f'T.Buffer(({ROWS}, {length}), "{dtype}")'
    text = f"""
@T.prim_func
def main(A: {row}, D: T.Buffer(({ROWS},), "{dtype}"), B: {row}):
    T.func_attr({{"tir.noalias": True}})
    for i in range({ROWS}):
        for j in range({length // lanes}):
            for v in T.vectorized({lanes}):
                B[i, j * {lanes} + v] = A[i, j * {lanes} + v] / {divisor}
"""
    func = mlcc.parse(text)["main"]
    assert isinstance(func, tir.PrimFunc)
    return func


@functools.cache
def compiled(length: int, lanes: int, dtype: str, cpu: str) -> Native:
    return Native(divided(length, lanes, dtype), machine=Machine(cpu=cpu))


def numerators(dtype: str, count: int, seed: int) -> np.ndarray:
    """Zeros, what is no number, the ends of the range, bit patterns, and numbers as programs have them, which come in
    runs, so that whole vectors are usual ones."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    bits = np.dtype(f"uint{info.bits}")
    some = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, info.smallest_subnormal]
    with np.errstate(over="ignore"):
        edges = np.array([*some, info.tiny * 2**30, 2.0**100, 2.0**-100, 2.0**967, 2.0**-967]).astype(dtype)
    parts = [
        rng.standard_normal(count // 4),
        np.exp(-rng.uniform(0, 120, count // 4)),
        np.where(rng.random(count // 8) < 0.5, 0.0, rng.random(count // 8)),
        rng.integers(0, 2**info.bits - 1, count // 8, bits, endpoint=True).view(dtype),
        np.resize(edges, count // 8),
        (1 - rng.integers(1, 200, count - 2 * (count // 4) - 3 * (count // 8)) * info.epsneg),  # just below 1
    ]
    return np.concatenate([p.astype(dtype) for p in parts])


def divisors(dtype: str) -> np.ndarray:
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, info.tiny, info.smallest_subnormal, info.max, -1.5, 2.0**-info.nmant]
    near = (2 - rng.integers(1, 100, 12) * info.eps).tolist()  # where quotients are hardest to round
    usual = [1.0, 3.0, 1024.0, 1 / 3, 2.0**info.nmant, *rng.uniform(1, 1000, 15), *rng.uniform(0, 1e-6, 6)]
    made = np.array([*special, *near, *usual], dtype)
    return np.resize(made, -(-made.size // ROWS) * ROWS)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lanes", [16, 20, 64])
def test_the_bits_of_a_division(dtype: str, lanes: int) -> None:
    length = 64 * lanes
    a = np.stack([numerators(dtype, length, seed) for seed in range(ROWS)])
    by = divisors(dtype)
    for cpu in CPUS:
        native = compiled(length, lanes, dtype, cpu)
        for start in range(0, by.size, ROWS):
            d, out = by[start : start + ROWS], np.empty_like(a)
            assert native(a, d, out) == 0
            with np.errstate(all="ignore"):
                expected = a / d[:, None]
            numbers = ~np.isnan(expected)
            np.testing.assert_array_equal(np.isnan(out), ~numbers)
            bits = f"uint{np.finfo(dtype).bits}"
            np.testing.assert_array_equal(out.view(bits)[numbers], expected.view(bits)[numbers], f"{cpu} {d}")


V4 = Machine(cpu="x86-64-v4")


def divisions(func: tir.PrimFunc, machine: Machine = V4) -> tuple[int, int]:
    """Divisions of vectors, and multiplications of vectors that make a quotient exact."""
    asm = compiled_text(func, machine)
    return len(re.findall(r"\sv?divps", asm)), len(re.findall(r"\svfnmadd\w+ps", asm))


def test_multiplications_replace_divisions_where_it_pays() -> None:
    plain, exact = divisions(divided(1024, 16, "float32"))
    assert exact > 0
    short = divisions(divided(64, 16, "float32"))  # getting ready would take longer
    assert short[0] > 0
    assert short[1] == 0
    assert divisions(divided(1024, 16, "float32"), Machine(cpu="x86-64"))[1] == 0  # no fused multiply-add


@pytest.mark.parametrize("divisor", ["D[j % 3]", "B[0, 0]"])
def test_divisors_that_change(divisor: str) -> None:
    func = divided(1024, 16, "float32", divisor)
    assert divisions(func)[1] == 0
    a = np.random.default_rng(0).uniform(1, 2, (ROWS, 1024)).astype("float32")
    d, out = np.array([3, 5, 7], "float32"), np.full_like(a, 2)
    assert Native(func, machine=V4 if V4.cpu in CPUS else Machine())(a, d, out) == 0
    expected = np.full_like(a, 2)
    for at in range(ROWS * 1024):  # what a lane stores, the next one may divide by: no vectors then
        by = d[at % 1024 // 16 % 3] if divisor != "B[0, 0]" else expected[0, 0]
        expected.flat[at] = a.flat[at] / by
    np.testing.assert_array_equal(out, expected)
