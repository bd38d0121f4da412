"""The emulated device: memory of the host, kernels by emulation, scalars of all kinds."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mlcc.errors import CallError, LoadError
from mlcc.runtime.device import KernelSpec
from mlcc.targets.emulate.device import EmulatedDevice
from tests.emulate.kernels import program, rand

SCALE = """
@T.prim_func
def scale(A: T.Buffer((64,), "float32"), by: T.{dtype}, B: T.Buffer((64,), "float32")):
    tx = T.launch_thread("threadIdx.x", {threads})
    B[tx] = A[tx] * T.Cast("float32", by)
"""


@pytest.mark.parametrize(
    ("dtype", "value"), [("float16", 1.5), ("bfloat16", -3.0), ("bool", True), ("int8", -2), ("float64", 0.25)]
)
def test_a_launch(dtype: str, value: float) -> None:
    (kernel,) = program(SCALE.format(dtype=dtype, threads=64)).kernels
    device = EmulatedDevice([kernel])
    params = tuple("ptr" if p.dtype.is_handle else str(p.dtype) for p in kernel.params)
    loaded = device.load_module(b"", {kernel.name: KernelSpec(kernel.name, params)})
    a, b = rand(64), np.zeros(64, "float32")
    at = {"A": device.alloc(256), "B": device.alloc(256)}
    device.copy_in(at["A"], a.ctypes.data, 256)
    args = [at.get(p.name, value) for p in kernel.params]
    device.launch(loaded[kernel.name], (1, 1, 1), (64, 1, 1), 0, args)
    device.copy_out(b.ctypes.data, at["B"], 256)
    assert np.array_equal(b, a * np.float32(value))


def test_the_end_of_an_allocation_is_known() -> None:
    (kernel,) = program(SCALE.format(dtype="int32", threads=128)).kernels
    device = EmulatedDevice([kernel])
    loaded = device.load_module(b"", {kernel.name: KernelSpec(kernel.name, ("ptr", "ptr", "int32"))})
    place = device.alloc(600)
    args = {"A": place, "B": device.alloc(256), "by": 2}
    ctypes.memset(place, 0, 600)
    with pytest.raises(CallError, match=r"`B\[64\]` is outside of `B`, which has 64 elements") as caught:
        device.launch(loaded[kernel.name], (1, 1, 1), (128, 1, 1), 0, [args[p.name] for p in kernel.params])
    assert len(caught.value.diagnostics) == 1, "A has 150"
    unchecked = EmulatedDevice([kernel], check=False).load_module(b"", {kernel.name: KernelSpec(kernel.name, ())})
    assert unchecked[kernel.name].checks.sites == []


def test_an_unknown_kernel() -> None:
    with pytest.raises(LoadError, match="no kernel `other`"):
        EmulatedDevice([]).load_module(b"", {"other": KernelSpec("other", ())})
