"""The discrete Fourier transform against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function


def transform(shape: str, more: str = "", dtype: str = "float32") -> mlcc.IRModule:
    return mlcc.parse(f'@R.function\ndef main(x: R.Tensor({shape}, "{dtype}")):\n    return R.signal.dft(x{more})\n')


def signal(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype, error", [("float32", 2e-6), ("float64", 1e-14)])
def test_transforms_of_any_length_match_numpy(dtype: str, error: float) -> None:
    """One object for all lengths: powers, products of primes, primes, 1 and none."""
    run = mlcc.load(mlcc.build(transform('("b", "n", 2)', dtype=dtype)))["main"]
    for n in (0, 1, 2, 3, 8, 12, 49, 97, 360, 512, 1009):
        x = signal(2, n, 2, dtype=dtype)
        made = run(x)
        want = np.fft.fft(x[..., 0] + 1j * x[..., 1].astype("float64"), axis=1) if n else np.zeros((2, 0))
        size = max(1.0, np.abs(want).max(initial=0))
        np.testing.assert_allclose(made[..., 0] + 1j * made[..., 1], want, atol=error * size)


def test_real_signals_are_transformed_back() -> None:
    x = signal(3, 10, 4, 1)
    mod = transform('(3, "n", 4, 1)', ", axis=1, onesided=True")
    made = mlcc.load(mlcc.build(mod))["main"](x)
    want = np.fft.rfft(x[..., 0], axis=1)
    np.testing.assert_allclose(made[..., 0] + 1j * made[..., 1], want, atol=1e-5)
    np.testing.assert_allclose(made, run_function(mod, "main", [x]), atol=1e-5)
    full = np.fft.fft(x[..., 0], axis=1)
    pairs = np.stack([full.real, full.imag], -1).astype("float32")
    back = mlcc.load(mlcc.build(transform('(3, "n", 4, 2)', ", axis=1, inverse=True")))["main"](pairs)
    np.testing.assert_allclose(back[..., :1], x, atol=1e-6)


@pytest.mark.parametrize("length", [4, 6, 9])
def test_cut_and_filled_up_signals_match_numpy(length: int) -> None:
    x = signal(6, 2)
    mod = transform("(6, 2)", f", {length}, axis=0")
    mlcc.assert_structural_equal(mlcc.parse(mlcc.script(mod)), mod)
    made = mlcc.load(mlcc.build(mod))["main"](x)
    want = np.fft.fft(x[:, 0] + 1j * x[:, 1], length)
    np.testing.assert_allclose(made[..., 0] + 1j * made[..., 1], want, atol=1e-5)


def test_emulated_transforms_match_the_interpreter() -> None:
    x = signal(2, 12, 2)
    mod = transform("(2, 12, 2)")
    made = mlcc.load(mlcc.build(mod, "cuda{arch=sm_90}"), emulate=True)["main"](x)
    np.testing.assert_allclose(made, run_function(mod, "main", [x]), atol=1e-5)


ONCE = ", inverse=True, onesided=True"


@pytest.mark.parametrize(
    "shape, more, code", [("(4, 3)", "", "E0445"), ("(4, 2)", ", axis=1", "E0446"), ("(4, 2)", ONCE, "E0442")]
)
def test_wrong_transforms_are_refused(shape: str, more: str, code: str) -> None:
    with pytest.raises(CompileError, match=code):
        transform(shape, more)
