"""Sorts of every length and dtype are stable to the bit: by merging, by digits, and side by side in lanes."""

from __future__ import annotations

import functools
import shutil
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.interp import run_function
from mlcc.ops.sort import np_argsort
from tests.targets import c_source

Array = np.ndarray[Any, Any]
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64")
ODD = (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 6e-8)
# shapes and axes: rows of every kind of sort, fewer and more of them than lanes, apart and side by side in memory
CASES = (
    ((0,), 0), ((1,), 0), ((63,), 0), ((64,), 0), ((1009,), 0), ((16, 0), 1), ((5, 131), 1), ((17, 15), 1),
    ((17, 16), 1), ((16, 17), 1), ((19, 97), 1), ((131, 23), 0), ((3, 33, 40), 1), ((2, 20, 40), 2), ((18, 1025), 1),
)  # fmt: skip


def module(op: str, shape: tuple[Any, ...], dtype: str) -> mlcc.IRModule:
    return mlcc.parse(
        f"@R.function\ndef main(x: R.Tensor({shape}, '{dtype}')):\n    return {op}\n".replace("'n'", '"n"')
    )


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> list[Array]:
    """Random bits or numbers, many equal ones, and special values among others."""
    rng = np.random.default_rng(seed)
    few = rng.integers(0, 3, shape).astype(dtype)
    if dtype in INTEGERS:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return [np.frombuffer(rng.bytes(count), dtype).reshape(shape).copy(), few]
    plain = rng.standard_normal(shape).astype(dtype)
    odd = np.where(rng.random(shape) < 0.2, rng.choice(ODD, shape), plain).astype(dtype)
    return [plain, odd, few]


def check(exe: Any, places: Any, x: Array, axis: int, descending: bool) -> None:
    order = np_argsort(x, axis, descending)
    np.testing.assert_array_equal(places["main"](x), order)
    want = np.ascontiguousarray(np.take_along_axis(x, order, axis))
    assert exe["main"](x).tobytes() == want.tobytes()


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_sorts_are_stable_to_the_bit(dtype: str, descending: bool, all_cases: bool) -> None:
    number = [*FLOATS, *INTEGERS].index(dtype)
    for shape, axis in CASES if all_cases else CASES[number % 3 :: 3]:
        made = [
            mlcc.load(mlcc.build(module(f"R.{op}(x, axis={axis}, descending={descending})", shape, dtype)))
            for op in ("sort", "argsort")
        ]
        for x in numbers(shape, dtype, number):
            check(*made, x, axis, descending)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
def test_rows_of_unknown_length(dtype: str) -> None:
    made = [mlcc.load(mlcc.build(module(f"R.{op}(x, axis=1)", ("m", "n"), dtype))) for op in ("sort", "argsort")]
    for shape in ((0, 3), (3, 0), (2, 1), (3, 63), (2, 64), (1, 1000), (20, 70)):
        for x in numbers(shape, dtype):
            check(*made, x, 1, False)


@functools.cache
def rows_of_floats(rows: int) -> tuple[Any, Any]:
    """Executables that sort 90 columns, in lanes for 16 rows and more."""
    made = [mlcc.load(mlcc.build(module(f"R.{op}(x)", (rows, 90), "float32"))) for op in ("sort", "argsort")]
    return made[0], made[1]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_bits(data: st.DataObject) -> None:
    special = [0, 1 << 31, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001]
    word = st.integers(0, 2**32 - 1) | st.sampled_from(special)
    bits = np.array(data.draw(st.lists(word, min_size=1, max_size=90)), "uint32")
    for rows in (1, 16):
        check(*rows_of_floats(rows), np.resize(bits, (rows, 90)).view("float32"), 1, False)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64"])
def test_sorts_as_c_source(dtype: str) -> None:
    for shape in ((17, 20), (1, 80)):
        mod = module("R.sort(x)", shape, dtype)
        exe = c_source.load(c_source.source(mod))
        for x in numbers(shape, dtype):
            assert exe["main"](x).tobytes() == run_function(mod, "main", [x]).tobytes()
