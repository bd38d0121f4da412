"""Scalars that the host computes, as JSON: extents, offsets, conditions and scalar arguments of kernels.

Integers have the manifest's form (`mlcc.runtime.manifest`) and are exact, of any size; a condition is 0 or 1.
Operations on floats name their dtype, to which each result is rounded: `["fadd", "float32", a, b]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.runtime.launch.scalars import MATH
from mlcc.targets.plan.dims import ARITHMETIC, CALLS, COMPARE, MIRROR

_FLOAT: dict[type, str] = {
    tir.Add: "fadd", tir.Sub: "fsub", tir.Mul: "fmul", tir.Div: "fdiv", tir.Min: "fmin", tir.Max: "fmax",
}  # fmt: skip


def as_json(expr: tir.Expr, names: Mapping[tir.Var, Any]) -> Any:
    """Serialise a scalar expression; `names` maps variables to their JSON. Raises CompileError E0753."""
    match expr:
        case tir.IntImm(value=value):
            return int(value)
        case tir.FloatImm(value=value, dtype=dtype):
            return ["float", _float(dtype, expr), float(value).hex()]
        case tir.Var():
            if expr not in names:
                raise _not_computable(f"`{expr.name}` is unknown to host code", expr)
            return names[expr]
        case tir.Cast(value=value, dtype=dtype):
            return _cast(as_json(value, names), value.dtype, dtype, expr)
        case tir.And(lhs=a, rhs=b) | tir.Or(lhs=a, rhs=b):
            return ["min" if isinstance(expr, tir.And) else "max", as_json(a, names), as_json(b, names)]
        case tir.Not(value=a):
            return ["-", 1, as_json(a, names)]
        case tir.Select(condition=a, true_value=t, false_value=f):
            return ["select", as_json(a, names), as_json(t, names), as_json(f, names)]
        case tir.Let(var=var, value=value, body=body):
            return as_json(body, {**names, var: as_json(value, names)})
        case tir.Call():
            return _call(expr, names)
        case tir.BinaryOp(lhs=a, rhs=b):
            return _binary(expr, a, b, names)
    raise _not_computable(f"`{expr}` cannot be computed by host code", expr)


def _cast(value: Any, source: DType, target: DType, expr: tir.Expr) -> Any:
    if target.is_float:
        return ["round", _float(target, expr), value]
    if source.is_float:
        return ["trunc", value]
    if target.is_bool and not source.is_bool:
        return ["!=", value, 0]
    return value


def _binary(expr: tir.BinaryOp, a: tir.Expr, b: tir.Expr, names: Mapping[tir.Var, Any]) -> Any:
    kind = type(expr)
    if kind in MIRROR:
        kind, a, b = MIRROR[kind], b, a
    left, right = as_json(a, names), as_json(b, names)
    if kind in COMPARE:
        return ["f" + COMPARE[kind] if a.dtype.is_float else COMPARE[kind], left, right]
    if a.dtype.is_float and kind in _FLOAT:
        return [_FLOAT[kind], _float(a.dtype, expr), left, right]
    if not a.dtype.is_float and kind in ARITHMETIC and expr.dtype.lanes == 1:
        return [ARITHMETIC[kind], left, right]
    raise _not_computable(f"`{expr}` cannot be computed by host code", expr)


def _call(expr: tir.Call, names: Mapping[tir.Var, Any]) -> Any:
    name = expr.op.name if isinstance(expr.op, tir.Op) else ""
    args = expr.args
    if name == "tir.if_then_else" and len(args) == 3:
        return ["select", *(as_json(a, names) for a in args)]
    if name in CALLS and len(args) == 2:
        return [CALLS[name], as_json(args[0], names), as_json(args[1], names)]
    short = name.removeprefix("tir.")
    if expr.dtype.is_float and len(args) == MATH.get(short, (-1,))[0]:
        return [short, _float(expr.dtype, expr), *(as_json(a, names) for a in args)]
    if name in ("tir.likely", "tir.assume") and len(args) == 1:
        return as_json(args[0], names)
    raise _not_computable(f"`{expr}` cannot be computed by host code", expr)


def _float(dtype: DType, expr: tir.Expr) -> str:
    if dtype.lanes > 1 or str(dtype) not in ("float16", "bfloat16", "float32", "float64"):
        raise _not_computable(f"`{expr}` has dtype {dtype}, which host code does not support", expr)
    return str(dtype)


def _not_computable(message: str, expr: tir.Expr) -> CompileError:
    return CompileError(error("E0753", message, expr.span))
