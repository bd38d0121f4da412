"""Prefix sums and products along any axis, against NumPy: short and long rows of columns, empty axes, unknown sizes."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.ir.visit import used_vars

SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((5, 16), 0), ((1, 17), 0), ((0, 17), 0), ((4, 0), 0), ((7, 3), 0), ((7, 16), 1), ((3, 5, 40), 1), ((3, 5, 40), 0),
    ((2, 3, 4, 5), 1),
]  # fmt: skip


def text(
    name: str, shape: tuple[int | str, ...], dtype: str, axis: int, exclusive: bool = False, func: str = "main"
) -> str:
    dims = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in shape)
    value = f"R.{name}(x, axis={axis}, exclusive={exclusive})"
    return f'@R.function\ndef {func}(x: R.Tensor(({dims},), "{dtype}")):\n    return {value}\n'


def expected(name: str, x: np.ndarray, axis: int, exclusive: bool) -> np.ndarray:
    made = (np.cumprod if name == "cumprod" else np.cumsum)(x.astype("float64"), axis=axis)
    if exclusive and x.shape[axis]:
        made = np.roll(made, 1, axis)
        made[(slice(None),) * axis + (0,)] = name == "cumprod"
    return made


@pytest.mark.parametrize(
    ("name", "exclusive", "dtype", "bound"),
    [("cumsum", False, "float32", 1e-5), ("cumsum", True, "int32", 0), ("cumsum", False, "float16", 5e-3),
     ("cumprod", True, "float32", 1e-5), ("cumprod", False, "float64", 1e-12)],
)  # fmt: skip
def test_scans_along_any_axis(name: str, exclusive: bool, dtype: str, bound: float) -> None:
    texts = [text(name, shape, dtype, axis, exclusive, f"f{n}") for n, (shape, axis) in enumerate(SHAPES)]
    exe = mlcc.load(mlcc.build(mlcc.parse("\n".join(texts))))
    for n, (shape, axis) in enumerate(SHAPES):
        x = np.random.default_rng(0).uniform(0.5, 3, shape).astype(dtype)
        made = np.asarray(exe[f"f{n}"](x))
        np.testing.assert_allclose(made, expected(name, x, axis, exclusive), bound, err_msg=f"{shape}, axis {axis}")


def test_columns_of_unknown_sizes() -> None:
    main = mlcc.load(mlcc.build(mlcc.parse(text("cumsum", ("n", "m"), "float32", 0))))["main"]
    for shape in ((0, 5), (5, 0), (1, 1), (13, 29), (40, 64)):
        x = np.random.default_rng(1).random(shape).astype("float32")
        np.testing.assert_allclose(np.asarray(main(x)), np.cumsum(x, axis=0), 1e-5)


@pytest.mark.parametrize(
    ("shape", "axis", "dtype", "side_by_side"),
    [((50, 64), 0, "float32", True), ((50, 2, 8), 0, "int8", True), ((50, 8), 0, "float32", False),
     ((50, 64), 1, "float32", False), ((50, 64), 0, "float16", False)],
)  # fmt: skip
def test_columns_are_scanned_side_by_side(shape: tuple[int, ...], axis: int, dtype: str, side_by_side: bool) -> None:
    """The innermost loop runs along rows, and its iterations share no sum.

    Sums of halves are kept in float32, so in one variable.
    """
    kernel = mlcc.run_passes(mlcc.parse(text("cumsum", shape, dtype, axis)), "lower-to-tir")["cumsum"]
    innermost = list(find(kernel, tir.For))[-1]
    (*_, store) = find(innermost, tir.BufferStore)
    places = [store.indices, *(load.indices for load in find(store.value, tir.BufferLoad))]
    assert all(innermost.var in used_vars(indices[-1]) for indices in places) is side_by_side
