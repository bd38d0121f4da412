"""Dtypes at which operators once went wrong, or that they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function
from mlcc.passes.graph.lower_to_tir import LowerToTir
from mlcc.passes.manage.manager import PassContext
from tests.ops.cases import Case, Mine, T


def run_everywhere(case: Case, *inputs: np.ndarray) -> list[Any]:
    module = Mine().module(case)
    lowered = LowerToTir(accurate=True).run(module, PassContext())
    executable = mlcc.load(mlcc.build(module))
    return [run_function(m, "main", inputs) for m in (module, lowered)] + [executable["main"](*inputs)]


@pytest.mark.parametrize(("name", "wanted"), [
    ("logical_and", [1, 0, 0]), ("logical_or", [1, 1, 0]), ("logical_xor", [0, 1, 0])])  # fmt: skip
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_logical_operators_take_any_dtype(name: str, wanted: list[int], dtype: str) -> None:
    case = Case(name, (T((3,), dtype), T((3,), dtype)))
    for got in run_everywhere(case, np.array([2, 0, 0], dtype), np.array([4, 3, 0], dtype)):
        np.testing.assert_array_equal(got, np.array(wanted, dtype), strict=True)


def test_negative_and_not_take_any_dtype() -> None:
    for got in run_everywhere(Case("logical_not", (T((3,)),)), np.array([0, 2, -1], "float32")):
        np.testing.assert_array_equal(got, np.array([1, 0, 0], "float32"), strict=True)
    for got in run_everywhere(Case("negative", (T((3,), "uint8"),)), np.array([0, 1, 255], "uint8")):
        np.testing.assert_array_equal(got, np.array([0, 255, 1], "uint8"), strict=True)


@pytest.mark.parametrize(("name", "dtype", "value"), [
    ("argmax", "uint8", 0), ("argmax", "int32", -(2**31)), ("argmin", "bool", True), ("argmin", "int8", 127),
    ("argmax", "float32", -np.inf)])  # fmt: skip
def test_argmin_of_equals_is_the_first(name: str, dtype: str, value: Any) -> None:
    for got in run_everywhere(Case(name, (T((2, 3), dtype), 1)), np.full((2, 3), value, dtype)):
        np.testing.assert_array_equal(got, [0, 0])


def test_mean_of_integers_is_right() -> None:
    large = np.array([2**62 + 1, 2**60 + 3, -5], "int64")
    for got in run_everywhere(Case("mean", (T((3,), "int64"),)), large):
        assert int(got) == (2**62 + 2**60 - 1) // 3
    for got in run_everywhere(Case("mean", (T((0,), "int32"),)), np.zeros(0, "int32")):
        assert int(got) == 0


def test_empty_batches_are_flattened() -> None:
    for got in run_everywhere(Case("nn.batch_flatten", (T((0, 2, 5)),)), np.zeros((0, 2, 5), "float32")):
        assert got.shape == (0, 10)


def test_tiles_of_nothing() -> None:
    for got in run_everywhere(Case("tile", (T((2, 0)), (2, 1, 3))), np.zeros((2, 0), "float32")):
        assert got.shape == (2, 2, 0)


def test_rms_norm_of_doubles_is_exact() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5))
    wanted = x / np.sqrt(np.mean(x * x, 1, keepdims=True) + 1e-5)
    for got in run_everywhere(Case("nn.rms_norm", (T((2, 5), "float64"), T((5,), "float64"), -1)), x, np.ones(5)):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_pool_of_nothing_but_padding() -> None:
    case = Case("nn.max_pool1d", (T((1, 1, 3), "float16"), 1, 1, 1))
    for got in run_everywhere(case, np.ones((1, 1, 3), "float16")):
        np.testing.assert_array_equal(got.ravel(), np.array([-np.inf, 1, 1, 1, -np.inf], "float16"))


@pytest.mark.parametrize("case", [
    Case("log_add_exp", (T((3,), "int32"), T((3,), "int32"))), Case("variance", (T((3,), "int32"),)),
    Case("std", (T((3,), "uint8"),)), Case("mean", (T((3,), "bool"),)), Case("negative", (T((3,), "bool"),)),
    Case("bitwise_and", (T((3,)), T((3,)))), Case("nn.cross_entropy_with_logits", (T((3,), "int8"), T((3,), "int8"))),
], ids=str)  # fmt: skip
def test_wrong_dtypes_are_refused(case: Case) -> None:
    """By the reference as by the lowering, with the same diagnostic."""
    side = Mine()
    module = side.module(case)
    inputs = [np.ones((3,), a.dtype) for a in case.args if isinstance(a, T)]
    with pytest.raises(CompileError, match="E0444"):
        run_function(module, "main", inputs)
    with pytest.raises(CompileError, match="E0444"):
        mlcc.build(module)
