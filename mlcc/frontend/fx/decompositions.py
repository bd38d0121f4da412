"""Decompose only the ATen operators that have no converter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from mlcc.frontend.aten.table import converter


@functools.cache
def missing_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return PyTorch's decompositions of operators without a converter that are composite or outside core ATen."""
    from torch._decomp import core_aten_decompositions
    from torch._export.utils import _collect_all_valid_cia_ops

    composed = {op: op.decompose for op in _collect_all_valid_cia_ops()}
    known: dict[Any, Callable[..., Any]] = {**composed, **core_aten_decompositions()}
    return {op: decompose for op, decompose in known.items() if not _has_converter(op)}


def _has_converter(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and converter(str(op)) is not None
