"""Memory of a warp: registers of its threads, and shuffles for what others hold."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.gpu import DeviceProgram
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

ROTATE = """
@T.prim_func
def f(A: T.Buffer(({blocks}, {threads}, {run}), "{dtype}"), B: T.Buffer(({blocks}, {threads}, {run}), "{dtype}")):
    for b in T.thread_binding({blocks}, thread="blockIdx.x"):
        for t in T.thread_binding({threads}, thread="threadIdx.x"):
            with T.block("rotate"):
                vb, vt = T.axis.remap("SS", [b, t])
                T.reads(A[vb, vt, 0:{run}])
                T.writes(B[vb, vt, 0:{run}])
                W = T.alloc_buffer(({width}, {run}), "{dtype}", scope="warp")
                for i in range({run}):
                    W[vt % {width}, i] = A[vb, vt, i]
                for i in range({run}):
                    B[vb, vt, i] = W[(vt + {by}) % {width}, i]
"""


def lowered(text: str) -> DeviceProgram:
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


@pytest.mark.parametrize(
    ("threads", "run", "dtype"),
    [(32, 1, "float32"), (32, 3, "int32"), (64, 2, "float16"), (8, 4, "float32"), (16, 1, "int8"), (128, 5, "int64")],
)
@pytest.mark.parametrize("by", [0, 1, 7])
def test_threads_read_what_others_hold(threads: int, run: int, dtype: str, by: int) -> None:
    width = min(threads, 32)
    made = lowered(ROTATE.format(blocks=2, threads=threads, run=run, dtype=dtype, width=width, by=by))
    (kernel,) = made.kernels
    allocated = {n.buffer.scope: tir.const_int(n.buffer.shape[0])
                 for s in kernel.body for n in walk(s) if isinstance(n, tir.AllocBuffer)}  # fmt: skip
    assert allocated == {"local": run}
    shuffles = [n for s in kernel.body for n in walk(s) if isinstance(n, tir.Call) and "shuffle" in str(n.op)]
    assert bool(shuffles) == bool(by)
    given = np.arange(2 * threads * run).reshape(2, threads, run).astype(dtype)
    got = np.zeros_like(given)
    run_program(made, given, got)
    want = np.roll(given.reshape(2, -1, width, run), -by, axis=2).reshape(given.shape)
    np.testing.assert_array_equal(got, want)


def test_indices_of_64_bits_are_supported() -> None:
    text = ROTATE.format(blocks=2, threads=32, run=3, dtype="int32", width=32, by=0)
    text = (
        text.replace("vt % 32", "vt")
        .replace("(vt + 0) % 32", "vt")
        .replace("thread_binding(2", "thread_binding(T.int64(2)")
        .replace("binding(32", "binding(T.int64(32)")
    )
    given = np.arange(2 * 32 * 3, dtype="int32").reshape(2, 32, 3)
    got = np.zeros_like(given)
    run_program(lowered(text), given, got)
    np.testing.assert_array_equal(got, given)


@pytest.mark.parametrize(
    ("write", "read", "message"),
    [
        ("W[31 - vt, i]", "W[vt, i]", "not a multiple of its thread index"),
        ("W[vt, i]", "W[vt // 2, vt % 2]", "different elements"),
        ("W[(vt + 1) % 32, i]", "W[vt, i]", "not a multiple of its thread index"),
    ],
)
def test_what_no_thread_holds_is_refused(write: str, read: str, message: str) -> None:
    text = ROTATE.format(blocks=1, threads=32, run=2, dtype="float32", width=32, by=0)
    text = text.replace("W[vt % 32, i]", write).replace("W[(vt + 0) % 32, i]", read)
    with pytest.raises(mlcc.CompileError, match="E0772") as caught:
        lowered(text)
    assert message in caught.value.diagnostics[0].message


@pytest.mark.parametrize(
    ("condition", "is_legal"), [("vb < 1", True), ("vt < 20", False), ("A[vb, vt, 0] > T.float32(0)", False)]
)
def test_threads_that_have_left_are_not_read(condition: str, is_legal: bool) -> None:
    """A shuffle gives nothing of a lane that is not there."""
    text = ROTATE.format(blocks=2, threads=32, run=1, dtype="float32", width=32, by=1)
    read = "                    B[vb, vt, i] ="
    guarded = text.replace(read, f"                    if {condition}:\n    {read}")
    assert guarded != text
    if is_legal:
        assert lowered(guarded).kernels
        return
    with pytest.raises(mlcc.CompileError, match="a thread is read that may have left"):
        lowered(guarded)
    own = guarded.replace("W[(vt + 1) % 32, i]", "W[vt % 32, i]")
    assert lowered(own).kernels
