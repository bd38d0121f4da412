"""Arrays with memory around them that shows whether somebody wrote there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_ROOM = 4096  # bytes on either side
_BYTE = 0xA5


@dataclass(frozen=True)
class Guarded:
    array: np.ndarray[Any, Any]
    memory: np.ndarray[Any, Any]

    def check(self) -> None:
        """Raise AssertionError if something was written outside of the array."""
        assert (self.memory[:_ROOM] == _BYTE).all() and (self.memory[len(self.memory) - _ROOM :] == _BYTE).all()


def guarded(array: np.ndarray[Any, Any]) -> Guarded:
    """A copy of an array between guards."""
    memory = np.full(array.nbytes + 2 * _ROOM, _BYTE, np.uint8)
    inner = memory[_ROOM : _ROOM + array.nbytes].view(array.dtype).reshape(array.shape)
    inner[...] = array
    return Guarded(inner, memory)
