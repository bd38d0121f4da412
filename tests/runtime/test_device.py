"""Devices over host memory: what every device does alike."""

from __future__ import annotations

import numpy as np
import pytest

from mlcc.errors import CallError
from mlcc.runtime.launch.device import KernelSpec, out_of_memory
from tests.runtime.devices import PythonDevice, array


def double(grid: object, block: object, shared: int, source: int, target: int, count: int) -> None:
    array(target, (count,))[:] = array(source, (count,)) * 2


SPECS = {"double": KernelSpec("double", ("ptr", "ptr", "int64"))}


def test_memory_moves_and_kernels_run() -> None:
    device = PythonDevice({"double": double})
    x = np.arange(5, dtype=np.float32)
    y = np.empty_like(x)
    source, target = device.alloc(x.nbytes), device.alloc(x.nbytes)
    assert source % 256 == 0 and target % 256 == 0 and source != target
    device.copy_in(source, x.ctypes.data, x.nbytes)
    kernels = device.load_module(b"", SPECS)
    start = device.record()
    device.launch(kernels["double"], (1, 1, 1), (5, 1, 1), 0, (source, target, 5))
    device.copy_out(y.ctypes.data, target, y.nbytes)
    assert device.elapsed(start, device.record()) >= 0
    np.testing.assert_array_equal(y, x * 2)
    device.memset(target, 0, 8)
    device.copy(source, target, 8)
    device.copy_out(y.ctypes.data, source, y.nbytes)
    np.testing.assert_array_equal(y, [0, 0, 2, 3, 4])


def test_fresh_memory_is_no_number_and_is_counted() -> None:
    device = PythonDevice({})
    before = device.memory_info()
    address = device.alloc(40)
    assert np.isnan(array(address, (10,))).all()
    assert device.memory_info().free == before.free - 40
    device.free(address)
    device.free(address)  # nothing
    assert device.memory_info() == before and not device.allocations()
    assert device.alloc(0) == 0


def test_a_capture_is_done_when_it_is_replayed() -> None:
    device = PythonDevice({"double": double}, can_capture=True)
    kernels = device.load_module(b"", SPECS)
    a, b = device.alloc(16), device.alloc(16)
    device.memset(a, 0, 16)
    device.memset(b, 0xFF, 16)
    device.begin_capture()
    device.launch(kernels["double"], (1, 1, 1), (4, 1, 1), 0, (a, b, 4))
    graph = device.end_capture()
    assert np.isnan(array(b, (4,))).all()
    array(a, (4,))[:] = 3
    device.replay(graph)
    assert (array(b, (4,)) == 6).all()


def test_what_is_missing_is_said_with_sizes() -> None:
    device = PythonDevice({})
    said = out_of_memory(3 << 30, device.memory_info())
    assert "3.0 GiB" in str(said) and "1024.0 GiB are free" in str(said) and said.diagnostics[0].code == "E0865"
    device.faults["alloc"] = said
    with pytest.raises(CallError, match="E0865"):
        device.alloc(1)
