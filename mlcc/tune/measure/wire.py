"""IR nodes as bytes, for processes of one user that started one another."""

from __future__ import annotations

import io
import pickle
from typing import Any

from mlcc.ir.node import Node, field_names
from mlcc.recursion import deep_recursion


class _Pickler(pickle.Pickler):
    """Pickles IR nodes by their fields, without the places of the text that they came from."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Node):
            return type(value), tuple(getattr(value, name) for name in field_names(type(value)))
        return NotImplemented


def packed(value: Any) -> bytes:
    """A value of plain data and IR nodes as bytes; what is one node in it stays one."""
    buffer = io.BytesIO()
    with deep_recursion():
        _Pickler(buffer, 5).dump(value)
    return buffer.getvalue()


def unpacked(data: bytes) -> Any:
    """The value of `packed` bytes, which must come from a process of this program."""
    with deep_recursion():
        return pickle.loads(data)  # noqa: S301
