"""Length-prefixed messages over pipes."""

from __future__ import annotations

import os
import struct

_LENGTH = struct.Struct("<Q")


def send(handle: int, data: bytes) -> None:
    """Write a message. Raises OSError, such as BrokenPipeError without a reader."""
    for part in (_LENGTH.pack(len(data)), data):
        view = memoryview(part)
        while view:
            view = view[os.write(handle, view) :]


def receive(handle: int) -> bytes | None:
    """Read the next message, None at the end of the pipe."""
    head = _exactly(handle, _LENGTH.size)
    return None if head is None else _exactly(handle, _LENGTH.unpack(head)[0])


def _exactly(handle: int, count: int) -> bytes | None:
    parts = []
    while count:
        part = os.read(handle, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
