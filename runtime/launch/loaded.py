"""A launch plan on a device: its kernels and constants, and memory for calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlcc.runtime.abi import ERROR_RECORD_BYTES
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.device_memory import Pool
from mlcc.runtime.launch.plan import Plan

RECORD_ALIGNMENT = 8


class LoadedPlan:
    """The kernels and constants of a plan on a device, valid as long as the device keeps its memory."""

    def __init__(self, plan: Plan, device: Device, code: bytes, constants: Sequence[memoryview]) -> None:
        self.plan = plan
        self.device = device
        self.generation = device.generation
        self.pool = Pool(device)
        self.kernels = device.load_module(code, {name: k.spec for name, k in plan.kernels.items()})
        self.host_copies = 0
        self.record_bytes = ERROR_RECORD_BYTES * plan.words + RECORD_ALIGNMENT
        self._blocks = [self.pool.take(spec.bytes) for spec in plan.constants]
        self.constants = [b.address for b in self._blocks]
        for block, data in zip(self._blocks, constants, strict=True):
            if data.nbytes:
                here = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
                device.copy_in(block.address, here, data.nbytes)


class DeviceModule:
    """A launch plan with its code and constants, loaded onto a device, and again if the device lost its memory."""

    def __init__(self, plan: Plan, device: Device, code: bytes, constants: Sequence[memoryview]) -> None:
        """`constants` are in the order of the plan. Raises LoadError, CallError."""
        self.plan = plan
        self.device = device
        self._code = code
        self._constants = constants
        self._copies = 0  # of lost modules
        with device.lock:
            self._loaded = LoadedPlan(plan, device, code, constants)

    def loaded(self) -> LoadedPlan:
        """Return the loaded plan, loaded again if the device lost its memory. Raises LoadError, CallError."""
        if self._loaded.generation != self.device.generation:
            self._copies += self._loaded.host_copies
            self._loaded = LoadedPlan(self.plan, self.device, self._code, self._constants)
        return self._loaded

    @property
    def host_copies(self) -> int:
        """The number of arrays copied between device and host, for CPU packed functions or to make them contiguous."""
        return self._copies + self._loaded.host_copies
