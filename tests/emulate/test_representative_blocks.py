"""Launches of which only some blocks run, against all of their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlcc
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.runtime.loader import load
from mlcc.targets.emulate import report
from mlcc.targets.emulate.report import KernelReport, MeasuringDevice, Report
from mlcc.targets.emulate.representative_blocks import _sample

GPU = "cuda{arch=sm_90}"
ATTENTION = """
@T.prim_func
def main(A: T.Buffer((640, 64), "float32"), B: T.Buffer((640, 64), "float32")):
    T.func_attr({"mlcc.manual_barriers": True})
    bx = T.launch_thread("blockIdx.x", 80)
    tx = T.launch_thread("threadIdx.x", 64)
    total = T.alloc_buffer((1,), "float32", scope="local")
    total[0] = T.float32(0)
    for k in range(bx // 4 * 32 + 32):
        total[0] = total[0] + A[k, tx] * A[bx // 4 * 32 + bx % 4, tx]
    B[bx * 8, tx] = total[0]
"""
EDGE = """
@T.prim_func
def main(A: T.Buffer((96, 700), "float32"), at: T.Buffer((128,), "int32"), B: T.Buffer((96, 700), "float32")):
    bx = T.launch_thread("blockIdx.x", 96 * 7)
    tx = T.launch_thread("threadIdx.x", 128)
    {guard}
        B[bx // 7, bx % 7 * 128 + at[tx]] = A[bx // 7, bx % 7 * 128 + at[tx]]
"""


def graph(params: str, line: str) -> str:
    head = f"@R.function\ndef main({params}):\n    with R.dataflow():\n"
    return head + f"        y = {line}\n        R.output(y)\n    return y\n"


def tensors(**shapes: tuple[str, str]) -> str:
    return ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, (shape, dtype) in shapes.items())


def analyzed(text: str, blocks: int | None, *args: np.ndarray) -> Report:
    artifact = mlcc.build(mlcc.parse(text), GPU)
    device = MeasuringDevice(artifact.launch.kernels, GpuFacts.of(GPU), blocks)
    load(artifact, device=device)["main"](*args)
    device.report.assembled({})
    return device.report


CASES = {
    "product": (
        graph(tensors(x=("(500, 96)", "float32"), w=("(96, 330)", "float32")), "R.matmul(x, w)"),
        ((500, 96), (96, 330)), 16,
    ),
    "tensor cores": (
        graph(tensors(x=("(300, 64)", "float16"), w=("(64, 700)", "float16")), "R.matmul(x, w)"),
        ((300, 64), (64, 700)), 9,
    ),
    "softmax": (graph(tensors(x=("(333, 200)", "float32")), "R.nn.softmax(x)"), ((333, 200),), 9),
    "add": (
        graph(tensors(x=("(333, 201)", "float32"), y=("(201,)", "float32")), "R.add(x, y)"), ((333, 201), (201,)), 9,
    ),
    "transpose": (graph(tensors(x=("(300, 501)", "float32")), "R.permute_dims(x)"), ((300, 501),), 9),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_counts_are_those_of_all_blocks(case: str) -> None:
    """At odd sizes, with tiles at the edges of the grid that have less to do."""
    text, shapes, blocks = CASES[case]
    rng = np.random.default_rng(0)
    dtype = "float16" if "float16" in text else "float32"
    args = [rng.standard_normal(shape).astype(dtype) for shape in shapes]
    for one, other in zip(kernels(analyzed(text, blocks, *args)), kernels(analyzed(text, None, *args)), strict=True):
        assert one.blocks <= blocks < one.block_count == other.blocks and not one.exact
        assert other.exact or "R.matmul" in text
        compare(one, other, 0.05)


def kernels(found: Report) -> Sequence[KernelReport]:
    assert not found.findings and found.kernels
    return list(found.kernels.values())


def compare(one: KernelReport, other: KernelReport, tolerance: float) -> None:
    assert [(a.place, a.text, a.what) for a in one.accesses] == [(a.place, a.text, a.what) for a in other.accesses]
    for scope in ("global", "shared"):
        assert one.total(scope) == pytest.approx(other.total(scope), rel=tolerance)
    for a, b in zip(one.accesses, other.accesses, strict=True):
        if b.units > other.total(b.scope)[0] // 50:
            assert (a.requests, a.units, a.least) == pytest.approx((b.requests, b.units, b.least), rel=tolerance)
            assert a.worst <= b.worst if a.scope == "global" else a.worst == b.worst
    assert one.roofline is not None and other.roofline is not None
    assert one.roofline.bound == other.roofline.bound
    assert one.roofline.bytes == pytest.approx(other.roofline.bytes, rel=tolerance)
    assert one.roofline.seconds == pytest.approx(other.roofline.seconds, rel=tolerance)


def test_work_that_grows_along_an_axis() -> None:
    """The middle stands for what is between both ends, along each axis that a kernel takes the grid apart into."""
    args = [np.ones((640, 64), np.float32), np.zeros((640, 64), np.float32)]
    ((one,), (other,)) = (kernels(analyzed(ATTENTION, blocks, *args)) for blocks in (9, None))
    assert one.blocks == 9
    compare(one, other, 0.05)


def test_a_fault_at_an_edge_is_found() -> None:
    """In the last of seven tiles of a row, which few of the blocks have."""
    args = np.ones((96, 700), np.float32), np.arange(128, dtype=np.int32), np.zeros((96, 700), np.float32)
    guarded, unguarded = (EDGE.format(guard=f"if {index} < 700:") for index in ("bx % 7 * 128 + at[tx]", "at[tx]"))
    assert not analyzed(guarded, 9, *args).findings
    found = [{d.code for d in analyzed(unguarded, blocks, *args).findings} for blocks in (None, 9)]
    assert found[0] == found[1] == {"E0744"}


def test_traces_that_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for few accesses, every place of the code keeps some, and all are counted."""
    text = graph(tensors(x=("(64, 80)", "float32"), w=("(80, 50)", "float32")), "R.matmul(x, w)")
    args = [np.random.default_rng(0).standard_normal(s).astype("float32") for s in ((64, 80), (80, 50))]
    (exact,) = kernels(analyzed(text, None, *args))
    monkeypatch.setattr(report, "ROOM", 1 << 16)
    (thinned,) = kernels(analyzed(text, None, *args))
    assert exact.exact and not thinned.exact and thinned.blocks == exact.blocks
    compare(thinned, exact, 0.05)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 64))
def test_samples_have_the_weight_of_the_grid(extents: list[int], most: int) -> None:
    """Sums of what is linear in the places along the axes are exact, where both ends of all axes fit."""
    count = prod(extents)
    sample = _sample(extents, count, most)
    assert 1 <= len(sample.numbers) <= min(most, count) and len(set(sample.numbers.tolist())) == len(sample.numbers)
    assert sample.weights.min() >= 0 and sample.weights.sum() == pytest.approx(count)
    assert sample.numbers.min() >= 0 and sample.numbers.max() < count
    if 3 ** len(extents) <= most:
        assert {0, count - 1} <= set(sample.numbers.tolist())
        places = np.unravel_index(sample.numbers, extents[::-1])
        for along, extent in zip(places, extents[::-1], strict=True):
            assert sample.weights @ along == pytest.approx(count * (extent - 1) / 2, abs=count / 2)
