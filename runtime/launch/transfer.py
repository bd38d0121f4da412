"""Assign device addresses to arguments, and transfer them to and from the device around a run.

Kernels take pointers aligned to 16 bytes, and contiguous tensors unless strides are declared. A misaligned device array
is copied on the device; a strided one is copied through the host, which is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlcc.runtime.abi import element_bytes
from mlcc.runtime.arguments import Argument
from mlcc.runtime.dlpack import Tensor, as_array
from mlcc.runtime.launch.device_memory import Block
from mlcc.runtime.launch.loaded import LoadedPlan
from mlcc.runtime.launch.plan import POINTER_ALIGNMENT


@dataclass(slots=True)
class Transfer:
    """An argument at the device address `address`, in `block` unless it is used in place.

    `source` of `size` bytes is copied to `target` before a run if `fetched`, back after it if `written`. `strided` is
    the strided device tensor that a compact copy replaces; `source` is then the span of its memory.
    """

    address: int
    block: Block | None = None
    on_host: bool = False
    source: int = 0
    target: int = 0
    size: int = 0
    fetched: bool = False
    written: bool = False
    strided: Tensor | None = None

    @property
    def moves(self) -> bool:
        return self.size > 0 and (self.fetched or self.written)

    def upload(self, loaded: LoadedPlan) -> None:
        """Copy to the device before a run."""
        if not self.fetched:
            return
        if self.strided is not None:
            _gather(self, loaded)
        elif self.on_host:
            loaded.device.copy_in(self.target, self.source, self.size)
        else:
            loaded.device.copy(self.target, self.source, self.size)

    def download(self, loaded: LoadedPlan) -> None:
        """Copy back after a run."""
        if not self.written:
            return
        if self.strided is not None:
            _scatter(self, loaded)
        elif self.on_host:
            loaded.device.copy_out(self.source, self.target, self.size)
        else:
            loaded.device.copy(self.source, self.target, self.size)


def transfer(argument: Argument, loaded: LoadedPlan, shift: int, is_result: bool) -> Transfer:
    """Place an argument; its kernel takes a pointer `shift` bytes before the first element. Raises CallError E0865."""
    tensor, leaf = argument.tensor, argument.leaf
    assert tensor is not None
    strided = tensor.strides is not None and leaf.strides is None
    aligned = (tensor.address - shift) % POINTER_ALIGNMENT == 0
    if argument.located is not None and aligned and not strided:
        return Transfer(tensor.address)
    low, high = span(tensor)
    size = math.prod(tensor.shape) * element_bytes(tensor.code) if strided else high - low
    lead_bytes = 0 if strided else tensor.address - low
    # the pointer that kernels get is to be aligned
    padding = (shift - lead_bytes) % POINTER_ALIGNMENT
    block = loaded.pool.take(size + padding)
    is_uninitialised = is_result or (argument.is_result and leaf.role == "out")
    written = is_result or leaf.role != "in" or leaf.kind == "pointer"
    fetched = not is_uninitialised or (lead_bytes > 0 or tensor.strides is not None)
    target = block.address + padding
    result = Transfer(target + lead_bytes, block, argument.located is None, low, target, size, fetched, written)
    result.strided = tensor if strided else None
    return result


def span(tensor: Tensor) -> tuple[int, int]:
    """Return the address range of a tensor; (0, 0) for one without elements."""
    if 0 in tensor.shape:
        return 0, 0
    width = element_bytes(tensor.code)
    if tensor.strides is None:
        return tensor.address, tensor.address + math.prod(tensor.shape) * width
    reach = [(extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.strides, strict=True)]
    low = sum(r for r in reach if r < 0)
    high = sum(r for r in reach if r > 0)
    return tensor.address + low * width, tensor.address + (high + 1) * width


def _read_span(moved: Transfer, loaded: LoadedPlan) -> tuple[np.ndarray, np.ndarray]:
    """Copy the span of a strided device tensor to the host; return its bytes, and its elements as a view of them."""
    assert moved.strided is not None
    low, high = span(moved.strided)
    raw = np.empty(high - low, np.uint8)
    base: int = raw.__array_interface__["data"][0]
    loaded.device.copy_out(base, low, high - low)
    loaded.host_copies += 1
    here = moved.strided._replace(address=base + moved.strided.address - low, owner=raw, readonly=False)
    return raw, as_array(here)


def _gather(moved: Transfer, loaded: LoadedPlan) -> None:
    _, elements = _read_span(moved, loaded)
    compact = np.ascontiguousarray(elements)
    loaded.device.copy_in(moved.target, compact.__array_interface__["data"][0], moved.size)


def _scatter(moved: Transfer, loaded: LoadedPlan) -> None:
    raw, elements = _read_span(moved, loaded)
    compact = np.empty(elements.shape, elements.dtype)
    loaded.device.copy_out(compact.__array_interface__["data"][0], moved.target, moved.size)
    elements[...] = compact
    held = raw.__array_interface__["data"][0]
    loaded.device.copy_in(moved.source, held, raw.nbytes)
