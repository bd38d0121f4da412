"""Wrappers of operator references and lowerings: compute narrow floats in float32, report unsupported dtypes."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax
from mlcc.ops.lazy import np


def reference(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the NumPy reference `fn(call, *values)`: float16 is computed in float32, like the narrower floats.

    The caller decodes bfloat16 and 8-bit floats to float32, and rounds the result once to the dtype of the struct
    info: intermediates of an operator are not rounded. Integers wrap; nothing warns.
    Unsupported dtypes are a diagnostic (E0444), as in the lowering.
    """

    @functools.wraps(fn)
    def run(call: relax.Call, *values: Any) -> Any:
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # means of nothing
                return fn(call, *(_to_float32(v) for v in values))
        except TypeError as problem:
            raise _unsupported(call, [str(v.dtype) for v in values if hasattr(v, "dtype")], problem) from None

    return run


def floats_only(dtype: Any) -> None:
    """Raise TypeError for a dtype that is not a float."""
    if "float" not in str(dtype):
        raise TypeError("it needs floats")


def _unsupported(call: relax.Call, dtypes: list[str], problem: Exception) -> CompileError:
    name = call.op.name.removeprefix("relax.")
    message = f"`R.{name}` has no implementation for {', '.join(dtypes) or 'these arguments'}: {problem}"
    return CompileError(error("E0444", message, call.span, help="convert with `R.astype`"))


def _to_float32(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_to_float32(v) for v in value)
    if str(getattr(value, "dtype", "")) == "float16":
        return value.astype("float32")
    return value


def lowering(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the lowering `fn(call, *tensors)`: unsupported dtypes are a diagnostic (E0444)."""

    @functools.wraps(fn)
    def run(call: relax.Call, *tensors: Any) -> Any:
        try:
            return fn(call, *tensors)
        except (TypeError, ValueError) as problem:
            raise _unsupported(call, [str(t.dtype) for t in tensors if hasattr(t, "buffer")], problem) from None

    return run
