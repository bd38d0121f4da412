"""Loading artifacts and running them. Needs only the standard library and NumPy; parts load on first use."""

from __future__ import annotations

import importlib
from typing import Any

if __name__ != "mlcc.runtime":
    raise ImportError("import mlcc.runtime, not " + __name__)

_PUBLIC = {
    "Executable": "executable",
    "Function": "function",
    "TensorView": "dlpack",
    "get_func": "registry",
    "get_num_threads": "threads",
    "load": "loader",
    "load_env": "env",
    "read_manifest": "loader",
    "register_func": "registry",
    "set_num_threads": "threads",
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mlcc.runtime' has no attribute {name!r}")
    return getattr(importlib.import_module(f"mlcc.runtime.{_PUBLIC[name]}"), name)
