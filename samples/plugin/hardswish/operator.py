"""The operator `R.nn.hardswish`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc import te
from mlcc.ops import layout_rules, topi
from mlcc.ops.registry import FusionKind, Impl, Precision
from mlcc.ops.unary import infer_float


def _reference(call: Any, x: np.ndarray) -> Any:
    """x * clip(x + 3, 0, 6) / 6 of each element."""
    return x * np.clip(x + 3, 0, 6) / 6


def _element(v: Any) -> Any:
    """x * clip(x + 3, 0, 6) / 6 of one element."""
    zero, three, six = (te.const(number, v.dtype) for number in (0.0, 3.0, 6.0))
    return v * te.max(te.min(v + three, six), zero) / six


HARDSWISH = Impl(
    "data",
    infer_float,
    _reference,
    lambda call, x: topi.elementwise(x, _element),
    FusionKind.ELEMWISE,
    precision=Precision.FOLLOW,
    layout=layout_rules.elementwise,
    activation=True,
)
