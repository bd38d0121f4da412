"""Application of the caller's functions of indices to variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mlcc.ir import tir
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import describe


def call_map(fn: Callable[..., Any], variables: Sequence[tir.Var], parameter: str) -> list[Any]:
    """Return the list that `fn(*variables)` returns; its numbers and expressions, also inside tuples, are expressions
    or ints.

    Functions of Python get operands with Python's operators, functions of a script, which has operators of its own,
    the variables. Raises Refusal E0613.
    """
    if not callable(fn):
        raise Refusal("E0613", f"`{parameter}` takes a function of indices, not {describe(fn)}")
    from mlcc.te.scalar import Scalar

    raw = getattr(fn, "takes_variables", False)
    try:
        result = fn(*(variables if raw else map(Scalar, variables)))
    except TypeError as exc:
        raise Refusal("E0613", f"`{parameter}` cannot be applied to {len(variables)} indices: {exc}") from None
    if not isinstance(result, (list, tuple)):
        raise Refusal("E0613", f"`{parameter}` gives {describe(result)}, not a list")
    return [_expr(item, parameter) for item in result]


def _expr(item: Any, parameter: str) -> Any:
    item = getattr(item, "expr", item)
    if isinstance(item, (list, tuple)):
        return tuple(_expr(part, parameter) for part in item)
    if isinstance(item, tir.Expr) or (isinstance(item, int) and not isinstance(item, bool)):
        return item
    raise Refusal("E0613", f"`{parameter}` gives {describe(item)} among its results, not an index")
