"""Products with a matrix for each group of rows, against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.interp import run_function


def product(data: str, weights: str, ends: str, dtype: str = "float32", index: str = "int32") -> mlcc.IRModule:
    text = f'x: R.Tensor({data}, "{dtype}"), w: R.Tensor({weights}, "{dtype}"), e: R.Tensor({ends}, "{index}")'
    return mlcc.parse(f"@R.function\ndef main({text}):\n    return R.nn.grouped_matmul(x, w, e)\n")


def random_operands(rows: int, inner: int, columns: int, ends: list[int], index: str = "int32") -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    x, w = random.standard_normal((rows, inner)), random.standard_normal((len(ends), inner, columns))
    return [x.astype("float32"), w.astype("float32"), np.array(ends, index)]


def expected(x: np.ndarray, w: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Rows behind the last end are zeros."""
    groups = np.searchsorted(ends, np.arange(len(x)), side="right")
    rows = [x[i] @ w[g] if g < len(w) else np.zeros(w.shape[2]) for i, g in enumerate(groups)]
    return np.array(rows).reshape(len(x), w.shape[2])


@pytest.mark.parametrize("target", ["llvm", "cuda{arch=sm_90}"])
@pytest.mark.parametrize("opt_level", [0, 2])
def test_all_numbers_of_rows_match_numpy(target: str, opt_level: int) -> None:
    """One object for all numbers of rows: empty groups, rows behind the last one, no rows."""
    mod = product('("s", 5)', "(4, 5, 7)", "(4,)")
    mlcc.assert_structural_equal(mlcc.parse(mlcc.script(mod)), mod)
    run = mlcc.load(mlcc.build(mod, target, opt_level=opt_level), emulate=target != "llvm")["main"]
    for rows, ends in ((6, [2, 2, 5, 6]), (11, [0, 3, 4, 9]), (3, [0, 0, 0, 0]), (1, [0, 0, 1, 1]), (0, [0] * 4)):
        given = random_operands(rows, 5, 7, ends)
        np.testing.assert_allclose(run(*given), expected(*given), atol=1e-5)
        np.testing.assert_allclose(run_function(mod, "main", given), expected(*given), atol=1e-5)


def test_symbolic_and_empty_groups_match_numpy() -> None:
    mod = product('("s", "k")', '("g", "k", "n")', '("g",)', index="int64")
    run = mlcc.load(mlcc.build(mod))["main"]
    for given in (random_operands(5, 3, 4, [1, 5], "int64"), random_operands(5, 0, 4, [1, 5], "int64")):
        np.testing.assert_allclose(run(*given), expected(*given), atol=1e-5)
    none = mlcc.load(mlcc.build(product("(3, 0)", "(2, 0, 4)", "(2,)")))["main"](*random_operands(3, 0, 4, [1, 2]))
    assert none.tolist() == [[0.0] * 4] * 3


def test_nothing_of_rows_in_no_group_counts() -> None:
    x, w, ends = random_operands(3, 4, 2, [1, 2])
    x[2] = np.nan
    assert mlcc.load(mlcc.build(product("(3, 4)", "(2, 4, 2)", "(2,)")))["main"](x, w, ends)[2].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "data, weights, ends, index, code",
    [
        ("(2, 3, 4)", "(2, 4, 5)", "(2,)", "int32", "E0445"), ("(3, 4)", "(2, 5, 5)", "(2,)", "int32", "E0445"),
        ("(3, 4)", "(2, 4, 5)", "(3,)", "int32", "E0445"), ("(3, 4)", "(2, 4, 5)", "(2,)", "float32", "E0444"),
    ],
)  # fmt: skip
def test_wrong_products_are_refused(data: str, weights: str, ends: str, index: str, code: str) -> None:
    with pytest.raises(CompileError, match=code):
        product(data, weights, ends, index=index)
