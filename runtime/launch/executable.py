"""A launch plan on a device: the executable that `mlcc.load` gives for code that does not run on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.runtime.executable import Functions
from mlcc.runtime.launch.call import PlanFunction
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.device_array import DeviceArray
from mlcc.runtime.launch.plan import read_plan
from mlcc.runtime.launch.run import Loaded
from mlcc.runtime.manifest import Manifest
from mlcc.runtime.timing import Timer


class PlanExecutable(Functions):
    """A loaded launch plan. Its functions take NumPy arrays, and arrays in the device's memory, which stay there."""

    def __init__(self, facts: Manifest, raw_plan: Any, constants: Sequence[Any], code: bytes, device: Device) -> None:
        """`constants` are buffers in the order of the plan; `code` is what the device loads. Raises LoadError."""
        super().__init__(facts)
        self.plan = read_plan(raw_plan, facts.functions, facts.packed)
        self.device = device
        self._code = code
        self._constants = [memoryview(c).cast("B") if memoryview(c).nbytes else memoryview(b"") for c in constants]
        self._loaded: Loaded | None = None
        self.functions = {
            name: PlanFunction(spec, self.plan.functions[name], self) for name, spec in facts.functions.items()
        }
        self._copies = 0
        with device.lock:
            self.loaded()

    def loaded(self) -> Loaded:
        """Code and constants on the device; again, where its memory was lost. Raises LoadError, CallError."""
        if self._loaded is None or self._loaded.generation != self.device.generation:
            if self._loaded is not None:
                self._copies += self._loaded.host_copies
            self._loaded = Loaded(self.plan, self.device, self._code, self._constants)
        return self._loaded

    @property
    def host_copies(self) -> int:
        """How many arrays were copied between device and host for packed functions of the CPU, and to close gaps."""
        return self._copies + (0 if self._loaded is None else self._loaded.host_copies)

    def to_device(self, array: Any) -> DeviceArray:
        """A copy of an array in the device's memory. Raises CallError."""
        return DeviceArray.of(self.loaded().pool, array)

    def time_evaluator(self, name: str, number: int = 10, repeat: int = 5, min_seconds: float = 0.0) -> Timer:
        """A timer for a function, by the device's own clock: what is copied to and from the host is not counted."""
        return Timer(self[name], None, number, repeat, min_seconds)
