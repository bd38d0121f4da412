"""Reductions to few results: chunks in the lanes of vectors (`full_reductions`), whatever the number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlcc
from tests.auto_schedule.kernels import NATIVE, arguments, assert_same_results, chosen, graph, lowered, scheduled

LINES = {
    "sum": "y = R.sum(x)",
    "max": "y = R.max(x)",
    "mean of all": "y = R.mean(x)",
    "statistics": "y = R.variance(x, axis=[0, 2, 3])",
    "mean": "y = R.mean(x, axis=[0, 2, 3])",
    "space": "y = R.sum(x, axis=[2, 3])",
}


def text(name: str, shape: list[int | str], dtype: str = "float32") -> str:
    dims = ", ".join(f'"{n}"' if isinstance(n, str) else str(n) for n in shape)
    return graph(f'x: R.Tensor(({dims},), "{dtype}")', LINES[name], result="y")


@pytest.mark.parametrize("name", ["sum", "max", "mean of all", "statistics"])
def test_chunks_give_partial_results(name: str) -> None:
    mod = lowered(text(name, [15, 5, 47, 64]))
    printed = mlcc.script(assert_same_results(mod, rtol=1e-3))
    assert "_rf" in printed and "T.parallel" in printed and "T.vectorized" in printed


def test_threads_do_not_show() -> None:
    mod = lowered(text("sum", [15, 5, 47, 64]))
    exe = mlcc.load(mlcc.build(scheduled(mod), target=NATIVE, pipeline="lower-to-tir"))
    given_ = arguments(mod)
    try:
        found = set()
        for threads in (1, 2, 3):
            mlcc.set_num_threads(threads)
            found.add(np.asarray(exe["main"](*given_)).tobytes())
    finally:
        mlcc.set_num_threads(None)
    assert len(found) == 1


@settings(max_examples=8, deadline=None)
@example("sum", [1, 2, 129, 131], "float32")
@example("statistics", [2, 0, 7, 7], "float32")
@given(
    st.sampled_from(sorted(LINES)),
    st.lists(st.sampled_from([1, 2, 7, 17, 32]), min_size=4, max_size=4),
    st.sampled_from(["float32", "float64"]),
)
def test_any_sizes_keep_results(name: str, shape: list[int], dtype: str) -> None:
    assert_same_results(lowered(text(name, shape, dtype)), rtol=1e-3)


@pytest.mark.parametrize("size", [1, 40])
def test_symbolic_sizes_keep_results(size: int) -> None:
    for name in ("sum", "mean"):
        assert_same_results(lowered(text(name, ["n", 3, 9, 8])), {"n": size}, rtol=1e-3)


@pytest.mark.parametrize(("size", "vectors"), [(1 << 17, 4), (100_000, 5), (48_000, 4), (48 * 103, 3), (4_832, 2)])
def test_accumulators_leave_no_tail(size: int, vectors: int) -> None:
    """As many as hide the latency of an addition, or about so many: whichever divides the elements."""
    mod = lowered(graph(f'x: R.Tensor(({size},), "float32")', "y = R.max(x)", result="y"))
    (outcome,) = chosen(mod, "llvm{cpu=x86-64-v4}").values()
    assert any(f"partial results in {vectors} vectors of 16" in choice for choice in outcome.choices), outcome.choices
