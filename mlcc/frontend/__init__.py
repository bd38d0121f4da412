"""Importers: models of PyTorch and ONNX as modules of relax. Parts load on first use."""

import importlib as _importlib
from typing import Any as _Any

from mlcc.frontend.fx.entry_point import register_entry_point as _offer

_PUBLIC = {
    "detach_params": "mlcc.frontend.params",
    "dynamo_capture_subgraphs": "mlcc.frontend.fx.capture",
    "from_exported_program": "mlcc.frontend.aten.importer",
    "from_fx": "mlcc.frontend.fx.importer",
    "from_pt2": "mlcc.frontend.aten.importer",
    "relax_dynamo": "mlcc.frontend.fx.capture",
    "from_onnx": "mlcc.frontend.onnx.importer",
}


_offer()


def __getattr__(name: str) -> _Any:
    if name in _PUBLIC:
        return getattr(_importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'mlcc.frontend' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*_PUBLIC, *(name for name in globals() if name.startswith("__"))])
