"""Split values that are copied where a condition holds and are zero elsewhere."""

from __future__ import annotations

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import holds
from mlcc.ir.tir import Expr


def split_zero_guard(value: Expr) -> tuple[Expr | None, Expr]:
    """Return the condition (None: always) under which a value is a copy rather than zero, and the copied value."""
    match value:
        case (
            tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, copied, otherwise))
            | tir.Select(condition=condition, true_value=copied, false_value=otherwise)
        ) if _is_zero(otherwise) and condition.dtype.lanes == 1:
            inner, value = split_zero_guard(copied)
            if inner is None:
                return condition, value
            if not holds(inner, tir.BufferLoad, tir.Call):  # speculatable: no loads, no calls
                return c.logical_and(condition, inner), value
            return condition, copied
    return None, value


def _is_zero(value: Expr) -> bool:
    if isinstance(value, tir.Broadcast):
        return _is_zero(value.value)
    return isinstance(value, (tir.IntImm, tir.FloatImm)) and value.value == 0 and str(value.value) != "-0.0"
