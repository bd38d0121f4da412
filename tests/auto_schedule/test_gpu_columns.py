"""Reductions along other axes than the last on GPUs, and to few results: whole sectors, and work for all."""

from __future__ import annotations

import pytest

from tests.auto_schedule.gpu_costs import GPU, costs_of
from tests.auto_schedule.kernels import graph, lowered, scheduled


@pytest.mark.parametrize(
    ("shape", "line", "kernels"),
    [
        ("(64, 256)", "R.sum(x, axis=[0])", 1),
        ("(1024, 64)", "R.sum(x, axis=[0])", 2),  # few results: partial ones first
        ("(2, 6, 8, 64)", "R.max(x, axis=[1, 2])", 1),
        ("(3, 40, 64)", "R.sum(x, axis=[0, 1])", 1),
    ],
)
def test_accesses_use_whole_sectors(shape: str, line: str, kernels: int) -> None:
    found = costs_of(graph(f'x: R.Tensor({shape}, "float32")', f"y = {line}", result="y"))
    assert found.rules == ["gpu-fallback"] and len(found.kernels) == kernels and found.conflicts == 0
    first = [a for a in found.kernels[0].accesses if a.scope == "global" and a.what == "read"]
    assert sum(a.units for a in first) == sum(a.least for a in first)
    if kernels == 1:
        assert found.sectors == found.ideal


@pytest.mark.parametrize(
    ("shape", "line", "sizes"),
    [
        ("(37, 33)", "R.sum(x, axis=[0])", {}),
        ("(1031, 9)", "R.max(x, axis=[0])", {}),
        ('("n", 40)', "R.mean(x, axis=[0])", {"n": 75}),
        ('(50, "m")', "R.sum(x, axis=[0])", {"m": 3}),
        ("(3, 50, 17)", "R.argmax(x, axis=1)", {}),
        ("(3, 50, 17)", "R.nn.softmax(x, axis=1)", {}),
        ("(70001,)", "R.sum(x)", {}),
    ],
)
def test_sizes_that_fit_nothing(shape: str, line: str, sizes: dict[str, int]) -> None:
    costs_of(graph(f'x: R.Tensor({shape}, "float32")', f"y = {line}", result="y"), sizes, tolerance=1e-3)


def test_chosen_scripts_replay() -> None:
    """Of rows in registers, of tiles with joined axes, and of partial results."""
    lines = ("R.nn.softmax(x)", "R.permute_dims(x, axes=[0, 2, 3, 1])", "R.sum(x, axis=[0, 2, 3])", "R.add(x, x)")
    for line in lines:
        scheduled(lowered(graph('x: R.Tensor((2, 64, 10, 12), "float16")', f"y = {line}", result="y")), GPU)
