"""Values that are copied where a condition holds, and zero elsewhere."""

from __future__ import annotations

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import holds
from mlcc.ir.tir import Expr


def guarded(value: Expr) -> tuple[Expr | None, Expr]:
    """A condition (None: always) and what is copied under it, where it is zero otherwise."""
    match value:
        case (
            tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, yes, no))
            | tir.Select(condition=condition, true_value=yes, false_value=no)
        ) if _is_zero(no) and condition.dtype.lanes == 1:
            inner, value = guarded(yes)
            if inner is None:
                return condition, value
            if not holds(inner, tir.BufferLoad, tir.Call):  # speculatable: no loads, no calls
                return c.logical_and(condition, inner), value
            return condition, yes
    return None, value


def _is_zero(value: Expr) -> bool:
    if isinstance(value, tir.Broadcast):
        return _is_zero(value.value)
    return isinstance(value, (tir.IntImm, tir.FloatImm)) and value.value == 0 and str(value.value) != "-0.0"
