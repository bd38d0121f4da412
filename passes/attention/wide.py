"""Expressions of float16 and bfloat16 computed in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.ir.node import map_children, replace
from mlcc.ir.tir import Expr


def widened(expr: Expr, given: Mapping[tir.Buffer, Expr]) -> Expr:
    """Compute an expression in float32 throughout; loads of the buffers in `given` become the expressions there."""
    value = _wide(expr, given)
    return c.cast(FLOAT32, value)


def _wide(node: Expr, given: Mapping[tir.Buffer, Expr]) -> Expr:
    match node:
        case tir.BufferLoad(buffer=buffer) if buffer in given:
            return given[buffer]
        case tir.BufferLoad():
            return c.cast(FLOAT32, node) if _narrow(node.dtype) else node
        case tir.FloatImm():
            return c.const(node.value, FLOAT32) if _narrow(node.dtype) else node
        case tir.Cast(value=value) if _narrow(node.dtype):
            return c.cast(FLOAT32, _wide(value, given))

    def child(value: Any) -> Any:
        return _wide(value, given) if isinstance(value, Expr) else value

    rebuilt = map_children(node, child)
    return replace(rebuilt, dtype=FLOAT32) if _narrow(node.dtype) else rebuilt


def _narrow(dtype: DType) -> bool:
    return dtype.kind in ("float", "bfloat") and dtype.bits == 16
