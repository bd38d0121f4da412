"""NaN and infinities through operators that pick elements: reference, lowering, code and the emulated device agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

NAN, INF = np.nan, np.inf
ROWS = np.array([[1, NAN, -INF, -0.0, INF], [-INF] * 5, [NAN, 2, NAN, 2, 1], [3, -1, 3, 0, 1e-40]], "float32")
EMPTY = -np.full((1, 1, 4, 4), INF, "float32")
CORNER = EMPTY.copy()
CORNER[0, 0, 3, 3] = NAN
LIMITS = "R.prim_value(T.float32(-0.5)), R.prim_value(T.float32(0.5))"

# what is computed of `x` (4, 5): what NumPy says of it
OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "R.nn.relu(x)": lambda x: np.maximum(x, 0),
    f"R.clip(x, {LIMITS})": lambda x: np.clip(x, -0.5, 0.5),
    "R.maximum(x, R.const(0.5))": lambda x: np.maximum(x, 0.5),
    "R.minimum(R.const(0.5), x)": lambda x: np.minimum(x, 0.5),
    "R.maximum(x, R.flip(x, 1))": lambda x: np.maximum(x, x[:, ::-1]),
    "R.multiply(x, R.const(0.0))": lambda x: x * 0,
    "R.max(x, axis=[1])": lambda x: x.max(1),
    "R.min(x, axis=[0])": lambda x: x.min(0),
    "R.max(x)": lambda x: x.max(),
    "R.argmax(x, axis=1)": lambda x: x.argmax(1),
    "R.argmin(x, axis=1)": lambda x: x.argmin(1),
    "R.argmax(x, axis=0)": lambda x: x.argmax(0),
    "R.sort(x, axis=1)": lambda x: np.sort(x, 1),
    "R.nn.softmax(x, axis=1)": lambda x: np.where([[False], [False], [False], [True]], _softmax(x), NAN),
    "R.nn.log_softmax(x, axis=1)": lambda x: np.where([[False], [False], [False], [True]], np.log(_softmax(x)), NAN),
}
POOL = "R.nn.max_pool2d(x, pool_size=[{k}, {k}], strides=[{s}, {s}], padding=[{p}, {p}, {p}, {p}])"


def _softmax(x: Any) -> Any:
    power = np.exp(x - x.max(1, keepdims=True))
    return power / power.sum(1, keepdims=True)


def _everywhere(expr: str, shape: tuple[int, ...], dtype: str = "float32") -> list[Callable[[Any], Any]]:
    mod = mlcc.parse(f"@R.function\ndef main(x: R.Tensor({shape}, '{dtype}')):\n    return {expr}\n")
    runs: list[Callable[[Any], Any]] = [lambda x: run_function(mod, "main", [x])]
    runs += [mlcc.load(mlcc.build(mod, opt_level=level))["main"] for level in (0, 2)]
    return [*runs, mlcc.load(mlcc.build(mod, "cuda{arch=sm_90}"), emulate=True)["main"]]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("expr", OF_ROWS)
def test_reductions_of_rows_propagate_nan(expr: str) -> None:
    want = OF_ROWS[expr](ROWS)
    for run in _everywhere(expr, ROWS.shape):
        np.testing.assert_allclose(run(ROWS), want, rtol=1e-5)


@pytest.mark.parametrize("kernel, stride, pad", [(3, 2, 1), (2, 2, 0), (4, 1, 0)])
def test_windows_of_nothing_but_minus_infinity(kernel: int, stride: int, pad: int) -> None:
    for run in _everywhere(POOL.format(k=kernel, s=stride, p=pad), EMPTY.shape):
        assert np.isneginf(run(EMPTY)).all()
        found = run(CORNER)
        assert np.isnan(found[..., -1, -1]).all() and np.isnan(found).sum() == 1


@pytest.mark.parametrize("length", [3, 64, 1000])
def test_reductions_of_long_rows_propagate_nan(length: int) -> None:
    """In vectors, with a rest, and in parallel parts."""
    runs = _everywhere("R.max(x, axis=[1])", (3, length)), _everywhere("R.argmax(x, axis=1)", (3, length))
    for place in {0, length // 2, length - 1}:
        x = np.random.default_rng(0).normal(size=(3, length)).astype("float32")
        x[1, place] = NAN
        for greatest, where in zip(*runs, strict=True):
            np.testing.assert_array_equal(greatest(x), x.max(1))
            np.testing.assert_array_equal(where(x), x.argmax(1))


def test_beside_a_constant_it_is_one_instruction() -> None:
    """relu keeps NaN by the order of its operands."""
    text = "@R.function\ndef main(x: R.Tensor((1024,), 'float32')):\n    return R.nn.relu(x)\n"
    made = mlcc.build(mlcc.parse(text), "llvm{cpu=x86-64-v3}").emit("asm").decode()
    assert "vmaxps" in made and "vcmp" not in made and "vblend" not in made


def test_maxima_of_a_softmax_are_single_instructions() -> None:
    """NaN reaches the result through the exponentials, so neither vectors, nor lanes, nor tails are compared."""
    text = "@R.function\ndef main(x: R.Tensor((9, 1009), 'float32')):\n    return R.nn.softmax(x)\n"
    made = mlcc.build(mlcc.parse(text), "llvm{cpu=x86-64-v4}").emit("asm").decode()
    kernel = made[made.index("kernel.softmax") : made.index("vmulps")]
    assert "vmaxps" in kernel and "vcmp" not in kernel
    for run in _everywhere("R.nn.softmax(x)", (9, 1009)):
        for place in (0, 700, 1008):
            x = np.random.default_rng(0).normal(size=(9, 1009)).astype("float32")
            x[1, place] = NAN
            found = run(x)
            assert np.isnan(found[1]).all() and not np.isnan(np.delete(found, 1, 0)).any()
