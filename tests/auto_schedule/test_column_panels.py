"""The rule `column-panels`: reductions of large arrays across long rows."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from tests.auto_schedule.kernels import NATIVE, assert_same_results, chosen, graph, lowered, scheduled

LINES = {
    "sum": "y = R.sum(x, axis=[0])",
    "max": "y = R.max(x, axis=[0])",
    "mean": "y = R.mean(x, axis=[0])",
    "of squares": "y = R.mean(R.multiply(x, x), axis=[0])",
}


def kernel(line: str, shape: tuple[int, ...], dtype: str = "float32") -> mlcc.IRModule:
    return lowered(graph(f'x: R.Tensor({shape}, "{dtype}")', line, result="y"), accurate=True)


def rules(mod: mlcc.IRModule) -> set[str | None]:
    return {a.rule for a in chosen(mod).values()}


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("shape", [(400, 1100), (257, 2048), (16, 40_009)])
def test_large_arrays_are_reduced_in_panels(name: str, shape: tuple[int, ...]) -> None:
    mod = kernel(LINES[name], shape)
    assert "column-panels" in rules(mod)
    assert_same_results(mod, rtol=1e-3)


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("y = R.sum(x, axis=[1])", (3, 200, 1061)),
        ("y = R.sum(x, axis=[0, 1])", (3, 131, 1500)),
        ("y = R.max(x, axis=[0, 2])", (2, 3, 70, 1500)),
        ("y = R.sum(x, axis=[0, 2])", (20, 3, 20, 1500)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_several_axes_keep_results(line: str, shape: tuple[int, ...], dtype: str) -> None:
    mod = kernel(line, shape, dtype)
    assert rules(mod) == {"column-panels"}
    assert_same_results(mod, rtol=1e-3)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax_gives_the_first_of_equals(name: str) -> None:
    shape = (301, 1777)
    mod = kernel(f"y = R.{name}(x, axis=0)", shape)
    assert rules(mod) == {"column-panels"}
    made = mlcc.load(mlcc.build(scheduled(mod), NATIVE, pipeline="lower-to-tir"))["main"]
    x = np.random.default_rng(0).integers(0, 90, shape).astype("float32")
    np.testing.assert_array_equal(made(x), getattr(np, name)(x, axis=0))
    x[np.random.default_rng(1).random(shape) < 0.002] = np.nan
    np.testing.assert_array_equal(made(x), getattr(np, name)(x, axis=0))


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("y = R.sum(x, axis=[0])", (250, 400)),  # fits L2
        ("y = R.sum(x, axis=[0])", (40_000, 100)),  # short rows
        ("y = R.sum(x, axis=[0])", (4, 400_000)),  # few rows
        ("y = R.nn.max_pool2d(x, pool_size=[30, 1])", (1, 1, 400, 2000)),  # windows overlap
        ("y = R.variance(x, axis=[0])", (400, 1100)),  # two reductions
    ],
)
def test_others_are_left_to_the_next_rules(line: str, shape: tuple[int, ...]) -> None:
    assert "column-panels" not in rules(kernel(line, shape))


def test_threads_do_not_show() -> None:
    mod = kernel(LINES["sum"], (400, 5000))
    exe = mlcc.load(mlcc.build(scheduled(mod), target=NATIVE, pipeline="lower-to-tir"))
    x = np.random.default_rng(0).random((400, 5000), dtype=np.float32)
    try:
        found = set()
        for threads in (1, 2):
            mlcc.set_num_threads(threads)
            found.add(np.asarray(exe["main"](x)).tobytes())
    finally:
        mlcc.set_num_threads(None)
    assert len(found) == 1
