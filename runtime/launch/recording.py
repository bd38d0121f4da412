"""Recordings of device operations, for replay.

A run of a static plan only issues launches, copies and fills whose arguments follow from its symbols and addresses:
`Recorder` records them in place of the device, and `play` issues them as often as needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.runtime.launch.device import Device, Extents
from mlcc.runtime.launch.device_memory import Block
from mlcc.runtime.launch.scalars import Values


class Recorder:
    """A sink that records operations. `blocks` is the memory that they use."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.blocks: list[Block] = []

    def launch(self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[Any]) -> None:
        self.calls.append(("launch", (kernel, grid, block, shared_bytes, tuple(args))))

    def copy(self, target: int, source: int, size: int) -> None:
        self.calls.append(("copy", (target, source, size)))

    def memset(self, target: int, value: int, size: int) -> None:
        self.calls.append(("memset", (target, value, size)))

    def play(self, device: Device) -> None:
        """Issue the recorded operations."""
        operations: dict[str, Any] = {"launch": device.launch, "copy": device.copy, "memset": device.memset}
        for name, args in self.calls:
            operations[name](*args)


_MIN_GRAPH_CALLS = 3  # operations from which on a graph is worth capturing


class Recording:
    """The device operations of a call with certain addresses and symbols."""

    def __init__(self, recorder: Recorder, values: Values, device: Device) -> None:
        self.recorder = recorder
        self.values = values
        self.device = device
        self.generation = device.generation
        self.graph: Any = None
        self.tried = False  # to capture a graph
        self.plays = 0

    def play(self, is_repeated: bool) -> None:
        """Run the operations, as a captured graph if the device supports it and it is worthwhile."""
        device = self.device
        self.plays += 1
        is_worthwhile = len(self.recorder.calls) >= _MIN_GRAPH_CALLS and (is_repeated or self.plays > 2)
        if not self.tried and device.can_capture and is_worthwhile:
            self.tried = True
            device.begin_capture()
            try:
                self.recorder.play(device)
            finally:
                self.graph = device.end_capture()
        if self.graph is not None:
            device.replay(self.graph)
        else:
            self.recorder.play(device)

    def __del__(self) -> None:
        if self.graph is not None and self.generation == self.device.generation:
            self.device.drop(self.graph)
