"""TVM's decorators for Python files: `from mlcc.lang import ir as I, tir as T, relax as R`.

The decorators read the source text of what they decorate, as `mlcc.parse` reads a file; nothing of it is executed. See
docs/python.md.
"""

import importlib as _importlib
from typing import Any as _Any

_MODULES = ("ir", "relax", "tir", "topi", "tvm")


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"mlcc.lang.{name}")
    raise AttributeError(f"module 'mlcc.lang' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*(n for n in globals() if n.startswith("__")), *_MODULES])
