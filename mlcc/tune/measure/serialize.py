"""Serialization of IR nodes between processes of one user."""

from __future__ import annotations

import io
import pickle
from typing import Any

from mlcc.ir.node import Node, field_names
from mlcc.recursion import deep_recursion


class _Pickler(pickle.Pickler):
    """Pickles IR nodes by their fields, without source spans."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Node):
            return type(value), tuple(getattr(value, name) for name in field_names(type(value)))
        return NotImplemented


def serialize(value: Any) -> bytes:
    """Serialize plain data and IR nodes; shared nodes stay shared."""
    buffer = io.BytesIO()
    with deep_recursion():
        _Pickler(buffer, 5).dump(value)
    return buffer.getvalue()


def deserialize(data: bytes) -> Any:
    """Deserialize `packed` bytes, which must come from a trusted process of this program."""
    with deep_recursion():
        return pickle.loads(data)  # noqa: S301
