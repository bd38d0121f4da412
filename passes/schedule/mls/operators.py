"""Operators on the values of schedule scripts: Python's results, within limits, without access to Python."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from mlcc.ir import calls, construct, tir
from mlcc.passes.schedule.handles import ExprRV, Handle
from mlcc.passes.schedule.mls.values import (
    MAX_BITS,
    Budget,
    ScriptError,
    describe,
    is_key,
    is_number,
    is_symbolic,
    length,
    too_large,
)  # fmt: skip

_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "**": operator.pow,
}  # fmt: skip
_BITS: dict[str, Callable[[Any, Any], Any]] = {
    "<<": operator.lshift, ">>": operator.rshift, "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_EXPRESSIONS: dict[str, Callable[[Any, Any], tir.Expr]] = {
    "+": construct.add, "-": construct.sub, "*": construct.mul, "/": construct.div, "//": calls.floordiv,
    "%": calls.floormod, "<<": calls.shift_left, ">>": calls.shift_right, "&": calls.bitwise_and,
    "|": calls.bitwise_or, "^": calls.bitwise_xor, "==": construct.equal, "!=": construct.not_equal,
    "<": construct.less, "<=": construct.less_equal, ">": construct.greater, ">=": construct.greater_equal,
}  # fmt: skip
_SAMPLED = ("+", "-", "*", "//", "%")


def binary(op: str, a: Any, b: Any, budget: Budget) -> Any:
    """Return `a op b`. Raises Wrong."""
    if is_symbolic(a) or is_symbolic(b):
        return _symbolic(op, a, b, budget)
    if is_number(a) and is_number(b):
        return _numbers(op, a, b, budget)
    if op == "+" and type(a) is type(b) and isinstance(a, (str, list, tuple)):
        budget.items(len(a) + len(b))
        return a + b
    if op == "*" and isinstance(b, (str, list, tuple)) and isinstance(a, int):
        a, b = b, a
    if op == "*" and isinstance(a, (str, list, tuple)) and isinstance(b, int):
        budget.items(len(a) * max(b, 0))
        return a * max(b, 0) if a else a[:0]
    if op == "%" and isinstance(a, str):
        raise ScriptError("E0601", "strings are not formatted by `%` here", 'concatenate them: `"C_" + str(n)`')
    raise ScriptError("E0606", f"`{op}` does not apply to {describe(a)} and {describe(b)}")


def _numbers(op: str, a: Any, b: Any, budget: Budget) -> Any:
    whole = isinstance(a, int) and isinstance(b, int)
    fn = _ARITHMETIC.get(op)
    if fn is None:
        fn = _BITS.get(op)
        if fn is None or not whole:
            raise ScriptError("E0606", f"`{op}` does not apply to {describe(a)} and {describe(b)}")
        if op == "<<" and a and b > MAX_BITS:
            raise too_large()
    if op == "**" and whole and b > 0 and (abs(a).bit_length() - 1) * b > MAX_BITS:
        raise too_large()
    try:
        result = fn(a, b)
    except ZeroDivisionError:
        raise ScriptError("E0606", "division by zero") from None
    except (OverflowError, ValueError) as exc:
        raise ScriptError("E0606", f"`{op}`: {exc}") from None
    if isinstance(result, complex):
        raise ScriptError("E0606", "a negative number cannot have a fractional exponent")
    return budget.number(result)


def _symbolic(op: str, a: Any, b: Any, budget: Budget) -> Any:
    if isinstance(a, tir.Expr) or isinstance(b, tir.Expr):
        a, b = (x.expr if isinstance(x, ExprRV) else x for x in (a, b))
        fn = _EXPRESSIONS.get(op)
        if fn is None or not all(isinstance(x, tir.Expr) or is_number(x) for x in (a, b)):
            raise ScriptError("E0606", f"`{op}` does not apply to {describe(a)} and {describe(b)}")
        try:
            return budget.symbolic(fn(a, b), a, b)
        except (ValueError, ArithmeticError) as exc:
            raise ScriptError("E0606", f"`{op}`: {exc}") from None
    whole = all(isinstance(x, ExprRV) or (isinstance(x, int) and not isinstance(x, bool)) for x in (a, b))
    if op not in _SAMPLED or not whole:
        help = "`sch.get(v)` is the integer that was chosen" if isinstance(a, ExprRV) or isinstance(b, ExprRV) else None
        raise ScriptError("E0606", f"`{op}` does not apply to {describe(a)} and {describe(b)}", help)
    return budget.symbolic(_ARITHMETIC[op](a, b), a, b)


def unary(op: str, x: Any, budget: Budget) -> Any:
    """Return `op x` for `-`, `+`, `~` and `not`. Raises Wrong."""
    if op == "not":
        return construct.logical_not(x) if isinstance(x, tir.Expr) else not truth(x)
    if is_symbolic(x) and op in "+-":
        negate: Callable[[Any], Any] = operator.neg if isinstance(x, ExprRV) else calls.negate
        return budget.symbolic(negate(x), x) if op == "-" else x
    if isinstance(x, int):
        return -x if op == "-" else +x if op == "+" else ~int(x)
    if isinstance(x, float) and op in "+-":
        return -x if op == "-" else x
    raise ScriptError("E0606", f"`{op}` does not apply to {describe(x)}")


def truth(value: Any) -> bool:
    """Return the truth value of a condition. Raises Wrong for one that is not known while the script runs."""
    if isinstance(value, ExprRV):
        raise ScriptError("E0606", "a sampled value is symbolic here", "`sch.get(v)` is the integer that was chosen")
    if isinstance(value, tir.Expr):
        raise ScriptError("E0606", "this expression has no value while the script runs")
    return bool(value)


def compare(op: str, a: Any, b: Any, budget: Budget) -> Any:
    """Return `a op b` for one comparison. Raises Wrong."""
    if op == "is" or op == "is not":
        return same(a, b) is (op == "is")
    if op == "in" or op == "not in":
        return contains(b, a, budget) is (op == "in")
    if isinstance(a, tir.Expr) or isinstance(b, tir.Expr):
        return _symbolic(op, a, b, budget)
    if op == "==" or op == "!=":
        return equal(a, b, budget) is (op == "==")
    if is_symbolic(a) or is_symbolic(b):
        raise ScriptError("E0606", f"`{op}` needs known values", "`sch.get(v)` is the integer that was chosen")
    if (is_number(a) and is_number(b)) or (isinstance(a, str) and isinstance(b, str)):
        return _ORDER[op](a, b)
    if type(a) is type(b) and isinstance(a, (list, tuple)):
        budget.spend(min(len(a), len(b)))
        for x, y in zip(a, b, strict=False):
            if not equal(x, y, budget):
                return compare(op, x, y, budget)
        return _ORDER[op](len(a), len(b))
    raise ScriptError("E0606", f"`{op}` does not apply to {describe(a)} and {describe(b)}")


def same(a: Any, b: Any) -> bool:
    """Return the result of `is`: for numbers and strings, equality of value and type."""
    if isinstance(a, (bool, int, float, str)):
        return type(a) is type(b) and bool(a == b)
    return a is b


def equal(a: Any, b: Any, budget: Budget) -> bool:
    """Return the result of `==`, charging for the compared elements: lists that share parts count in full."""
    budget.spend(1)
    if a is b or isinstance(a, Handle) or isinstance(b, Handle):
        return a is b
    if isinstance(a, (list, tuple)) and type(a) is type(b):
        return len(a) == len(b) and all(equal(x, y, budget) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(x, b[key], budget) for key, x in a.items())
    if isinstance(a, (list, tuple, dict)) or isinstance(b, (list, tuple, dict)):
        return False
    return type(a == b) is bool and bool(a == b)


def contains(container: Any, item: Any, budget: Budget) -> bool:
    """Return `item in container`. Raises Wrong."""
    if isinstance(container, str):
        if not isinstance(item, str):
            raise ScriptError("E0606", f"a string contains strings, not {describe(item)}")
        budget.spend(len(container))
        return item in container
    if isinstance(container, dict):
        return is_key(item) and item in container
    if isinstance(container, range):
        return isinstance(item, (int, float)) and item == item // 1 and int(item) in container
    if isinstance(container, (list, tuple)):
        return any(equal(item, x, budget) for x in container)
    raise ScriptError("E0606", f"`in` needs a list, a tuple, a string or a dict, not {describe(container)}")


def element(base: Any, key: Any) -> Any:
    """Return `base[key]` for a key that is not a slice. Raises Wrong."""
    if isinstance(base, dict):
        if not is_key(key) or key not in base:
            known = ", ".join(repr(k) for k in list(base)[:8] if isinstance(k, (str, int)))
            raise ScriptError("E0606", "the dict has no such key", f"its keys are {known}" if known else None)
        return base[key]
    if not isinstance(base, (list, tuple, str, range)):
        raise ScriptError("E0606", f"{describe(base)} has no elements")
    if isinstance(key, ExprRV):
        raise ScriptError("E0606", "an index must be an integer", "`sch.get(v)` is the integer that was chosen")
    if not isinstance(key, int):
        raise ScriptError("E0606", f"an index must be an integer, not {describe(key)}")
    size = length(base)
    if not -size <= key < size:
        raise ScriptError(
            "E0606", f"index {key if abs(key) < 10**15 else '...'} is out of range: {describe(base)} of {size}"
        )
    return base[key]


def part(base: Any, low: Any, high: Any, step: Any, budget: Budget) -> Any:
    """Return `base[low:high:step]`. Raises Wrong."""
    if not isinstance(base, (list, tuple, str, range)):
        raise ScriptError("E0606", f"{describe(base)} cannot be sliced")
    for bound in (low, high, step):
        if bound is not None and not isinstance(bound, int):
            raise ScriptError("E0606", f"the bounds of a slice must be integers, not {describe(bound)}")
    if step == 0:
        raise ScriptError("E0606", "the step of a slice cannot be 0")
    items = base[low:high:step]
    if not isinstance(base, range):
        budget.items(len(items))
    return items


def elements(value: Any, budget: Budget, what: str = "iterate over") -> list[Any]:
    """Return all elements of a sequence, as a list. Raises Wrong."""
    if not isinstance(value, (list, tuple, str, range, dict)):
        help = "loops of a block come from `sch.get_loops(block)`" if isinstance(value, Handle) else None
        raise ScriptError("E0606", f"cannot {what} {describe(value)}", help)
    budget.items(length(value))
    return list(value)
