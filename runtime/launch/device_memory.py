"""A memory pool for device memory: freed blocks are kept for later calls that need the same size."""

from __future__ import annotations

import bisect
import threading

from mlcc.errors import CallError
from mlcc.runtime.launch.device import Device, align_up

_MAX_OVERSIZE = 4  # a reused block may be this many times as large as the request


class Block:
    """A block of device memory, which returns to its pool when it is garbage-collected."""

    __slots__ = ("address", "pool", "size")

    def __init__(self, address: int, size: int, pool: Pool | None) -> None:
        self.address = address
        self.size = size
        self.pool = pool

    def __del__(self) -> None:
        pool, self.pool = self.pool, None
        if pool is not None:
            pool.give(self.address, self.size)


class Pool:
    """The free blocks of one device, valid until the device loses its memory."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.generation = device.generation
        self._free: list[tuple[int, int]] = []  # size, address; sorted
        self._lock = threading.RLock()  # a garbage collection inside may give blocks back

    def take(self, size: int) -> Block:
        """Return a block of at least `size` bytes. Raises CallError E0865."""
        if self.device.exact_memory:
            return Block(self.device.alloc(size), size, self)
        size = align_up(size)
        if not size:
            return Block(0, 0, None)
        with self._lock:
            at = bisect.bisect_left(self._free, (size, 0))
            if at < len(self._free) and self._free[at][0] <= _MAX_OVERSIZE * size:
                size, address = self._free.pop(at)
                return Block(address, size, self)
        try:
            return Block(self.device.alloc(size), size, self)
        except CallError:
            if not self.clear():
                raise
        return Block(self.device.alloc(size), size, self)

    def give(self, address: int, size: int) -> None:
        """Return a block to the pool."""
        if not address or self.generation != self.device.generation:
            return
        if self.device.exact_memory:
            self.device.free(address)
        else:
            with self._lock:
                bisect.insort(self._free, (size, address))

    def clear(self) -> bool:
        """Return free memory to the device; True if there was any."""
        with self._lock:
            free, self._free = self._free, []
        if self.generation == self.device.generation:
            for _, address in free:
                self.device.free(address)
        return bool(free)

    def __del__(self) -> None:
        self.clear()
