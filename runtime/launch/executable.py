"""A launch plan on a device: the executable that `mlcc.load` returns for device code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.runtime.executable import Executable
from mlcc.runtime.function import Function
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.device_array import DeviceArray
from mlcc.runtime.launch.device_log import DeviceLog
from mlcc.runtime.launch.executor import LaunchExecutor
from mlcc.runtime.launch.loaded import DeviceModule
from mlcc.runtime.launch.reader import read_plan
from mlcc.runtime.manifest import Manifest


class LaunchExecutable(Executable):
    """A loaded launch plan. Its functions take NumPy arrays, and arrays in the device's memory, which stay there."""

    def __init__(self, facts: Manifest, raw_plan: Any, constants: Sequence[Any], code: bytes, device: Device) -> None:
        """`constants` are buffers in the order of the plan; `code` is what the device loads. Raises LoadError."""
        super().__init__(facts)
        self.plan = read_plan(raw_plan, facts.functions, facts.packed)
        self.device = device
        buffers = [memoryview(c).cast("B") if memoryview(c).nbytes else memoryview(b"") for c in constants]
        self._module = DeviceModule(self.plan, device, code, buffers)
        for name, spec in facts.functions.items():
            executor = LaunchExecutor(spec, self.plan.functions[name], self._module)
            self.functions[name] = Function(executor.signature, executor)

    def execution_log(self) -> DeviceLog:
        """Begin to log the operations of the device, each of which is waited for."""
        return DeviceLog(self.device, self._module.loaded().kernels)

    @property
    def host_copies(self) -> int:
        """The number of arrays copied between device and host, for CPU packed functions or to make them contiguous."""
        return self._module.host_copies

    def to_device(self, array: Any) -> DeviceArray:
        """A copy of an array in the device's memory. Raises CallError."""
        return DeviceArray.of(self._module.loaded().pool, array)
