"""The pass `lower-gpu` shows kernels as text; large shared memory becomes dynamic."""

from __future__ import annotations

import mlcc
from mlcc.ir import tir
from tests.gpu.test_kernels import WINDOW
from tests.lower import lower_gpu


def test_the_kernel_as_text() -> None:
    text = mlcc.script(mlcc.run_passes(mlcc.parse(WINDOW), "lower-gpu"))
    assert 'T.launch_thread("blockIdx.x", 8)' in text and 'T.launch_thread("threadIdx.x", 128)' in text
    assert "def f_kernel(" in text and "f_kernel(A" in text.replace("Module.", "").replace("cls.", "")
    assert text.count("tvm_storage_sync") == 1
    assert mlcc.script(mlcc.parse(text)) == text


def test_what_is_too_large_for_a_fixed_place_is_dynamic() -> None:
    text = """
@T.prim_func
def f(A: T.Buffer(({n},), "float32"), B: T.Buffer(({n},), "float32")):
    tx = T.launch_thread("threadIdx.x", 128)
    S = T.alloc_buffer(({n},), "float32", scope="shared")
    for i in range({n} // 128):
        S[i * 128 + tx] = A[i * 128 + tx]
    for i in range({n} // 128):
        B[i * 128 + tx] = S[{n} - 1 - i * 128 - tx]
"""
    for n, dynamic in ((12288, 0), (12416, 49664)):
        func = mlcc.parse(text.format(n=n))["f"]
        assert isinstance(func, tir.PrimFunc)
        (kernel,) = lower_gpu("f", func).kernels
        assert tir.const_int(kernel.dynamic_shared) == dynamic
