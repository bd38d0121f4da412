"""The intermediate representation. `tir` and `relax` hold the nodes; import those modules and qualify the names.

Parts load on first use: threads that import several at once never wait for this package and one another in a circle.
"""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from mlcc.ir import relax, tir
    from mlcc.ir.dtypes import DType
    from mlcc.ir.module import IRModule
    from mlcc.ir.node import Attrs, Node, children, map_children, replace, walk

__all__ = ["Attrs", "DType", "IRModule", "Node", "children", "map_children", "relax", "replace", "tir", "walk"]
_PUBLIC = {
    "DType": "mlcc.ir.dtypes",
    "IRModule": "mlcc.ir.module",
    **dict.fromkeys(("Attrs", "Node", "children", "map_children", "replace", "walk"), "mlcc.ir.node"),
}


def __getattr__(name: str) -> _Any:
    if name in _PUBLIC:
        value = globals()[name] = getattr(_importlib.import_module(_PUBLIC[name]), name)
        return value
    if name in __all__:
        return _importlib.import_module(f"mlcc.ir.{name}")
    raise AttributeError(f"module 'mlcc.ir' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*(n for n in globals() if n.startswith("__")), *__all__])
