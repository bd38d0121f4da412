"""Shifts by constants: a count outside the width shifts everything out, wherever it is computed."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.arith.analyzer import Analyzer
from mlcc.interp import run_function
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import DType

VALUES = [1, 3, 100, 0, 127, -1, -100]
COUNTS = [0, 1, 7, 8, 31, 32, 63, 64, 100, -1]


def expected(x: np.ndarray, count: int, left: bool) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    made = [
        (int(v) << count if left else int(v) >> count) if 0 <= count < bits else 0 if left or v >= 0 else -1 for v in x
    ]
    return np.array([m & (1 << bits) - 1 for m in made], f"uint{bits}").view(x.dtype)


def counts(dtype: str) -> list[int]:
    info = np.iinfo(dtype)
    return [c for c in COUNTS if info.min <= c <= info.max]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_shifts_by_constants_match_numpy(dtype: str) -> None:
    x = np.array(VALUES).astype(dtype)
    for left in (True, False):
        name, sign = ("left", "<<") if left else ("right", ">>")
        body = "\n".join(
            f"        y[{2 * k}, i] = T.shift_{name}(x[i], T.{dtype}({c}))\n"
            f"        y[{2 * k + 1}, i] = x[i] {sign} T.{dtype}({c})"
            for k, c in enumerate(counts(dtype))
        )
        shape = (2 * len(counts(dtype)), len(x))
        module = mlcc.parse(
            f'@T.prim_func\ndef main(x: T.Buffer(({len(x)},), "{dtype}"), y: T.Buffer({shape}, "{dtype}")):\n'
            f"    for i in range({len(x)}):\n{body}"
        )
        assert mlcc.structural_equal(mlcc.parse(mlcc.script(module)), module)
        want = np.stack([expected(x, c, left) for c in counts(dtype) for _ in range(2)])
        for level in (None, 0, 2):
            y = np.zeros(shape, dtype)
            if level is None:
                run_function(module, "main", [x, y])
            else:
                mlcc.load(mlcc.build(module, opt_level=level))["main"](x, y)
            np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_constants_fold_to_the_same(dtype: str) -> None:
    for left, fold in ((True, calls.shift_left), (False, calls.shift_right)):
        for value in np.array(VALUES).astype(dtype):
            for count in counts(dtype):
                made = fold(construct.const(int(value), dtype), construct.const(count, dtype))
                assert isinstance(made, tir.IntImm)
                assert made.value == expected(np.array([value], dtype), count, left)[0]


def test_bounds_know_the_width() -> None:
    known, n = Analyzer(), tir.Var("n", DType.of("int32"))
    known.bind_bound(n, 1, 5)
    out = calls.shift_left(n, construct.const(32, "int32"))
    assert not known.prove(construct.less(0, out)) and not known.prove_equal(
        construct.floormod(out, 8), construct.const(3, "int32")
    )
    assert known.prove(construct.less(7, calls.shift_left(n, construct.const(3, "int32"))))


def test_sizes_are_shifted_alike() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n",), "float32")):
    n = T.int64()
    a = R.zeros(R.shape([1 + (n << 2), 3 + (n >> 1)]), "float32")
    b = R.zeros(R.shape([1 + (n << 64), 1 + (n >> 70)]), "float32")
    return (a, b)
"""
    module = mlcc.parse(text)
    given = np.ones(6, "float32")
    for made in (run_function(module, "main", [given]), mlcc.load(mlcc.build(module, opt_level=0))["main"](given)):
        assert [v.shape for v in made] == [(25, 6), (1, 1)]
