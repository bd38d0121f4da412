"""Typing rules of TensorIR expressions. Each rule checks one node, without its children."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.ir import tir
from mlcc.ir.construct import wrap
from mlcc.ir.dtypes import BOOL, DType
from mlcc.ir.tir import Expr

RuleViolation = tuple[str, str]  # code and message


def expression_error(expr: Expr) -> RuleViolation | None:
    """Return the error of this node, without its operands, or None."""
    rule = _RULES.get(type(expr))
    if rule is not None:
        return rule(expr)
    if isinstance(expr, tir.CompareOp):
        return _compare(expr)
    if isinstance(expr, tir.BinaryOp):
        return _binary(expr)
    return None


def _name(expr: Expr) -> str:
    symbol = getattr(type(expr), "symbol", "")
    return f"`{symbol}`" if symbol else f"`{type(expr).__name__}`"


def _mismatch(message: str) -> RuleViolation:
    return "E0337", message


def _int(expr: tir.IntImm) -> RuleViolation | None:
    dtype = expr.dtype
    if dtype.lanes != 1 or not (dtype.is_int or dtype.is_bool or dtype.is_handle):
        return _mismatch(f"an integer constant cannot have dtype {dtype}")
    if not dtype.is_handle and wrap(expr.value, dtype) != expr.value:
        return "E0348", f"{expr.value} does not fit {dtype}"
    return None


def _float(expr: tir.FloatImm) -> RuleViolation | None:
    if expr.dtype.lanes != 1 or not expr.dtype.is_float:
        return _mismatch(f"a floating constant cannot have dtype {expr.dtype}")
    return None


def _cast(expr: tir.Cast) -> RuleViolation | None:
    have, want = expr.value.dtype, expr.dtype
    if have.lanes != want.lanes:
        return _mismatch(f"a cast from {have} to {want} changes the number of lanes")
    if have.is_void or want.is_void:
        return _mismatch(f"there is no cast from {have} to {want}")
    return None


def _binary(expr: tir.BinaryOp) -> RuleViolation | None:
    left, right = expr.lhs.dtype, expr.rhs.dtype
    if left is not right:
        return _mismatch(f"the operands of {_name(expr)} are {left} and {right}")
    if expr.dtype is not left:
        return _mismatch(f"{_name(expr)} of {left} gives {left}, not {expr.dtype}")
    if left.is_handle or left.is_void:
        return _mismatch(f"{_name(expr)} takes numbers, not {left}")
    return None


def _compare(expr: tir.CompareOp) -> RuleViolation | None:
    left, right = expr.lhs.dtype, expr.rhs.dtype
    if left is not right:
        return _mismatch(f"the operands of {_name(expr)} are {left} and {right}")
    if expr.dtype is not BOOL.with_lanes(left.lanes):
        return _mismatch(f"{_name(expr)} of {left} gives {BOOL.with_lanes(left.lanes)}, not {expr.dtype}")
    return None


def _logic(expr: tir.BinaryOp) -> RuleViolation | None:
    for side in (expr.lhs, expr.rhs):
        if not side.dtype.is_bool:
            return _mismatch(f"{_name(expr)} takes bool, not {side.dtype}")
    return _binary(expr)


def _not(expr: tir.Not) -> RuleViolation | None:
    if not expr.value.dtype.is_bool or expr.dtype is not expr.value.dtype:
        return _mismatch(f"`not` takes and gives bool, not {expr.value.dtype}")
    return None


def _select(expr: tir.Select) -> RuleViolation | None:
    condition = expr.condition.dtype
    if not condition.is_bool or condition.lanes not in (1, expr.dtype.lanes):
        return "E0342", f"the condition of a `Select` of {expr.dtype} is {condition}"
    if expr.true_value.dtype is not expr.false_value.dtype or expr.dtype is not expr.true_value.dtype:
        return _mismatch(f"the sides of a `Select` are {expr.true_value.dtype} and {expr.false_value.dtype}")
    return None


def _ramp(expr: tir.Ramp) -> RuleViolation | None:
    base, stride = expr.base.dtype, expr.stride.dtype
    if base is not stride or not base.is_int or base.lanes != 1:
        return _mismatch(f"base and stride of a `Ramp` must be integers of the same dtype, not {base} and {stride}")
    return _lanes(expr, base, expr.lanes)


def _broadcast(expr: tir.Broadcast) -> RuleViolation | None:
    return _lanes(expr, expr.value.dtype, expr.lanes)


def _lanes(expr: Expr, part: DType, lanes: int) -> RuleViolation | None:
    if lanes < 1:
        return _mismatch(f"{_name(expr)} has {lanes} lanes")
    if part.lanes != 1:
        return _mismatch(f"{_name(expr)} must be made of scalars, not {part}")
    if expr.dtype is not part.with_lanes(lanes):
        return _mismatch(f"{_name(expr)} of {lanes} times {part} gives {part.with_lanes(lanes)}, not {expr.dtype}")
    return None


def _shuffle(expr: tir.Shuffle) -> RuleViolation | None:
    if not expr.vectors or not expr.indices:
        return _mismatch("a `Shuffle` must have vectors and indices")
    element = expr.vectors[0].dtype.element
    if any(v.dtype.element is not element for v in expr.vectors):
        return _mismatch("the vectors of a `Shuffle` have different dtypes")
    if expr.dtype is not element.with_lanes(len(expr.indices)):
        return _mismatch(f"a `Shuffle` of {len(expr.indices)} indices must give as many lanes, not {expr.dtype}")
    total = sum(v.dtype.lanes for v in expr.vectors)
    for index in expr.indices:
        value = tir.const_int(index)
        if value is not None and not 0 <= value < total:
            return _mismatch(f"`Shuffle` index {value} is not one of the {total} lanes")
    return None


def _let(expr: tir.Let) -> RuleViolation | None:
    if expr.var.dtype is not expr.value.dtype:
        return _mismatch(f"`{expr.var.name}` is {expr.var.dtype}, but its value is {expr.value.dtype}")
    if expr.dtype is not expr.body.dtype:
        return _mismatch(f"a `Let` must have the dtype of its body, {expr.body.dtype}")
    return None


def access_error(buffer: tir.Buffer, indices: tuple[Expr, ...]) -> RuleViolation | None:
    """Return the error of the access `buffer[indices]`, or None: its rank, dtype of indices, vector indices."""
    if len(indices) != len(buffer.shape):
        return (
            "E0339",
            f"`{buffer.name}` has {_count_text(len(buffer.shape), 'dimension')}, but is indexed by {len(indices)}",
        )
    for at, index in enumerate(indices):
        if not (index.dtype.is_int or index.dtype.is_bool):
            return _mismatch(f"index {at} of `{buffer.name}` must be an integer, not {index.dtype}")
        if index.dtype.lanes > 1 and at < len(indices) - 1:
            return _mismatch(f"index {at} of `{buffer.name}` is a vector; only the last index may be one")
    return None


def access_dtype(buffer: tir.Buffer, indices: tuple[Expr, ...]) -> DType:
    """The dtype of `buffer[indices]`."""
    lanes = indices[-1].dtype.lanes if indices else 1
    return buffer.dtype.with_lanes(buffer.dtype.lanes * lanes)


def _load(expr: tir.BufferLoad) -> RuleViolation | None:
    violation = access_error(expr.buffer, expr.indices)
    if violation is not None:
        return violation
    want = access_dtype(expr.buffer, expr.indices)
    if expr.dtype is not want:
        return _mismatch(f"a load from `{expr.buffer.name}` gives {want}, not {expr.dtype}")
    return None


def _reduce(expr: tir.Reduce) -> RuleViolation | None:
    return "E0349", "a reduction expression is not allowed in a function; use a block with reduce axes"


def _count_text(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


_RULES: dict[type, Callable[..., RuleViolation | None]] = {
    tir.IntImm: _int, tir.FloatImm: _float, tir.Cast: _cast, tir.And: _logic, tir.Or: _logic, tir.Not: _not,
    tir.Select: _select, tir.Ramp: _ramp, tir.Broadcast: _broadcast, tir.Shuffle: _shuffle, tir.Let: _let,
    tir.BufferLoad: _load, tir.Reduce: _reduce,
}  # fmt: skip
