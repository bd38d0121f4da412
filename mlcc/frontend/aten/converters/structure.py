"""Operators that compute nothing: parts of lists, extents, asserts, copies."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.ir import relax


@converts("operator.getitem")
def _getitem(t: Translator, arg0: list[Any], arg1: int) -> Any:
    return arg0[arg1]


@converts("aten.sym_size")
def _sym_size(t: Translator, self: relax.Expr, dim: int) -> Any:
    return t.shape(self)[t.axis(self, dim)]


@converts("aten._assert_tensor_metadata")
def _nothing(t: Translator, **arguments: Any) -> None:
    return None


@converts("aten.alias", "aten.clone", "aten.contiguous", "aten.detach", "aten.detach_", "aten.lift_fresh_copy")
def _same(t: Translator, self: relax.Expr, memory_format: str | None = None) -> relax.Expr:
    return self
