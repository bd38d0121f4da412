"""The rule `rows`: reductions along the end of rows, and what surrounds them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import walk
from tests.auto_schedule.kernels import NATIVE, assert_same_results, chosen, graph, lowered, scheduled

NORMS = {
    "softmax": ["y = R.nn.softmax(x)"],
    "log_softmax": ["y = R.nn.log_softmax(x)"],
    "layer_norm": ["y = R.nn.layer_norm(x, g, g, axes=[-1])"],
    "rms_norm": ["y = R.nn.rms_norm(x, g, axes=[-1])"],
    "variance": ["y = R.variance(x, axis=[-1])"],
    "mean": ["y = R.mean(x, axis=[-1])"],
    "max": ["y = R.max(x, axis=[-1])"],
    "scaled": ["s = R.nn.softmax(R.multiply(x, g))", "y = R.multiply(s, g)"],
}


def text(lines: list[str], shape: list[int | str], dtype: str = "float32") -> str:
    dims = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in shape)
    return graph(f'x: R.Tensor(({dims},), "{dtype}"), g: R.Tensor(({shape[-1]},), "{dtype}")', *lines, result="y")


@pytest.mark.parametrize("name", NORMS)
def test_norms_run_row_by_row(name: str) -> None:
    mod = lowered(text(NORMS[name], [6, 8, 200]))
    assert "rows" in {a.rule for a in chosen(mod).values()}
    printed = mlcc.script(assert_same_results(mod))
    assert "_rf_local" in printed


@pytest.mark.parametrize(
    ("groups", "shape"), [(8, (3, 32, 28, 28)), (2, (2, 6, 5, 7)), (1, (2, 3, 1, 1)), (3, (1, 3, 8, 31))]
)
def test_norms_of_groups_keep_results(groups: int, shape: tuple[int, ...]) -> None:
    """Their data are reshaped before and after, and two sums are taken at once."""
    params = (
        f'x: R.Tensor({shape}, "float32"), g: R.Tensor(({shape[1]},), "float32"), b: R.Tensor(({shape[1]},), "float32")'
    )
    line = f"y = R.nn.group_norm(x, g, b, num_groups={groups}, channel_axis=1, axes=[2, 3])"
    mod = lowered(graph(params, line, result="y"))
    assert {a.rule for a in chosen(mod).values()} == {"rows"}
    printed = mlcc.script(assert_same_results(mod))
    assert "T_reshape_1" not in printed  # no copies


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@pytest.mark.parametrize(("axis", "shape"), [(1, (5, 1000)), (1, (3, 37)), (0, (37, 40)), (-1, (4, 3, 65))])
@pytest.mark.parametrize("accurate", [False, True])
def test_argmax_gives_the_first_of_equals(name: str, axis: int, shape: tuple[int, ...], accurate: bool) -> None:
    """The first of equals, in whichever lanes they are; with `accurate` NaN before numbers."""
    mod = lowered(graph(f'x: R.Tensor({shape}, "float32")', f"y = R.{name}(x, axis={axis})", result="y"), accurate)
    if axis != 0:
        assert {a.rule for a in chosen(mod).values()} == {"rows"}
    made = mlcc.load(mlcc.build(scheduled(mod), NATIVE, 0, ""))["main"]
    x = np.random.default_rng(0).integers(0, 5, shape).astype("float32")
    np.testing.assert_array_equal(made(x), getattr(np, name)(x, axis=axis))
    if accurate:
        x[np.random.default_rng(1).random(shape) < 0.02] = np.nan
        np.testing.assert_array_equal(made(x), getattr(np, name)(x, axis=axis))
    x[...] = np.inf if name == "argmin" else -np.inf
    np.testing.assert_array_equal(made(x), np.zeros_like(made(x)))


@pytest.mark.parametrize("length", [64, 100, 211, 256])
def test_what_a_stage_stores_is_added_up_on_the_way(length: int) -> None:
    made = assert_same_results(lowered(text(NORMS["softmax"], [5000, length])))
    (func,) = (f for f in made.functions.values() if isinstance(f, tir.PrimFunc))
    (row,) = (loop for loop in walk(func.body) if isinstance(loop, tir.For) and loop.kind is tir.ForKind.PARALLEL)
    inside = [[n.name for n in walk(loop) if isinstance(n, tir.Block)] for loop in row.body]
    assert ["T_softmax_exp", "T_softmax_expsum_rf_update"] in inside


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(NORMS)),
    st.lists(st.sampled_from([1, 2, 3, 7]), min_size=1, max_size=2),
    st.sampled_from([1, 2, 15, 16, 17, 31, 67, 257]),
    st.sampled_from(["float32", "float64"]),
)
def test_rows_of_any_length_keep_results(name: str, outer: list[int], length: int, dtype: str) -> None:
    assert_same_results(lowered(text(NORMS[name], [*outer, length], dtype)))


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_symbolic_numbers_of_rows_keep_results(rows: int) -> None:
    mod = lowered(text(NORMS["softmax"], ["n", 3, 100]))
    assert {a.rule for a in chosen(mod).values()} == {"rows"}
    assert_same_results(mod, {"n": rows})


@pytest.mark.parametrize("length", [1, 31, 64, 130])
def test_symbolic_lengths_of_rows_keep_results(length: int) -> None:
    mod = lowered(graph('x: R.Tensor((3, "n"), "float32")', "y = R.nn.softmax(x)", result="y"))
    assert {a.rule for a in chosen(mod).values()} == {"rows"}
    assert_same_results(mod, {"n": length})


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("y = R.nn.softmax(x, axis=1)", "along its rows"),
        ("y = R.sum(x)", "only one row"),
        ("y = R.exp(x)", ""),
    ],
)
def test_unsuitable_reductions_are_left_to_other_rules(line: str, why: str) -> None:
    mod = lowered(graph('x: R.Tensor((4, 40, 40), "float32")', line, result="y"))
    (found,) = chosen(mod).values()
    assert found.rule != "rows"
    assert why in dict(found.passed).get("rows", "")
    assert_same_results(mod)
