"""Operands that may turn out to be of extent 1 broadcast as NumPy's do, at every level; other sizes are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function

TEXT = """
@R.function
def main(x: R.Tensor(("n", "k", 4), "float32"), y: R.Tensor(("m", 4, "j"), "float32"), c: R.Tensor(("n", 1), "bool"),
         z: R.Tensor(("m", "k"), "float32"), v: R.Tensor(("j",), "float32"), w: R.Tensor((5, 1), "float32")):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    j = T.int64()
    product = R.matmul(x, y)
    chosen = R.where(c, z, v)
    spread = R.broadcast_to(v, R.shape([5, k]))
    sums = R.maximum(R.add(R.add(chosen, spread), w), R.const(1, "float32"))
    return (product, chosen, spread, sums)
"""


def by_numpy(x: Any, y: Any, c: Any, z: Any, v: Any, w: Any) -> tuple[np.ndarray, ...]:
    """Raises ValueError where the operands do not broadcast."""
    chosen, spread = np.where(c, z, v), np.broadcast_to(v, (5, z.shape[1]))
    return np.matmul(x, y), chosen, spread, np.maximum(chosen + spread + w, np.float32(1))


def operands(n: int, m: int, k: int, j: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(n + 10 * m + 100 * k + 1000 * j)
    shapes = [(n, k, 4), (m, 4, j), (n, 1), (m, k), (j,), (5, 1)]
    x, y, c, z, v, w = (random.standard_normal(s).astype("float32") for s in shapes)
    return x, y, c > 0, z, v, w


def check_against_numpy(run: Callable[..., Any], sizes: tuple[int, int, int, int]) -> bool:
    """Whether NumPy takes the sizes; `run` must agree, and give the same numbers."""
    given = operands(*sizes)
    try:
        want = by_numpy(*given)
    except ValueError:
        with pytest.raises(mlcc.errors.CallError, match="expected 1 or|the shapes"):
            run(*given)
        return False
    for one, two in zip(run(*given), want, strict=True):
        assert one.shape == two.shape
        np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    return True


EVERY = list(itertools.product((0, 1, 2, 5), repeat=4))


@pytest.mark.parametrize("level", range(4))
def test_compiled_functions_broadcast_as_numpy_does(level: int) -> None:
    run = mlcc.load(mlcc.build(mlcc.parse(TEXT), opt_level=level))["main"]
    assert 20 < sum(check_against_numpy(run, sizes) for sizes in EVERY) < len(EVERY) - 20


def test_kernels_broadcast_as_numpy_does(tmp_path: Any) -> None:
    path = tmp_path / "m.ptx"
    mlcc.build(mlcc.parse(TEXT), target="cuda", opt_level=2).save(str(path))
    run = mlcc.load(str(path), emulate=True)["main"]
    assert 0 < sum(check_against_numpy(run, sizes) for sizes in EVERY[::9]) < len(EVERY[::9])


def test_the_interpreter_runs_what_the_pass_makes() -> None:
    module = mlcc.run_passes(mlcc.parse(TEXT), "broadcast-operands,check-shapes,lower-to-tir")
    for sizes in [(1, 5, 5, 1), (5, 1, 1, 1), (5, 5, 5, 5), (1, 1, 0, 1)]:
        want = by_numpy(*operands(*sizes))
        for one, two in zip(run_function(module, "main", operands(*sizes)), want, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    with pytest.raises(mlcc.errors.CallError):
        run_function(module, "main", operands(2, 2, 1, 1))


def test_a_refusal_says_which_sizes_would_do() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((3, 4), "float32")):
    n = T.int64()
    return R.add(x, w)
"""
    run = mlcc.load(mlcc.build(mlcc.parse(text)))["main"]
    with pytest.raises(mlcc.errors.CallError, match="n is 2, expected 1 or 3, in line 5"):
        run(np.zeros((2, 4), "float32"), np.zeros((3, 4), "float32"))


def test_what_broadcasts_for_certain_stays_as_it_is() -> None:
    text = """
@R.function
def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(("n", 1), "float32"), z: R.Tensor((4,), "float32")):
    n = T.int64()
    return R.add(R.add(x, y), z)
"""
    module = mlcc.parse(text)
    assert mlcc.structural_equal(mlcc.run_passes(module, "broadcast-operands"), module)
