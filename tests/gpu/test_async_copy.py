"""Asynchronous copies: in stages that ask for them, what goes to shared memory by 4, 8 or 16 bytes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import mlcc
from mlcc.ir import tir
from mlcc.passes.gpu import DeviceProgram
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.cuda.ptxas import assemble, find_ptxas
from mlcc.targets.emulate import run_program
from tests.lower import lower_gpu

# rows of 128 elements, summed over the rows; {lanes} elements are copied at a time
TEXT = """
@T.prim_func
def f(A: T.Buffer(({rows}, {width}), "{dtype}"), B: T.Buffer((128,), "{dtype}")):
    for b in T.thread_binding(1, thread="blockIdx.x"):
        for t in T.thread_binding({threads}, thread="threadIdx.x"):
            for c in range(128 // {threads}):
                with T.block("init"):
                    v = T.axis.spatial(128, (t + {threads} * c + 37) % 128)
                    B[v] = T.{dtype}(0)
        for i in T.serial({rows}, annotations={{"software_pipeline_stage": [0, {stage}],
                "software_pipeline_order": {order}, "software_pipeline_async_stages": [0]}}):
            with T.block("row"):
                vi = T.axis.reduce({rows}, i)
                T.reads(A[vi, 0:{width}], B[0:128])
                T.writes(B[0:128])
                S = T.alloc_buffer((128,), "{dtype}", scope="shared")
                for t in T.thread_binding({threads}, thread="threadIdx.x"):
                    for l in T.vectorized({lanes}):
                        with T.block("copy"):
                            v = T.axis.spatial(128, t * {lanes} + l)
                            S[v] = {value}
                for t in T.thread_binding({threads}, thread="threadIdx.x"):
                    for c in range(128 // {threads}):
                        with T.block("add"):
                            v = T.axis.spatial(128, (t + {threads} * c + 37) % 128)
                            T.reads(S[v], B[v])
                            T.writes(B[v])
                            B[v] = B[v] + S[v]
"""


def lowered(
    dtype: str, lanes: int, stage: int = 3, order: str = "[0, 1]", width: int = 128, value: str = "A[vi, v]"
) -> DeviceProgram:
    if width != 128:
        value = f"T.if_then_else(t * {lanes} < {width}, {value}, T.{dtype}(0))"
    text = TEXT.format(dtype=dtype, lanes=lanes, threads=128 // lanes, rows=9, stage=stage, order=order, width=width,
                       value=value)  # fmt: skip
    func = mlcc.parse(text)["f"]
    assert isinstance(func, tir.PrimFunc)
    return lower_gpu("f", func)


CASES = [("float32", 1), ("float32", 2), ("float32", 4), ("float16", 4), ("float16", 8), ("int8", 16)]


@pytest.mark.parametrize(("dtype", "lanes"), CASES)
@pytest.mark.parametrize(("stage", "order"), [(1, "[0, 1]"), (3, "[1, 0]")])
@pytest.mark.parametrize("width", [128, 96])
def test_rows_arrive_before_they_are_used(dtype: str, lanes: int, stage: int, order: str, width: int) -> None:
    made = lowered(dtype, lanes, stage, order, width)
    given = np.random.default_rng(0).integers(-4, 4, (9, width)).astype(dtype)
    got = np.zeros(128, dtype)
    run_program(made, given, got)
    np.testing.assert_array_equal(got[:width], given.sum(axis=0, dtype=dtype))
    assert not got[width:].any()
    size = lanes * np.dtype(dtype).itemsize
    text = emit_ptx(made.kernels, "cuda{arch=sm_80}").text
    copies = re.findall(r"cp\.async\.(c[ag])\.shared\.global (.*);", text)
    assert copies and all(kind == ("cg" if size == 16 else "ca") for kind, _ in copies)
    assert all(len(operands.split(",")) == (3 if width == 128 else 4) for _, operands in copies)
    assert re.search(rf"cp\.async\.wait_group\s+{stage if order == '[0, 1]' else stage - 1};", text)
    if find_ptxas() is not None:
        (found,) = assemble(text, "sm_80").values()
        assert found.spill_stores == 0 and found.shared == (stage + 1 if (stage, order) != (1, "[1, 0]") else 1) * (
            128 * np.dtype(dtype).itemsize
        )


def test_one_condition_inside_another() -> None:
    made = lowered("float32", 4, 1, "[1, 0]", 96, "T.if_then_else(vi < 5, A[vi, v], T.float32(0))")
    given = np.random.default_rng(0).integers(-4, 4, (9, 96)).astype("float32")
    got = np.zeros(128, "float32")
    run_program(made, given, got)
    np.testing.assert_array_equal(got[:96], given[:5].sum(axis=0))
    text = emit_ptx(made.kernels, "cuda{arch=sm_80}").text
    assert "ld.global" not in text.split("cp.async")[1] and re.search(r"cp\.async\.cg.*, 16, %r", text)


def test_other_sizes_and_older_architectures_copy_as_ever() -> None:
    assert "cp.async.ca" not in emit_ptx(lowered("int8", 2).kernels, "cuda{arch=sm_80}").text
    assert "cp.async" not in emit_ptx(lowered("float32", 4).kernels, "cuda{arch=sm_75}").text
