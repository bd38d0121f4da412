"""Arrays in device memory: those that calls return, and those of other libraries, borrowed through DLPack."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlcc.errors import CallError, error
from mlcc.runtime.abi import CPU, CUDA_HOST, STORAGE, dtype_code
from mlcc.runtime.dlpack import (
    DeviceArgument,
    NotATensor,
    Tensor,
    as_array,
    borrow,
    borrow_from,
    device_capsule,
    device_of,
    of_array,
)
from mlcc.runtime.launch.device import Device
from mlcc.runtime.launch.device_memory import Block, Pool

MANAGED = 13  # DLPack's number for memory that host and CUDA devices share


class DeviceArray:
    """A compact array in the memory of a device. `numpy()` copies it to the host; DLPack shares it without a copy.

    `torch.from_dlpack(y)` and `cupy.from_dlpack(y)` see the same memory.
    """

    __slots__ = ("_block", "device", "generation", "tensor")

    def __init__(self, device: Device, tensor: Tensor, block: Block | None) -> None:
        self.device = device
        self.generation = device.generation
        self.tensor = tensor
        self._block = block

    @staticmethod
    def empty(pool: Pool, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """Allocate an uninitialized array. Raises CallError E0865."""
        code = dtype_code(dtype)
        size = math.prod(shape) * ((code[1] + 7) // 8) * code[2]
        block = pool.take(size)
        return DeviceArray(pool.device, Tensor(block.address, shape, None, code, False, block), block)

    @staticmethod
    def of(pool: Pool, value: Any) -> DeviceArray:
        """Copy a host array to the device. Raises CallError."""
        try:
            source = borrow(value)
        except NotATensor as exc:
            raise CallError(error("E0803", f"the value is {exc}")) from None
        array = np.ascontiguousarray(as_array(source))
        device_copy = DeviceArray.empty(pool, source.shape, source.dtype)
        pool.device.copy_in(device_copy.tensor.address, of_array(array).address, array.nbytes)
        return device_copy

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @property
    def address(self) -> int:
        """Return the device address of the first element."""
        return self.tensor.address

    def numpy(self) -> np.ndarray:
        """Copy to the host, in the storage type of the dtype (bfloat16: uint16). Raises CallError."""
        self.require()
        name, _, lanes = self.dtype.partition("x")
        shape = (*self.shape, int(lanes)) if lanes else self.shape
        array = np.empty(shape, STORAGE.get(name, name))
        if array.nbytes:
            self.device.copy_out(array.__array_interface__["data"][0], self.address, array.nbytes)
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError("an array in device memory cannot become a NumPy array without a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def view(self, shape: tuple[int, ...]) -> DeviceArray:
        """Return a view of the first elements with another shape."""
        return DeviceArray(self.device, self.tensor._replace(shape=shape), self._block)

    def require(self) -> None:
        """Raise CallError E0866 if the memory has been lost."""
        if self.generation != self.device.generation:
            raise lost_array_error()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack

    def __dlpack__(self, stream: Any = None, max_version: Any = None, **options: Any) -> Any:
        """Return a capsule of the same memory, after waiting for pending work unless `stream` is -1."""
        self.require()
        requested = options.get("dl_device")
        if options.get("copy") or (requested is not None and tuple(requested) != tuple(self.device.dlpack)):
            raise BufferError("the array can only be shared in place; use numpy() for a copy")
        if stream != -1:
            self.device.synchronize()
        return device_capsule(self.tensor._replace(owner=self), self.device.dlpack, max_version)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}, {self.shape}, {self.device.name})"


def lost_array_error() -> CallError:
    """Return the error for memory that was lost when a kernel failed."""
    return CallError(
        error("E0866", "the array was lost when a kernel failed on its device", help="copy it to the device again")
    )


def locate(value: Any, device: Device) -> Any:
    """Return `Located` for an array in the device's memory, other values unchanged; tuples are traversed.

    Raises CallError E0867 for an array of another device.
    """
    if isinstance(value, (tuple, list)):
        return type(value)(locate(v, device) for v in value) if type(value) in (tuple, list) else value
    if isinstance(value, DeviceArray):
        if value.device is not device:
            raise _other_device_error(f"{value.device.name}", device)
        value.require()
        return DeviceArgument(value.tensor, value)
    if isinstance(value, np.ndarray):
        return value
    location = device_of(value)
    if location is None or location[0] in (CPU, CUDA_HOST):
        return value
    if location[0] != MANAGED and location != tuple(device.dlpack):
        raise _other_device_error(f"DLPack device type {location[0]}, number {location[1]}", device)
    try:
        return DeviceArgument(borrow_from(value, device.stream), value)
    except NotATensor as exc:
        raise CallError(error("E0803", f"an argument is {exc}")) from None


def _other_device_error(location: str, device: Device) -> CallError:
    return CallError(
        error("E0867", f"an argument is in the memory of {location}, but the function runs on {device.name}",
              help="copy it there, or pass a NumPy array")
    )  # fmt: skip
