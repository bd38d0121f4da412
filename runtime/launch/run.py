"""Execute the steps of a launch plan: a run issues launches, copies and fills to a device or a recorder."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Protocol

from mlcc.runtime.abi import ERROR_RECORD_BYTES
from mlcc.runtime.launch.device import Extents
from mlcc.runtime.launch.device_memory import Block
from mlcc.runtime.launch.loaded import RECORD_ALIGNMENT, LoadedPlan
from mlcc.runtime.launch.packed import call_packed
from mlcc.runtime.launch.plan import FunctionPlan, Kernel, PackedArgument
from mlcc.runtime.launch.scalars import Values
from mlcc.runtime.launch.tensor_map import TensorMap
from mlcc.runtime.manifest import PackedSpec


class CheckFailure(Exception):
    """A failed check of the program: its error code, and the numbers that its message shows."""

    def __init__(self, code: int, numbers: tuple[int, int] = (0, 0)) -> None:
        super().__init__(code)
        self.code = code
        self.numbers = numbers


class Sink(Protocol):
    """The receiver of a run's operations: a device, or a recorder."""

    def launch(self, kernel: Any, grid: Extents, block: Extents, shared_bytes: int, args: Sequence[Any]) -> None: ...

    def copy(self, target: int, source: int, size: int) -> None: ...

    def memset(self, target: int, value: int, size: int) -> None: ...


class Run:
    """One call in progress: the addresses of its arguments and workspace, and the sink of its operations."""

    def __init__(self, loaded: LoadedPlan, function: FunctionPlan, args: Sequence[int], work: int, size: int) -> None:
        """`work` is the address of a workspace of `size` bytes, followed by space for error records."""
        self.loaded = loaded
        self.function = function
        self.device = loaded.device
        self.constants = loaded.constants
        self.args = args
        self.work = work
        self.words = -(-(work + size) // RECORD_ALIGNMENT) * RECORD_ALIGNMENT  # address of the error records
        self.sink: Sink = loaded.device
        self.blocks: list[Block] = []  # memory of this call only

    def __call__(self, values: Values) -> None:
        """Issue all operations. Raises Failure."""
        count = self.loaded.plan.words
        if count:
            self.sink.memset(self.words, 0, ERROR_RECORD_BYTES * count)
        for name in self.function.measured:
            values[name] = 0
        for step in self.function.steps:
            step(self, values)

    # ------------------------------------------------------------ operations

    def launch(self, kernel: Kernel, grid: Extents, block: Extents, shared: int, args: list[Any]) -> None:
        args = [self.device.tensor_map(a) if isinstance(a, TensorMap) else a for a in args]
        if kernel.asserts:
            args.append(self.words + ERROR_RECORD_BYTES * kernel.word)
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
        if self.sink is self.device:  # else nothing has run yet
            self.check()
        raise CheckFailure(code)

    def flag(self, address: int) -> bool:
        """A bool in the device's memory."""
        return self.read(address, 1) != b"\0"

    def measure(self, values: Values, name: str, address: int, code: int) -> None:
        """Give a name the int64 at an address."""
        (value,) = struct.unpack("<q", self.read(address, 8))
        if value < 0:
            raise CheckFailure(code)
        values[name] = value

    def read(self, address: int, size: int) -> bytes:
        """Read device memory after all earlier work. Raises Failure if an assertion failed."""
        self.check()
        buffer = ctypes.create_string_buffer(size)
        self.device.copy_out(ctypes.addressof(buffer), address, size)
        return buffer.raw

    def check(self) -> None:
        """Wait for the kernels so far if any has assertions. Raises Failure for the first one that failed."""
        plan = self.loaded.plan
        if not plan.words:
            return
        buffer = ctypes.create_string_buffer(ERROR_RECORD_BYTES * plan.words)
        self.device.copy_out(ctypes.addressof(buffer), self.words, ERROR_RECORD_BYTES * plan.words)
        records = list(struct.iter_unpack("<i4xqq", buffer.raw))
        for kernel in plan.kernels.values():
            if kernel.word >= 0 and records[kernel.word][0]:
                number, first, second = records[kernel.word]
                index = number - 1
                code = kernel.asserts[index] if 0 <= index < len(kernel.asserts) else kernel.asserts[0]
                raise CheckFailure(code, (first, second))

    def packed(self, spec: PackedSpec, args: tuple[PackedArgument, ...], values: Values) -> None:
        self.check()
        log = self.device.log
        if log is None:
            call_packed(self, spec, args, values)
        else:
            log.call("packed", spec.name, 0, lambda: call_packed(self, spec, args, values))
