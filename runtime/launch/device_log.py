"""The execution log of a launch plan: each launch, copy, fill and packed call, timed on the host.

While a log is attached, an operation of the device is waited for before the next one is issued.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.runtime.execution_log import CAPACITY, Event, Row
from mlcc.runtime.launch.device import Device

# operation of a device -> kind of its event, the position of its size among the arguments
_TRANSFERS = {"copy": ("copy", 2), "memset": ("fill", 2), "copy_in": ("upload", 2), "copy_out": ("download", 2)}


class DeviceLog:
    """The log of a device; `kernels` are the handles of loaded kernels by name. It logs until `detach`."""

    def __init__(self, device: Device, kernels: Mapping[str, Any], capacity: int = CAPACITY) -> None:
        self.device = device
        self.lost = 0
        self._capacity = capacity
        self._rows: list[Row] = []
        self._names = {id(handle): name for name, handle in kernels.items()}
        self._replaced = {name: self._logged(name, getattr(device, name)) for name in ("launch", *_TRANSFERS)}
        for name, operation in self._replaced.items():
            setattr(device, name, operation)
        device.can_capture = False  # for this device: hides the attribute of the class
        device.log = self

    def detach(self) -> None:
        """Stop logging."""
        device = self.device
        if device.log is self:
            for name in (*self._replaced, "can_capture", "log"):
                delattr(device, name)

    def read(self) -> list[Row]:
        """Return the rows so far, in the order in which events ended."""
        return list(self._rows)

    def call(self, kind: str, name: str, size: int, operation: Callable[[], Any]) -> Any:
        """Run an operation, and log it also if it raises."""
        start = time.monotonic_ns()
        try:
            return operation()
        finally:
            row = Row(Event(kind, name), start, time.monotonic_ns(), threading.get_native_id(), size)
            if len(self._rows) < self._capacity:
                self._rows.append(row)
            else:
                self.lost += 1

    def _logged(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def logged(*args: Any) -> Any:
            if name == "launch":
                kind, label, size = "kernel", self._names.get(id(args[0]), "kernel"), 0
            else:
                kind, at = _TRANSFERS[name]
                label, size = kind, args[at]

            def run() -> Any:
                result = operation(*args)
                self.device.synchronize()
                return result

            return self.call(kind, label, size, run)

        return logged
