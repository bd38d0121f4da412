"""Operators without computation: list elements, extents, assertions, copies."""

from __future__ import annotations

from typing import Any

from mlcc.frontend.aten.table import converts
from mlcc.frontend.aten.translate import Translator
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax


@converts("operator.getitem")
def _getitem(t: Translator, arg0: list[Any], arg1: int) -> Any:
    return arg0[arg1]


@converts("aten.sym_size")
def _sym_size(t: Translator, self: relax.Expr, dim: int) -> Any:
    return t.shape(self)[t.axis(self, dim)]


@converts("aten._assert_tensor_metadata")
def _no_result(t: Translator, **arguments: Any) -> None:
    return None


@converts(
    "aten.alias", "aten.alias_copy", "aten.clone", "aten.contiguous", "aten.detach", "aten.detach_",
    "aten.lift_fresh_copy", "aten.lift", "aten.lift_fresh", "aten.detach_copy",
)  # fmt: skip
def _same(t: Translator, self: relax.Expr, memory_format: str | None = None) -> relax.Expr:
    return self


@converts("aten.dropout", "aten.feature_dropout", "aten.alpha_dropout", "aten.feature_alpha_dropout")
def _dropout(t: Translator, input: relax.Expr, p: float, train: bool) -> relax.Expr:
    return _without_dropout(input, p, train)


@converts("aten.native_dropout")
def _native_dropout(t: Translator, input: relax.Expr, p: float, train: bool | None) -> list[relax.Expr]:
    return [_without_dropout(input, p, train is not False), t.full(t.shape(input), True, "bool")]


def _without_dropout(value: relax.Expr, p: float, train: bool) -> relax.Expr:
    if train and p:
        raise Unsupported("dropout is used only in training", "export the model in eval mode")
    return value
