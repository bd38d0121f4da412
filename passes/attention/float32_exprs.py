"""Evaluation of float16 and bfloat16 expressions in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import FLOAT32, DType
from mlcc.ir.node import map_children, replace
from mlcc.ir.tir import Expr


def in_float32(expr: Expr, replacements: Mapping[tir.Buffer, Expr]) -> Expr:
    """Compute an expression in float32 throughout, with loads of the buffers in `replacements` replaced."""
    value = _widen(expr, replacements)
    return c.cast(FLOAT32, value)


def _widen(node: Expr, replacements: Mapping[tir.Buffer, Expr]) -> Expr:
    match node:
        case tir.BufferLoad(buffer=buffer) if buffer in replacements:
            return replacements[buffer]
        case tir.BufferLoad():
            return c.cast(FLOAT32, node) if _is_narrow(node.dtype) else node
        case tir.FloatImm():
            return c.const(node.value, FLOAT32) if _is_narrow(node.dtype) else node
        case tir.Cast(value=value) if _is_narrow(node.dtype):
            return c.cast(FLOAT32, _widen(value, replacements))

    def child(value: Any) -> Any:
        return _widen(value, replacements) if isinstance(value, Expr) else value

    rebuilt = map_children(node, child)
    return replace(rebuilt, dtype=FLOAT32) if _is_narrow(node.dtype) else rebuilt


def _is_narrow(dtype: DType) -> bool:
    return dtype.kind in ("float", "bfloat") and dtype.bits == 16
