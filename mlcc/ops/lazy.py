"""Lazy import of NumPy: reading and printing programs does not need it."""

from __future__ import annotations

import importlib
from typing import Any


class _Lazy:
    """A module that is imported when an attribute of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


np: Any = _Lazy("numpy")
