"""Carrying out the steps of a launch plan over a device, at once or noted down to be played again.

A run whose plan is static issues nothing but launches, copies and fills whose arguments follow from its symbols and
addresses: `Recorder` takes them in place of the device, and `play` gives them to it as often as they are wanted.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from mlcc.runtime.abi import RECORD
from mlcc.runtime.launch.device import Device, Extents
from mlcc.runtime.launch.device_memory import Block, Pool
from mlcc.runtime.launch.packed import call_packed
from mlcc.runtime.launch.plan import FunctionPlan, Kernel, PackedArgument, Plan
from mlcc.runtime.launch.scalars import Values
from mlcc.runtime.launch.tensor_map import TensorMap
from mlcc.runtime.manifest import PackedSpec


class Failure(Exception):
    """A check or assertion of the program failed; `code` says which, `numbers` are those that its text mentions."""

    def __init__(self, code: int, numbers: tuple[int, int] = (0, 0)) -> None:
        super().__init__(code)
        self.code = code
        self.numbers = numbers


_RECORD_ALIGNMENT = 8


class Sink(Protocol):
    """What takes the work of a run: a device, or a recorder."""

    def launch(self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[Any]) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def memset(self, target: int, value: int, size: int) -> None: ...


class Recorder:
    """Notes what it is asked to do. `blocks` is memory that this needs."""

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
        """Do what was noted."""
        does: dict[str, Any] = {"launch": device.launch, "copy": device.copy, "memset": device.memset}
        for name, args in self.calls:
            does[name](*args)


_WORTH_A_GRAPH = 3  # calls of the driver


class Recording:
    """What a call with certain addresses and symbols has the device do."""

    def __init__(self, recorder: Recorder, values: Values, device: Device) -> None:
        self.recorder = recorder
        self.values = values
        self.device = device
        self.generation = device.generation
        self.graph: Any = None
        self.tried = False  # to make it one
        self.plays = 0

    def play(self, often: bool) -> None:
        """Do it; as a graph where the device can and it pays."""
        device = self.device
        self.plays += 1
        worth = len(self.recorder.calls) >= _WORTH_A_GRAPH and (often or self.plays > 2)
        if not self.tried and device.can_capture and worth:
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


class Loaded:
    """A plan with what of it lies on a device: kernels, constants, and memory for calls."""

    def __init__(self, plan: Plan, device: Device, code: bytes, constants: Sequence[memoryview]) -> None:
        self.plan = plan
        self.device = device
        self.generation = device.generation
        self.pool = Pool(device)
        self.kernels = device.load_module(code, {name: k.spec for name, k in plan.kernels.items()})
        self.host_copies = 0
        self.record_bytes = RECORD * plan.words + _RECORD_ALIGNMENT
        self._blocks = [self.pool.take(spec.bytes) for spec in plan.constants]
        self.constants = [b.address for b in self._blocks]
        for block, data in zip(self._blocks, constants, strict=True):
            if data.nbytes:
                here = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
                device.copy_in(block.address, here, data.nbytes)


class Run:
    """One call under way: where its arguments and its workspace lie, and where its work goes."""

    def __init__(self, loaded: Loaded, function: FunctionPlan, args: Sequence[int], work: int, words: int) -> None:
        self.loaded = loaded
        self.function = function
        self.device = loaded.device
        self.constants = loaded.constants
        self.args = args
        self.work = work
        self.words = -(-words // _RECORD_ALIGNMENT) * _RECORD_ALIGNMENT  # where the error records lie
        self.sink: Sink = loaded.device
        self.blocks: list[Block] = []  # memory of this call alone

    def __call__(self, values: Values) -> None:
        """Issue everything. Raises Failure."""
        count = self.loaded.plan.words
        if count:
            self.sink.memset(self.words, 0, RECORD * count)
        for name in self.function.measured:
            values[name] = 0
        for step in self.function.steps:
            step(self, values)

    # ------------------------------------------------------------ what steps do

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, shared: int, args: list[Any]) -> None:
        args = [self.device.tensor_map(a) if isinstance(a, TensorMap) else a for a in args]
        if kernel.asserts:
            args.append(self.words + RECORD * kernel.word)
        self.sink.launch(self.loaded.kernels[kernel.name], grid, block, shared, args)

    def copy(self, target: int, source: int, size: int) -> None:
        if size > 0 and target != source:
            self.sink.copy(target, source, size)

    def realigned(self, address: int, size: int, filled: bool) -> int:
        """An aligned stand-in for memory that a kernel takes."""
        block = self.loaded.pool.take(max(size, 1))
        self.blocks.append(block)
        if filled:
            self.copy(block.address, address, size)
        return block.address

    def fail(self, code: int) -> None:
        if self.sink is self.device:  # else nothing was done yet
            self.check()
        raise Failure(code)

    def flag(self, address: int) -> bool:
        """A bool in the device's memory."""
        return self.read(address, 1) != b"\0"

    def measure(self, values: Values, name: str, address: int, code: int) -> None:
        """Give a name the int64 at an address."""
        (value,) = struct.unpack("<q", self.read(address, 8))
        if value < 0:
            raise Failure(code)
        values[name] = value

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the device's memory, when all before is done and no assertion failed in it."""
        self.check()
        held = ctypes.create_string_buffer(size)
        self.device.copy_out(ctypes.addressof(held), address, size)
        return held.raw

    def check(self) -> None:
        """Wait for the kernels so far where some have assertions. Raises Failure for the first that failed."""
        plan = self.loaded.plan
        if not plan.words:
            return
        held = ctypes.create_string_buffer(RECORD * plan.words)
        self.device.copy_out(ctypes.addressof(held), self.words, RECORD * plan.words)
        records = list(struct.iter_unpack("<i4xqq", held.raw))
        for kernel in plan.kernels.values():
            if kernel.word >= 0 and records[kernel.word][0]:
                number, first, second = records[kernel.word]
                at = number - 1
                code = kernel.asserts[at] if 0 <= at < len(kernel.asserts) else kernel.asserts[0]
                raise Failure(code, (first, second))

    def packed(self, spec: PackedSpec, args: tuple[PackedArgument, ...], values: Values) -> None:
        self.check()
        call_packed(self, spec, args, values)
