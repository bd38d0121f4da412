"""The entries of all operators, by name: the tables `OPS` of the family files."""

from __future__ import annotations

import functools
import importlib
from typing import Any

FAMILIES = (
    "unary", "binary", "create", "manipulate", "join", "index", "reduce", "linalg", "nn", "norm", "pad", "conv",
    "conv_transpose", "pool", "attention", "loss", "resize", "sample", "region", "detection", "quantize", "grad",
    "builtin", "gather", "scatter", "scatter_reduce", "scan", "sort", "einsum", "sets", "layout", "ccl", "recurrent",
    "random", "signal",
)  # fmt: skip


@functools.cache
def entries() -> dict[str, Any]:
    """The entries (`mlcc.ops.registry.Impl`) by the operators' names without prefix."""
    return {name: entry for f in FAMILIES for name, entry in importlib.import_module(f"mlcc.ops.{f}").OPS.items()}
