"""Transposes on GPUs: whole sectors at both ends, by tiles in shared memory whose columns lie in banks of their own."""

from __future__ import annotations

import pytest

from tests.auto_schedule.gpu_costs import costs_of
from tests.auto_schedule.kernels import graph


def permuted(shape: str, axes: str, dtype: str = "float32") -> str:
    return graph(f'x: R.Tensor({shape}, "{dtype}")', f"y = R.permute_dims(x, axes={axes})", result="y")


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ("(96, 64)", "[1, 0]", "float32"),
        ("(2, 64, 14, 16)", "[0, 2, 3, 1]", "float32"),  # NCHW to NHWC: rows and columns are one axis
        ("(2, 14, 16, 64)", "[0, 3, 1, 2]", "float32"),
        ("(3, 64, 48)", "[2, 0, 1]", "float64"),
    ],
)
def test_both_ends_use_whole_sectors(shape: str, axes: str, dtype: str) -> None:
    found = costs_of(permuted(shape, axes, dtype))
    assert found.rules == ["gpu-transposes"] and found.sectors == found.ideal and found.conflicts == 0


@pytest.mark.parametrize(("shape", "dtype"), [("(2, 80, 112)", "float16"), ("(2, 160, 192)", "int8")])
def test_narrow_elements_go_by_words(shape: str, dtype: str) -> None:
    """Two or four side by side of a thread, at both ends, though tiles do not fit the whole."""
    found = costs_of(permuted(shape, "[0, 2, 1]", dtype))
    (kernel,) = found.kernels
    assert found.rules == ["gpu-transposes"] and found.sectors == found.ideal
    assert {a.bytes for a in kernel.accesses if a.scope == "global"} == {4}


@pytest.mark.parametrize(
    ("shape", "axes", "sizes"),
    [
        ("(33, 37)", "[1, 0]", {}),
        ("(3, 35, 5, 7)", "[0, 2, 3, 1]", {}),
        ('("n", 40, 6, 7)', "[0, 2, 3, 1]", {"n": 2}),
        ('("n", "m")', "[1, 0]", {"n": 33, "m": 1}),
        ('("n", 33)', "[1, 0]", {"n": 0}),
        ("(40, 3, 34)", "[2, 1, 0]", {}),
    ],
)
def test_sizes_that_fit_nothing(shape: str, axes: str, sizes: dict[str, int]) -> None:
    assert costs_of(permuted(shape, axes, "float16"), sizes).rules == ["gpu-transposes"]
