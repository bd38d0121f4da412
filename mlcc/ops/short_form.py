"""Short form of an operator's call: default attributes omitted, scalars as Python numbers. The inverse of `bind`."""

from __future__ import annotations

import math
from typing import Any

from mlcc.ir import relax, tir
from mlcc.ir.dtypes import FLOAT64, INT64
from mlcc.ops import values
from mlcc.ops.signature import REQUIRED, Param, Signature, signature


def omit_defaults(call: relax.Call) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments and attributes that the text of a call has to state, without attributes of default value.

    A scalar argument becomes a Python number if the parser reads that number as the same scalar (int64, float64 or
    bool), a tuple of such scalars a list of numbers. All other arguments are returned unchanged.
    """
    sig = _signature(call)
    attrs = {n: value for n, value in call.attrs.items() if sig is None or not _is_default(sig, n, value, call)}
    kinds = [] if sig is None or any(p.kind == "rest" for p in sig.params) else [p.kind for p in sig.arguments]
    plain = [_shorten(kind, arg) for kind, arg in zip(kinds, call.args, strict=False)]
    return [*plain, *call.args[len(plain) :]], attrs


def _signature(call: relax.Call) -> Signature | None:
    op = call.op
    return signature(op.name) if isinstance(op, tir.Op) and op.name.startswith("relax.") else None


def _is_default(sig: Signature, name: str, value: Any, call: relax.Call) -> bool:
    param = sig.param(name)
    if param is None or not param.is_attr:
        return False
    if param.default_from is not None:
        return param.default_from in call.attrs and _identical(call.attrs[param.default_from], value)
    return param.default is not REQUIRED and _identical(_default(param), value)


def _default(param: Param) -> Any:
    try:
        return values.attribute(param, param.default)
    except values.InvalidValue:
        return REQUIRED


def _identical(one: Any, other: Any) -> bool:
    """Return True if two values are equal and of one type; 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    return type(one) is type(other) and repr(one) == repr(other)


def _shorten(kind: str, arg: relax.Expr) -> Any:
    if kind == "scalar":
        number = _python_number(arg)
        return arg if number is None else number
    if kind == "scalars" and isinstance(arg, relax.Tuple) and arg.fields:
        numbers = [_python_number(field) for field in arg.fields]
        return arg if None in numbers else numbers
    return arg


def _python_number(arg: relax.Expr) -> bool | int | float | None:
    """Return a scalar as a Python number if the parser reads that number as the same scalar, else None."""
    value = arg.value if isinstance(arg, relax.PrimValue) else None
    if isinstance(value, tir.IntImm) and (value.dtype is INT64 or value.dtype.is_bool):
        return bool(value.value) if value.dtype.is_bool else value.value
    if isinstance(value, tir.FloatImm) and value.dtype is FLOAT64 and math.isfinite(value.value):
        return value.value
    return None
