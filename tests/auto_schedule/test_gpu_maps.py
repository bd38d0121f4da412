"""Kernels without reductions on GPUs: whole sectors, 16 bytes of a thread, and no divisions of 64 bits."""

from __future__ import annotations

import re

import pytest

from tests.auto_schedule.gpu_costs import costs_of
from tests.auto_schedule.kernels import graph


def tensors(dtype: str = "float32", **shapes: str) -> str:
    return ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes.items())


@pytest.mark.parametrize(
    ("params", "line"),
    [
        (tensors("float16", x="(33, 2048)", y="(33, 2048)"), "R.multiply(x, y)"),
        (tensors("int8", x="(33, 1024)"), 'R.astype(x, "float32")'),
        (tensors("bool", x="(528, 256)"), "R.logical_not(x)"),
        (tensors(x="(3, 11, 5, 7)"), "R.nn.relu(x)"),  # an axis of 7 elements, 1155 of all
    ],
)
def test_accesses_use_whole_sectors(params: str, line: str) -> None:
    found = costs_of(graph(params, f"y = {line}", result="y"))
    assert found.rules == ["gpu-elementwise"] and found.sectors == found.ideal


def test_large_ones_take_several_turns() -> None:
    """Two vectors of a thread, both loaded before one is stored; a row that is added is loaded by vectors, too."""
    text = graph(tensors(x='("n", 1024)', b="(1024,)"), "y = R.add(x, b)", result="y")
    found = costs_of(text, {"n": 3})
    assert found.ptx.count("st.global.v4") == 2 and len(re.findall(r"ld\.global(\.nc)?\.v4", found.ptx)) == 4


@pytest.mark.parametrize("sizes", [{"n": 3, "m": 1}, {"n": 2, "m": 517}, {"n": 0, "m": 3}])
def test_sizes_that_are_not_known(sizes: dict[str, int]) -> None:
    """A place in the grid is divided once, in 32 bits."""
    text = graph(tensors(x='("n", "m")', b='("m",)'), "y = R.add(x, b)", result="y")
    found = costs_of(text, sizes)
    assert not re.search(r"(div|rem)\.[su]64", found.ptx) and len(re.findall(r"(div|rem)\.[su]32", found.ptx)) <= 2


@pytest.mark.parametrize(
    ("params", "line"),
    [
        (tensors(x="(5, 7)", y="(3, 7)"), "R.concat((x, y), axis=0)"),
        (tensors(x="(9, 40)"), "R.strided_slice(x, axes=[1], begin=[1], end=[40], strides=[3])"),
        (tensors(x="(5, 12)"), "R.nn.pad(x, pad_width=[1, 2, 4, 4])"),
        (tensors(x='("n", 12)', y='("n", 1)'), "R.maximum(x, y)"),
    ],
)
def test_other_kernels_agree_when_emulated(params: str, line: str) -> None:
    costs_of(graph(params, f"y = {line}", result="y"), {"n": 5})
