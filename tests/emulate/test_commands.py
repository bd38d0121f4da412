"""`mlcc run -t cuda --emulate` and `mlcc analyze`, and the same from Python."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.machine.gpu_rates import GpuRates
from mlcc.machine.gpu_tables import GpuFacts
from tests.cli.test_cli import Tool

TRANSPOSE = """
@T.prim_func
def transpose(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32")):
    T.func_attr({{"mlcc.manual_barriers": True}})
    bx = T.launch_thread("blockIdx.x", 2)
    by = T.launch_thread("blockIdx.y", 2)
    tx = T.launch_thread("threadIdx.x", 32)
    ty = T.launch_thread("threadIdx.y", 8)
    S = T.alloc_buffer((32, {row}), "float32", scope="shared")
    for k in range(4):
        S[k * 8 + ty, tx] = A[by * 32 + k * 8 + ty, bx * 32 + tx]
    {sync}
    for k in range(4):
        B[bx * 32 + k * 8 + ty, by * 32 + tx] = S[tx, k * 8 + ty]
"""
SYNC = 'T.tvm_storage_sync("shared")'
SOUND = TRANSPOSE.format(row=33, sync=SYNC)
NAIVE = """
@T.prim_func
def naive(a: T.handle, b: T.handle):
    n = T.int32()
    A = T.match_buffer(a, (n, 64), "float32")
    B = T.match_buffer(b, (64, n), "float32")
    for i in T.thread_binding(n, thread="blockIdx.x"):
        for j in T.thread_binding(64, thread="threadIdx.x"):
            B[j, i] = A[i, j]
"""


PRODUCT = """
@R.function
def main(x: R.Tensor(("n", 129), "float16"), w: R.Tensor((129, 1000), "float16"), b: R.Tensor((1000,), "float16")):
    with R.dataflow():
        y = R.nn.relu(R.add(R.matmul(x, w), b))
        R.output(y)
    return y
"""


@pytest.fixture
def tool(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    a = np.random.default_rng(0).random((64, 64), dtype=np.float32)
    np.savez(tmp_path / "x.npz", A=a)
    np.savez(tmp_path / "y.npz", out=a.T)
    return Tool(tmp_path, capfd)


def fails(tool: Tool, *argv: str) -> str:
    tool(*argv, code=1)
    return tool.err


def test_run_emulates_and_compares(tool: Tool) -> None:
    tool.file("t.mlc", SOUND)
    options = ("--func", "transpose", "--in", "x.npz", "--expect", "y.npz")
    tool("run", "t.mlc", "-t", "cuda", "--emulate", *options)
    tool("run", "t.mlc", "-t", "cuda{arch=sm_80}", "--emulate", "--no-check", *options)
    error = fails(tool, "run", "t.mlc", "--emulate", *options)
    assert "E0748" in error and "-t cuda" in error
    tool("compile", "t.mlc", "-t", "cuda", "-o", "t.ptx")
    tool("run", "t.ptx", "--emulate", *options)
    tool.file("n.mlc", NAIVE)
    tool("compile", "n.mlc", "-o", "n.o")
    assert "E0748" in fails(tool, "run", "n.o", "--emulate", "--func", "naive") and "for a CPU" in tool.err


def test_a_fault_ends_the_run(tool: Tool) -> None:
    tool.file("t.mlc", TRANSPOSE.format(row=33, sync="T.evaluate(0)"))
    error = fails(tool, "run", "t.mlc", "-t", "cuda", "--emulate", "--func", "transpose", "--in", "x.npz")
    assert "t.mlc:11:9: error[E0742]" in error and "t.mlc:14:49: note: thread (0, 0) of block (0, 0)" in error


def test_a_fault_in_a_file(tool: Tool) -> None:
    """The places are those of the text that the file holds: the lowered one."""
    tool.file("t.mlc", TRANSPOSE.format(row=33, sync="T.evaluate(0)"))
    tool("compile", "t.mlc", "-t", "cuda", "-o", "t.mlca")
    error = fails(tool, "run", "t.mlca", "--emulate", "--func", "transpose", "--in", "x.npz")
    assert "t.mlca/kernels.mlc:" in error and "E0742" in error and "`S[8]`" in error


def test_python_emulates_and_analyzes() -> None:
    a = np.random.default_rng(1).random((64, 64), dtype=np.float32)
    for check in (True, False):
        b = np.zeros_like(a)
        exe = mlcc.load(mlcc.build(mlcc.parse(SOUND), "cuda{arch=sm_90}"), emulate=True, check=check)
        exe["transpose"](a, b)
        assert np.array_equal(b, a.T)
    with pytest.raises(mlcc.LoadError, match="E0748"):
        mlcc.load(mlcc.build(mlcc.parse(NAIVE)), emulate=True)


def rows(text: str) -> dict[str, list[str]]:
    """The table's rows by access."""
    lines = (line.split() for line in text.splitlines() if ".mlc:" in line)
    return {" ".join(words[1:4]): words[4:] for words in lines}


def test_analyze_finds_bank_conflicts(tool: Tool) -> None:
    """Rows of 32 floats put a column into one bank; those of 33 do not."""
    tool.file("bad.mlc", TRANSPOSE.format(row=32, sync=SYNC))
    tool.file("good.mlc", SOUND)
    bad = tool("analyze", "bad.mlc", "-t", "cuda")
    assert "2 x 2 blocks of 32 x 8 threads" in bad and "4096 bytes of shared memory" in bad
    assert rows(bad)["shared read S"] == ["4", "128", "4096", "128", "32.00", "32"]
    good = rows(tool("analyze", "good.mlc", "-t", "cuda"))
    assert good["shared read S"] == ["4", "128", "128", "128", "1.00", "1"]
    assert good["global read A"] == ["4", "128", "512", "512", "1.00", "1"]


def test_analyze_finds_accesses_across_rows(tool: Tool) -> None:
    tool.file("k.mlc", NAIVE)
    found = json.loads(tool("analyze", "k.mlc", "-t", "cuda{arch=sm_80}", "--size", "n=100", "--json"))
    (kernel,) = found["kernels"]
    read, write = kernel["accesses"]
    assert (read["requests"], read["units"], read["least"]) == (200, 800, 800), "two warps in each of 100 blocks"
    assert (write["what"], write["units"], write["ratio"], write["worst"]) == ("write", write["requests"] * 32, 8, 8)
    assert kernel["grid"] == [100, 1, 1] and kernel["blocks"] == 100 and kernel["exact"]
    assert (found["gpu"], kernel["blocks_per_sm"], kernel["occupancy"]) == ("sm_80", 32, 1.0)
    assert "E0017" in fails(tool, "analyze", "k.mlc", "-t", "cuda")
    assert "--size n=32" in fails(tool, "analyze", "k.mlc", "-t", "cuda")
    assert "E0747" in fails(tool, "analyze", "k.mlc", "-t", "llvm")


def test_analyze_tells_what_limits_occupancy(tool: Tool) -> None:
    """32 blocks fit on a multiprocessor whatever their size, 2048 threads, and 228 KiB of shared memory."""
    text = """
@T.prim_func
def f(B: T.Buffer(({threads},), "float32")):
    tx = T.launch_thread("threadIdx.x", {threads})
    S = T.alloc_buffer(({shared},), "float32", scope="shared")
    S[tx] = T.float32(1)
    S[{shared} - 1 - tx] = T.float32(1)
    B[tx] = S[tx]
"""
    for threads, shared, blocks, limit in (
        (32, 64, 32, "the number of blocks"), (256, 512, 8, "threads"), (64, 8192, 6, "shared memory"),
    ):  # fmt: skip
        tool.file("k.mlc", text.format(threads=threads, shared=shared))
        shown = tool("analyze", "k.mlc", "-t", "cuda{arch=sm_90}")
        assert f"f_kernel: 1 block of {threads} threads" in shown
        assert f"{blocks} blocks at once on a multiprocessor" in shown and shown.count(f"limited by {limit}") == 1


def test_analyze_does_not_take_minutes(tool: Tool) -> None:
    """Of a product on tensor cores with tiles of 128 x 256, whose stores have a place each."""
    tool.file("large.mlc", PRODUCT)
    start = time.process_time()
    found = json.loads(tool("analyze", "large.mlc", "-t", "cuda{arch=sm_90}", "--size", "n=17", "--json"))
    assert found and time.process_time() - start < 25


def test_analyze_runs_some_blocks_of_large_launches(tool: Tool) -> None:
    """The counts are those of the launch, as the text says; `all` runs all, and other words are refused."""
    tool.file("large.mlc", MATMUL.format(m=2048, n=2048, k=2048, dtype="float32"))
    (kernel,) = json.loads(tool("analyze", "large.mlc", "-t", "cuda{arch=sm_90}", "--json"))["kernels"]
    assert 9 <= kernel["blocks"] <= 64 < kernel["grid"][0] and not kernel["exact"]
    stores = sum(a["units"] for a in kernel["accesses"] if a["what"] == "write" and a["scope"] == "global")
    assert stores == 2048 * 2048 * 4 // 32
    tool.file("k.mlc", NAIVE)
    some = tool("analyze", "k.mlc", "-t", "cuda", "--size", "n=300", "--blocks", "5")
    assert "(estimated from 5 of 300 blocks)" in some
    full = tool("analyze", "k.mlc", "-t", "cuda", "--size", "n=300", "--blocks", "all")
    assert "(all blocks counted)" in full and rows(some) == rows(full)
    tool("analyze", "k.mlc", "-t", "cuda", "--size", "n=300", "--blocks", "none", code=2)
    assert "neither a number of blocks" in tool.err and "`all`" in tool.err


def test_analyze_reports_faults(tool: Tool) -> None:
    tool.file("t.mlc", TRANSPOSE.format(row=33, sync="T.evaluate(0)"))
    assert "E0742" in fails(tool, "analyze", "t.mlc", "-t", "cuda")


def estimate(tool: Tool, text: str, arch: str, *options: str) -> dict[str, Any]:
    """The roofline of the only kernel of a text."""
    tool.file("roof.mlc", text)
    found = json.loads(tool("analyze", "roof.mlc", "-t", f"cuda{{arch={arch}}}", "--json", *options))
    (kernel,) = found["kernels"]
    roofline: dict[str, Any] = kernel["roofline"]
    return roofline


ADD = """
@R.function
def main(x: R.Tensor((8192, 1024), "float32"), y: R.Tensor((8192, 1024), "float32")):
    with R.dataflow():
        z = R.add(x, y)
        R.output(z)
    return z
"""
MATMUL = """
@R.function
def main(x: R.Tensor(({m}, {k}), "{dtype}"), w: R.Tensor(({k}, {n}), "{dtype}")):
    with R.dataflow():
        y = R.matmul(x, w)
        R.output(y)
    return y
"""


def test_the_roofline_of_an_addition_is_memory(tool: Tool) -> None:
    """Three arrays of 32 MiB at the bandwidth of an H100, 3352 GB/s."""
    roofline = estimate(tool, ADD, "sm_90", "--blocks", "8")
    assert roofline["bound"] == "memory" and roofline["flops"] == 8192 * 1024
    assert roofline["bytes"] == 3 * 4 * 8192 * 1024
    assert roofline["bounds"]["memory"] == pytest.approx(roofline["bytes"] / 3352e9)
    assert roofline["seconds"] == pytest.approx(roofline["bounds"]["memory"] + 3e-6)
    text = tool("analyze", "roof.mlc", "-t", "cuda{arch=sm_90}", "--blocks", "8")
    assert "estimate: 33.0 us, bound by memory (8.39 MFLOP, 101 MB, " in text


def test_the_roofline_of_a_small_kernel_is_its_launch(tool: Tool) -> None:
    roofline = estimate(tool, SOUND, "sm_80")
    assert roofline["bound"] == "launch" and 3e-6 < roofline["seconds"] < 6e-6
    assert roofline["flops"] == 0 and roofline["waves"] == 1 and roofline["bytes"] == 2 * 4 * 64 * 64


def test_the_roofline_of_bank_conflicts_is_shared_memory(tool: Tool) -> None:
    """Each block reads shared memory a thousand times, all 32 words in one bank."""
    text = """
@T.prim_func
def f(B: T.Buffer((132, 1024), "float32")):
    bx = T.launch_thread("blockIdx.x", 132)
    tx = T.launch_thread("threadIdx.x", 1024)
    S = T.alloc_buffer((1024,), "float32", scope="shared")
    total = T.alloc_buffer((1,), "float32", scope="local")
    S[tx] = T.float32(1)
    total[0] = T.float32(0)
    for k in range(1000):
        total[0] = total[0] + S[(tx * 32 + k) % 1024]
    B[bx, tx] = total[0]
"""
    roofline = estimate(tool, text, "sm_90", "--blocks", "1")
    assert roofline["bound"] == "shared memory" and roofline["flops"] == 132 * 1024 * 1000
    assert roofline["bounds"]["shared memory"] == pytest.approx((32 * 1000 * 32 + 32) / 1.83e9, rel=0.02)


@pytest.mark.parametrize(
    ("arch", "dtype", "bound"),
    [("sm_75", "float32", "arithmetic"), ("sm_90", "float32", "arithmetic"), ("sm_80", "float16", "tensor cores")],
)
def test_the_roofline_of_a_product(tool: Tool, arch: str, dtype: str, bound: str) -> None:
    """All multiply-adds are counted, in units that take no less than the peak allows; repeated reads of shared memory
    in a register tile are not."""
    size = 2048
    roofline = estimate(tool, MATMUL.format(m=size, n=size, k=size, dtype=dtype), arch, "--blocks", "1")
    facts = GpuFacts.of(f"cuda{{arch={arch}}}")
    rates = GpuRates.of(facts)
    per_clock = rates.tensor("f16", False) if dtype == "float16" else 2 * rates.lanes["float32"]
    assert roofline["flops"] == pytest.approx(2 * size**3, rel=0.01), "tensors may be padded to tiles"
    least = 2 * size**3 / (per_clock * facts.sm_count * rates.hertz)
    assert least <= roofline["bounds"][bound] < 1.7 * least, "with whole waves"
    assert roofline["bounds"]["shared memory"] < 1.5 * roofline["bounds"][bound]
    assert roofline["bytes"] == 3 * size * size * np.dtype(dtype).itemsize


def test_the_roofline_of_bulk_copies(tool: Tool) -> None:
    """What the copy engine moves counts, though no thread asks for it, and all of both operands is touched."""
    size = 2048
    roofline = estimate(tool, MATMUL.format(m=size, n=size, k=size, dtype="float16"), "sm_90a", "--blocks", "1")
    assert roofline["flops"] == 2 * size**3 and roofline["bytes"] == 3 * 2 * size**2
    assert roofline["bounds"]["L2 cache"] > roofline["bytes"] / 32 / 132 / 1.83e9


def test_the_roofline_follows_conditions_and_bounds(tool: Tool) -> None:
    """A loop up to the diagonal has half of its iterations; a guard at the edge holds."""
    text = """
@T.prim_func
def f(A: T.Buffer((100, 101), "float32"), B: T.Buffer((100,), "float32")):
    bx = T.launch_thread("blockIdx.x", 101)
    tx = T.launch_thread("threadIdx.x", 1)
    total = T.alloc_buffer((1,), "float32", scope="local")
    if bx < 100:
        total[0] = T.float32(0)
        for k in range(bx + 1):
            total[0] = total[0] + A[bx, k] * A[bx, k]
        B[bx] = total[0]
"""
    assert estimate(tool, text, "sm_80")["flops"] == 101 * 51 * 2
