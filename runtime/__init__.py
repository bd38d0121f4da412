"""Loading artifacts and running them. Needs only the standard library and NumPy; parts load on first use."""

import importlib as _importlib
from typing import Any as _Any

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


def __getattr__(name: str) -> _Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mlcc.runtime' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"mlcc.runtime.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *(name for name in globals() if name.startswith("__"))])
