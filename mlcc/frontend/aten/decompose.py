"""Decomposition of operators without a converter by PyTorch's own definitions; others are left unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def decompose_program(exported: torch.export.ExportedProgram, targets: Iterable[str]) -> torch.export.ExportedProgram:
    """Decompose these operators as far as PyTorch has decompositions; return the program itself if it has none."""
    import torch

    known = torch.export.default_decompositions()
    table: dict[Any, Any] = {}
    for target in targets:
        overload = _overload(torch, target)
        if overload is not None and overload in known:
            table[overload] = known[overload]
    return exported.run_decompositions(table) if table else exported


def _overload(torch: Any, target: str) -> Any:
    """Return the operator of a name; for an in-place operator its functional form, to which decompositions apply."""
    namespace, _, rest = target.partition(".")
    name, _, overload = rest.rpartition(".")
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    packet = getattr(getattr(torch.ops, namespace, None), name, None)
    return getattr(packet, overload, None)
