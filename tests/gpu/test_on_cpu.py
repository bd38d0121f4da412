"""What is emitted for GPUs computes what the code for CPUs computes: every operation, and course schedules."""

from __future__ import annotations

from itertools import islice

import llvmlite.binding as llvm
import numpy as np
import pytest

import mlcc
from mlcc import CompileError
from mlcc.ir import tir
from mlcc.ir.tir import ForKind
from mlcc.passes.gpu.device import DeviceKernel
from mlcc.targets.cuda.ptx import emit_ptx
from mlcc.targets.llvm.codegen.vmath import BINARY, UNARY
from mlcc.targets.llvm.object.compile import Machine
from tests.gpu.everything import everything
from tests.gpu.on_cpu import Kernels
from tests.lower import lower_gpu
from tests.targets.build import func, loop
from tests.targets.harness import Native

pytestmark = pytest.mark.skipif(not llvm.get_host_cpu_features().get("fma"), reason="needs fused multiply-add")
TOGETHER = ("tvm_", "atomic")  # what threads do with others
OPEN = ("q_multiply_shift",)  # whose result is not laid down for counts of bits beyond a number's
ELEMENTARY = {*UNARY, *BINARY} - {"fmod", "nextafter", "sqrt"}  # exact to some bits; test_device_math judges them
CPU = Machine(cpu="x86-64-v3")
BYTES = 16 * 64 * 8


def computed(kernel: DeviceKernel) -> bool:
    """Whether it is compiled, and a thread does it alone."""
    name = kernel.name.split(".")[1 if kernel.name.startswith(("llvm.", "extern.")) else 0].partition("/")[0]
    if name.startswith((*TOGETHER, *OPEN)) or name in ELEMENTARY or name.removesuffix("f") in ELEMENTARY:
        return False
    try:
        emit_ptx([kernel], "cuda{arch=sm_75}", opt_level=0)
    except CompileError:
        return False
    return True


def as_loop(kernel: DeviceKernel) -> tir.PrimFunc:
    """The kernel's threads as a loop of a function for CPUs."""
    (tx,) = kernel.axes.values()
    return func([b for b in kernel.buffers if b is not None], loop(tx, 32, kernel.body, ForKind.SERIAL))


def test_every_operation_gives_the_bits_that_a_cpu_gives() -> None:
    """A share of all kernels of `everything`, over random bits."""
    share = [k for k in islice(everything(lanes=(1, 4)), 17, None, 53) if computed(k)]
    assert len(share) > 15
    gpu = Kernels(share)
    rng = np.random.default_rng(7)
    for kernel in share:
        dtypes = [b.dtype for b in kernel.buffers if b is not None]
        arrays = [rng.integers(0, 256, BYTES).astype("uint8") for _ in dtypes]
        for dtype, array in zip(dtypes, arrays, strict=True):
            if dtype.is_bool:
                array &= 1
        made, wanted = arrays[-1].copy(), arrays[-1].copy()
        gpu.run(kernel.name, (1,), (32,), *arrays[:-1], made)
        assert Native(as_loop(kernel), machine=CPU)(*arrays[:-1], wanted) == 0
        np.testing.assert_array_equal(comparable(made, dtypes[-1]), comparable(wanted, dtypes[-1]), err_msg=kernel.name)


def comparable(data: np.ndarray, dtype: object) -> np.ndarray:
    """Bits, but for NaN any: which one an operation gives is not laid down."""
    name = str(dtype)
    if name in ("float16", "float32", "float64"):
        return np.nan_to_num(data.view(name), nan=1.5, posinf=np.inf, neginf=-np.inf)
    if name == "bfloat16":
        wide = (data.view("uint16").astype("uint32") << 16).view("float32")
        return np.nan_to_num(wide, nan=1.5, posinf=np.inf, neginf=-np.inf)
    if name.startswith("float8"):
        nan = (data & 127) > (126 if name.endswith("fn") else 124)
        return np.where(nan, 127, data)
    return data


def test_a_product_in_registers_by_the_courses_schedule() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer((64, 64), "float32"), B: T.Buffer((64, 64), "float32"), C: T.Buffer((64, 64), "float32")):
    for i, j, k in T.grid(64, 64, 64):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
    script = """
def schedule(sch):
    block = sch.get_block("C")
    local = sch.cache_write(block, 0, "local")
    i, j, k = sch.get_loops(block=block)
    i0, i1, i2 = sch.split(loop=i, factors=[None, 4, 4])
    j0, j1, j2 = sch.split(loop=j, factors=[None, 4, 8])
    k0, k1 = sch.split(loop=k, factors=[None, 4])
    sch.reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    sch.reverse_compute_at(local, j1)
    sch.bind(i0, "blockIdx.y")
    sch.bind(j0, "blockIdx.x")
    sch.bind(i1, "threadIdx.y")
    sch.bind(j1, "threadIdx.x")
    sch.decompose_reduction(block, k0)
"""
    scheduled = mlcc.apply_schedule(mlcc.parse(text), script)["f"]
    assert isinstance(scheduled, tir.PrimFunc)
    (kernel,) = lower_gpu("f", scheduled).kernels
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, (64, 64)).astype("float32") for _ in range(2))
    c = np.full((64, 64), np.nan, "float32")
    arrays = {"A": a, "B": b, "C": c}
    given = [arrays[buffer.name] for buffer in kernel.buffers if buffer is not None]
    Kernels([kernel]).run(kernel.name, (2, 4), (4, 4), *given)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
