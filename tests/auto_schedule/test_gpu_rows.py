"""Kernels over rows on GPUs: what a row asks of memory, how it is shared out, and that it computes what it did."""

from __future__ import annotations

import re

import pytest

import mlcc
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.row_distribution import RowDistribution, distribute_rows
from mlcc.passes.auto_schedule.kernel import GpuKernel
from mlcc.targets.cuda import ptxas
from tests.auto_schedule.gpu_costs import costs_of
from tests.auto_schedule.kernels import graph, lowered


def tensors(dtype: str, **shapes: str) -> str:
    return ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes.items())


def softmax(shape: str, dtype: str = "float32") -> str:
    return graph(tensors(dtype, x=shape), "y = R.nn.softmax(x)", result="y")


def layer_norm(shape: str, width: str, axes: str = "[-1]", dtype: str = "float32") -> str:
    params = tensors(dtype, x=shape, g=width, b=width)
    return graph(params, f"y = R.nn.layer_norm(x, g, b, axes={axes})", result="y")


@pytest.mark.parametrize(
    ("shape", "dtype", "block"),
    [
        ("(1056, 8)", "float32", [2, 16, 1]),  # some lanes of a warp have a row
        ("(528, 64)", "float32", [16, 4, 1]),
        ("(33, 960)", "float16", [64, 1, 1]),
        ("(3, 11, 256)", "float32", [64, 1, 1]),
        ("(2, 4096)", "float32", [1024, 1, 1]),  # a block has one, where there are few
    ],
)
def test_a_row_is_read_once(shape: str, dtype: str, block: list[int]) -> None:
    found = costs_of(softmax(shape, dtype), tolerance=1e-4 if dtype == "float32" else 1e-2)
    (kernel,) = found.kernels
    assert found.rules == ["gpu-rows"] and kernel.block == block
    assert found.sectors == found.ideal and found.conflicts == 0 and found.spills() == 0
    assert re.search(r"ld\.global(\.nc)?\.v4", found.ptx) and "st.global.v4" in found.ptx
    if block[0] <= 32:
        assert kernel.shared == 0 and "bar.sync" not in found.ptx  # lanes need no barriers


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        ("(7, 100)", {}), ("(131, 2)", {}), ("(2, 5, 7, 9)", {}),
        ('("n", 24)', {"n": 13}), ('(4, "m")', {"m": 77}), ('("n", "m")', {"n": 3, "m": 1}), ('("n", 3, 40)', {"n": 0}),
    ],
)  # fmt: skip
def test_softmax_keeps_its_rows_in_registers(shape: str, sizes: dict[str, int]) -> None:
    found = costs_of(softmax(shape), sizes)
    assert found.rules == ["gpu-rows"] and found.spills() == 0


@pytest.mark.skipif(ptxas.find_ptxas() is None, reason="needs ptxas")
@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_a_row_of_32_elements_of_a_thread_fits_into_registers(arch: str) -> None:
    """Two rows of them, in fact: what was read and its exponentials."""
    module = mlcc.parse(softmax("(8192, 4096)", "float16"))
    text = mlcc.build(module, f"cuda{{arch={arch}}}").emit("ptx").decode()
    (kernel,) = ptxas.assemble(text, arch).values()
    assert kernel.stack == kernel.spill_stores == kernel.spill_loads == 0
    assert len(re.findall(r"ld\.global(\.nc)?\.v4", text)) == len(re.findall(r"st\.global\.v4", text)) == 4


@pytest.mark.parametrize(("batch", "inner", "width"), [(2, 2, 24), (2, 4, 64), (3, 5, 40), (5, 3, 7), (64, 2, 32)])
def test_rows_that_the_last_stage_repeats(batch: int, inner: int, width: int) -> None:
    """Each element of a row meets several others, as in global response norms."""
    params = tensors("float32", x=f"({batch}, {inner}, {inner}, {width})", c=f"({batch}, 1, 1, {width})")
    found = costs_of(
        graph(params, "y = R.multiply(x, R.divide(c, R.sum(R.abs(c), axis=[-1], keepdims=True)))", result="y")
    )
    assert "gpu-rows" in found.rules


def test_who_has_a_row() -> None:
    """Some lanes of a warp, a warp, or a block, by how long rows are; what is too long for registers is read again."""
    kernel = GpuKernel.of(lowered(softmax("(4, 4)"))["softmax"], "softmax", GpuFacts.of("cuda{arch=sm_90}"))
    shares = {
        n: distribute_rows(kernel, 1 << 16, n, 4 if n % 4 == 0 else 1, 4, 2) for n in (2, 16, 64, 768, 1024, 4096, 7)
    }
    assert {n: (s.threads, s.rows) for n, s in shares.items()} == {
        2: (2, 64), 7: (8, 16), 16: (2, 64), 64: (8, 16), 768: (32, 4), 1024: (32, 4), 4096: (128, 1)
    }  # fmt: skip
    assert all(s.kept for s in shares.values())
    assert (
        distribute_rows(kernel, 1 << 16, 1 << 15, 4, 4, 2).kept
        and not distribute_rows(kernel, 1 << 16, 1 << 16, 4, 4, 2).kept
    )
    assert distribute_rows(kernel, 4, 1024, 4, 4, 2).threads == 256  # few rows are shared out further
    assert distribute_rows(kernel, 6, None, 1, 4, 2) == RowDistribution(None, 1, 128, 1, False)


@pytest.mark.parametrize(
    ("text", "sizes", "bytes"),
    [
        (layer_norm("(33, 192)", "(192,)"), {}, 33 * 192 * 4),
        (layer_norm("(6, 8, 12)", "(8, 12)", axes="[1, 2]"), {}, 6 * 96 * 4),
        (layer_norm("(33, 96)", "(96,)", dtype="float16"), {}, 33 * 96 * 2),
        (layer_norm('("n", 40)', "(40,)"), {"n": 7}, 7 * 40 * 4),
        (layer_norm('(5, "m")', '("m",)'), {"m": 67}, None),
    ],
)
def test_layer_norm_keeps_its_rows_in_registers(text: str, sizes: dict[str, int], bytes: int | None) -> None:
    found = costs_of(text, sizes, tolerance=2e-2 if "float16" in text else 1e-4)
    assert found.rules == ["gpu-rows"] and found.spills() == 0
    if bytes is not None:  # mean and variance by one trip
        reads = [a for k in found.kernels for a in k.accesses if a.buffer == "x" and a.scope == "global"]
        assert sum(a.units for a in reads) * 32 == bytes
