"""What references compute where NumPy's own rules lead astray: against values worked out by hand or by other means."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CallError
from mlcc.interp import run_function


def program(params: str, call: str) -> Any:
    return mlcc.parse(f"@R.function\ndef main({params}):\n    gv = {call}\n    return gv\n")


def both(module: Any, *inputs: np.ndarray) -> list[Any]:
    """By the interpreter, and compiled."""
    return [run_function(module, "main", inputs), mlcc.load(mlcc.build(module))["main"](*inputs)]


def test_shifts_of_64_bits_do_not_pass_through_floats() -> None:
    module = program('x: R.Tensor((3,), "uint64"), y: R.Tensor((3,), "uint64")', "R.right_shift(x, y)")
    x, y = np.array([2**64 - 2, 2**64 - 1, 5], "uint64"), np.array([0, 63, 64], "uint64")
    for got in both(module, x, y):
        assert got.tolist() == [2**64 - 2, 1, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_mean_of_more_elements_than_the_dtype_counts(dtype: str) -> None:
    for got in both(program(f'x: R.Tensor(("n",), "{dtype}")', "R.mean(x)"), np.full(1000, 100, dtype)):
        assert got.dtype == dtype and got == 100


def test_mean_of_the_least_integer_truncates() -> None:
    data = np.array([-(2**62)] * 2 + [0] * 3)
    for got in both(program('x: R.Tensor((5,), "int64")', "R.mean(x)"), data):
        assert got == -1844674407370955161


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_attention_with_more_queries_than_keys(dtype: str) -> None:
    """The diagonal starts at |queries - keys|: with one key every query sees it, whatever its score."""
    params = ", ".join(f'{n}: R.Tensor((1, {s}, 1, 2), "{dtype}")' for n, s in (("q", 5), ("k", 1), ("v", 1)))
    q, k, v = np.full((1, 5, 1, 2), -3, dtype), np.ones((1, 1, 1, 2), dtype), np.array([[[[2, 7]]]], dtype)
    for got in both(program(params, 'R.nn.attention(q, k, v, causal_mask="BottomRight")'), q, k, v):
        np.testing.assert_array_equal(got, np.broadcast_to(v, (1, 5, 1, 2)))


def test_scores_of_float64_are_not_scaled_in_float32() -> None:
    params = ", ".join(f'{n}: R.Tensor((1, 2, 1, 3), "float64")' for n in "qkv")
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(1, 2, 1, 3)) for _ in range(3))
    weights = np.exp(q[0, :, 0] @ k[0, :, 0].T / np.sqrt(3))
    want = weights / weights.sum(1, keepdims=True) @ v[0, :, 0]
    for got in both(program(params, "R.nn.attention(q, k, v)"), q, k, v):
        np.testing.assert_allclose(got[0, :, 0], want, rtol=1e-13)


def test_the_shape_of_a_scalar() -> None:
    assert both(program('x: R.Tensor((), "float32")', "R.shape_of(x)"), np.zeros((), "float32")) == [(), ()]


def test_sizes_and_shapes_as_tensors() -> None:
    data = np.zeros((3, 0, 2), "float32")
    params = 'x: R.Tensor(("n", "m", 2), "float32")'
    for got in both(program(params, "R.shape_to_tensor(R.shape_of(x))"), data):
        assert got.tolist() == [3, 0, 2] and got.dtype == np.int64
    for got in both(program(params, "R.size(x)"), data):
        assert got == 0 and got.dtype == np.int64


@pytest.mark.parametrize(
    ("call", "code"), [("R.take(x, i, axis=0)", "E0818"), ("R.gather_nd(x, R.reshape(i, (1, 1)))", "E0818")]
)
def test_an_index_outside_is_a_diagnostic(call: str, code: str) -> None:
    module = program('x: R.Tensor((2,), "float32"), i: R.Tensor((1,), "int64")', call)
    with pytest.raises(CallError) as caught:
        run_function(module, "main", (np.zeros(2, "float32"), np.array([7])))
    assert caught.value.diagnostics[0].code == code
