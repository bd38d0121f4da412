"""The rule `transposes`: what is stored along another axis than it is read along."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from tests.auto_schedule.kernels import assert_same_results, chosen, graph, lowered


def text(shape: list[int | str], axes: list[int], dtype: str = "float32", more: str = "R.exp(t)") -> str:
    dims = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in shape)
    lines = [f"t = R.permute_dims(x, axes={axes})", f"y = {more}"]
    return graph(f'x: R.Tensor(({dims},), "{dtype}")', *lines, result="y")


@pytest.mark.parametrize(
    ("shape", "axes"),
    [([40, 50], [1, 0]), ([2, 20, 6, 8], [0, 2, 3, 1]), ([2, 6, 8, 20], [0, 3, 1, 2]), ([5, 3, 33], [2, 1, 0])],
)
def test_blocks_of_lines_are_vectorized(shape: list[int], axes: list[int]) -> None:
    mod = lowered(text(shape, axes))
    assert {a.rule for a in chosen(mod).values()} == {"transposes"}
    assert "T.vectorized" in mlcc.script(assert_same_results(mod))


def test_rows_that_stay_whole_are_left_to_others() -> None:
    mod = lowered(text([3, 4, 5, 32], [0, 2, 1, 3]))
    assert {a.rule for a in chosen(mod).values()} == {"elementwise"}
    assert_same_results(mod)


def test_layout_transforms_keep_results() -> None:
    line = "y = R.layout_transform(x, index_map=lambda n, c, h, w: (n, c // 8, h, w, c % 8))"
    assert_same_results(lowered(graph('x: R.Tensor((2, 16, 5, 7), "float32")', line, result="y")))


@settings(max_examples=6, deadline=None)
@given(
    st.lists(st.sampled_from([1, 2, 7, 16, 31, 48]), min_size=3, max_size=3),
    st.permutations([0, 1, 2]),
    st.sampled_from(["float32", "float64", "int8"]),
)
def test_permutations_of_any_shape_keep_results(shape: list[int], axes: list[int], dtype: str) -> None:
    assert_same_results(lowered(text(shape, axes, dtype, "R.add(t, t)")))


@pytest.mark.parametrize("size", [0, 1, 35])
def test_symbolic_sizes_keep_results(size: int) -> None:
    mod = lowered(text(["n", 24], [1, 0]))
    assert {a.rule for a in chosen(mod).values()} == {"transposes"}
    assert_same_results(mod, {"n": size})
