"""Relations of struct infos: the subtype test of one against another, and their common supertype."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import calls, relax, tir
from mlcc.ir.node import Node, walk


class SubtypeCheck(enum.IntEnum):
    """The relation of a value's stated struct info to its known struct info."""

    COVERS = 0  # the stated info is equal or more general
    NARROWS = 1  # the stated info is more specific: it has to be checked at run time
    CONTRADICTS = 2  # no value satisfies both


def check_subtype(stated: relax.StructInfo, known: relax.StructInfo) -> SubtypeCheck:
    """Return the relation of the stated struct info `stated` to a value's struct info `known`."""
    match stated, known:
        case relax.ObjectStructInfo(), _:
            return SubtypeCheck.COVERS
        case _, relax.ObjectStructInfo():
            return SubtypeCheck.NARROWS
        case relax.PrimStructInfo(), relax.PrimStructInfo():
            if stated.dtype is not known.dtype:
                return SubtypeCheck.CONTRADICTS
            return _fit_dims(_as_dims(stated.value), _as_dims(known.value))
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            return max(_fit_ndim(stated.ndim, known.ndim), _fit_dims(stated.values, known.values))
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            return _fit_tensor(stated, known)
        case relax.TupleStructInfo(), relax.TupleStructInfo():
            if len(stated.fields) != len(known.fields):
                return SubtypeCheck.CONTRADICTS
            return _strictest(check_subtype(a, b) for a, b in zip(stated.fields, known.fields, strict=True))
        case relax.FuncStructInfo(), relax.FuncStructInfo():
            return _fit_function(stated, known)
        case _:
            return SubtypeCheck.CONTRADICTS


def compatible(stated: relax.StructInfo, known: relax.StructInfo) -> bool:
    """Return True if a value of struct info `known` may also have `stated`, for some values of symbolic variables."""
    match stated, known:
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            dtypes = stated.dtype is None or known.dtype is None or stated.dtype is known.dtype
            devices = stated.vdevice is None or known.vdevice is None or stated.vdevice == known.vdevice
            return (
                dtypes
                and devices
                and _shapes_meet(stated.ndim, _values(stated.shape), known.ndim, _values(known.shape))
            )
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            return _shapes_meet(stated.ndim, stated.values, known.ndim, known.values)
        case relax.TupleStructInfo(), relax.TupleStructInfo():
            same_length = len(stated.fields) == len(known.fields)
            return same_length and all(map(compatible, stated.fields, known.fields))
    return check_subtype(stated, known) is not SubtypeCheck.CONTRADICTS


def _shapes_meet(
    ndim: int, dims: tuple[tir.Expr, ...] | None, other_ndim: int, others: tuple[tir.Expr, ...] | None
) -> bool:
    if -1 not in (ndim, other_ndim) and ndim != other_ndim:
        return False
    return dims is None or others is None or not any(map(_never_equal, dims, others))


def _never_equal(a: tir.Expr, b: tir.Expr) -> bool:
    bounds = Analyzer().compare(a, b)
    return bounds.min > 0 or bounds.max < 0


def _strictest(results: Iterable[SubtypeCheck]) -> SubtypeCheck:
    return max(results, default=SubtypeCheck.COVERS)


def _as_dims(value: tir.Expr | None) -> tuple[tir.Expr, ...] | None:
    return None if value is None else (value,)


def _fit_ndim(stated: int, known: int) -> SubtypeCheck:
    if stated == -1 or stated == known:
        return SubtypeCheck.COVERS
    return SubtypeCheck.NARROWS if known == -1 else SubtypeCheck.CONTRADICTS


def _fit_dims(stated: tuple[tir.Expr, ...] | None, known: tuple[tir.Expr, ...] | None) -> SubtypeCheck:
    if stated is None:
        return SubtypeCheck.COVERS
    if known is None:
        return SubtypeCheck.NARROWS
    if len(stated) != len(known) or any(can_differ(a, b) for a, b in zip(stated, known, strict=True)):
        return SubtypeCheck.CONTRADICTS
    return SubtypeCheck.COVERS


def _fit_tensor(stated: relax.TensorStructInfo, known: relax.TensorStructInfo) -> SubtypeCheck:
    result = _fit_ndim(stated.ndim, known.ndim)
    if stated.dtype is not None and stated.dtype is not known.dtype:
        result = max(result, SubtypeCheck.NARROWS if known.dtype is None else SubtypeCheck.CONTRADICTS)
    if stated.vdevice is not None and known.vdevice is not None and stated.vdevice != known.vdevice:
        return SubtypeCheck.CONTRADICTS
    if stated.shape is None or stated.shape is known.shape:
        return result
    mine, theirs = _values(stated.shape), _values(known.shape)
    return max(result, SubtypeCheck.NARROWS if mine is None or theirs is None else _fit_dims(mine, theirs))


def _values(shape: relax.Expr | None) -> tuple[tir.Expr, ...] | None:
    """The dimensions of a shape, directly or behind a variable."""
    if isinstance(shape, relax.ShapeExpr):
        return shape.values
    info = None if shape is None else shape.struct_info
    return info.values if isinstance(info, relax.ShapeStructInfo) else None


def _fit_function(stated: relax.FuncStructInfo, known: relax.FuncStructInfo) -> SubtypeCheck:
    result = SubtypeCheck.NARROWS if stated.purity and not known.purity else SubtypeCheck.COVERS
    if stated.params is None:
        return max(result, check_subtype(stated.ret, known.ret))
    if known.params is None:
        return SubtypeCheck.NARROWS
    if len(stated.params) != len(known.params):
        return SubtypeCheck.CONTRADICTS
    if variables(*stated.params) or variables(*known.params):
        return result  # their symbolic variables are unrelated
    inputs = _strictest(check_subtype(b, a) for a, b in zip(stated.params, known.params, strict=True))
    return max(result, inputs, check_subtype(stated.ret, known.ret))


# ---------------------------------------------------------------- dimensions

_SAMPLES = ((2, 3, 5, 7, 11, 13, 17, 19), (64, 48, 100, 31, 128, 96, 36, 1), (7, 8, 1, 4, 2, 1, 1000, 5))


def provably_equal(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True if two dimensions are provably equal."""
    return a is b or Analyzer().prove_equal(a, b)


def can_differ(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True if a counterexample shows that two dimensions differ for some sizes; False if none is known."""
    if a is b:
        return False
    free = variables(a, b)
    for sample in _SAMPLES if free else ((),):
        known = {v: sample[i % len(sample)] + i // len(sample) for i, v in enumerate(free)}
        one, two = evaluate(a, known), evaluate(b, known)
        if one is None or two is None:
            return False
        if one != two:
            return True
    return False


_BITS = {
    "tir.shift_left": calls.shift_left, "tir.shift_right": calls.shift_right, "tir.bitwise_and": calls.bitwise_and,
    "tir.bitwise_or": calls.bitwise_or, "tir.bitwise_xor": calls.bitwise_xor,
}  # fmt: skip


def variables(*roots: Node) -> list[tir.Var]:
    """The variables below `roots`, in the order of their first use."""
    return list(dict.fromkeys(n for root in roots for n in walk(root) if isinstance(n, tir.Var)))


def evaluate(expr: tir.Expr, known: dict[tir.Var, int]) -> int | None:
    """Evaluate an integer expression for given values of its variables; None if that is impossible."""
    match expr:
        case tir.IntImm():
            return expr.value
        case tir.Var():
            return known.get(expr)
        case tir.Cast():
            return evaluate(expr.value, known) if expr.dtype.is_int else None
        case tir.Select():
            chosen = evaluate(expr.condition, known)
            return None if chosen is None else evaluate(expr.true_value if chosen else expr.false_value, known)
        case tir.Call(op=tir.Op("tir.if_then_else"), args=(condition, yes, no)):
            chosen = evaluate(condition, known)
            return None if chosen is None else evaluate(yes if chosen else no, known)
        case tir.Call(op=tir.Op(name=name), args=(a, b)) if name in _BITS:
            one, two = evaluate(a, known), evaluate(b, known)
            folded = None
            if one is not None and two is not None:
                folded = _BITS[name](tir.IntImm(expr.dtype, one), tir.IntImm(expr.dtype, two))
            return folded.value if isinstance(folded, tir.IntImm) else None
        case tir.Not():
            value = evaluate(expr.value, known)
            return None if value is None else 1 - value
        case tir.BinaryOp():
            one, two = evaluate(expr.lhs, known), evaluate(expr.rhs, known)
            return None if one is None or two is None else _apply(expr, one, two)
        case _:
            return None


def _apply(expr: tir.BinaryOp, a: int, b: int) -> int | None:
    from mlcc.ir.construct import truncdiv

    if isinstance(expr, (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)) and b == 0:
        return None
    match expr:
        case tir.Add():
            return a + b
        case tir.Sub():
            return a - b
        case tir.Mul():
            return a * b
        case tir.FloorDiv():
            return a // b
        case tir.FloorMod():
            return a % b
        case tir.Div():
            return truncdiv(a, b)
        case tir.Mod():
            return a - truncdiv(a, b) * b
        case tir.Min():
            return min(a, b)
        case tir.Max():
            return max(a, b)
        case tir.And():
            return int(bool(a) and bool(b))
        case tir.Or():
            return int(bool(a) or bool(b))
        case tir.EQ():
            return int(a == b)
        case tir.NE():
            return int(a != b)
        case tir.LT():
            return int(a < b)
        case tir.LE():
            return int(a <= b)
        case tir.GT():
            return int(a > b)
        case tir.GE():
            return int(a >= b)
    return None


# ---------------------------------------------------------------- least common supertype


def common_supertype(a: relax.StructInfo, b: relax.StructInfo) -> relax.StructInfo:
    """Return the common supertype of two struct infos (TVM's `StructInfoLCA`)."""
    match a, b:
        case relax.PrimStructInfo(), relax.PrimStructInfo() if a.dtype is b.dtype:
            agree = a.value is not None and b.value is not None and provably_equal(a.value, b.value)
            return a if agree else relax.PrimStructInfo(a.dtype)
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            if _same_dims(a.values, b.values):
                return a
            return relax.ShapeStructInfo(None, a.ndim if a.ndim == b.ndim else -1)
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            shape = a.shape if a.shape is b.shape or _same_dims(_values(a.shape), _values(b.shape)) else None
            dtype = a.dtype if a.dtype is b.dtype else None
            device = a.vdevice if a.vdevice == b.vdevice else None
            ndim = a.ndim if a.ndim == b.ndim else -1
            if (shape, dtype, device, ndim) == (a.shape, a.dtype, a.vdevice, a.ndim):
                return a
            return relax.TensorStructInfo(shape, dtype, ndim, device)
        case relax.TupleStructInfo(), relax.TupleStructInfo() if len(a.fields) == len(b.fields):
            return relax.TupleStructInfo(tuple(common_supertype(x, y) for x, y in zip(a.fields, b.fields, strict=True)))
        case relax.FuncStructInfo(), relax.FuncStructInfo():
            if max(check_subtype(a, b), check_subtype(b, a)) is SubtypeCheck.COVERS:
                return a
            return relax.FuncStructInfo(None, relax.ObjectStructInfo(), a.purity and b.purity)
        case _:
            return relax.ObjectStructInfo()


def _same_dims(a: tuple[tir.Expr, ...] | None, b: tuple[tir.Expr, ...] | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    return all(provably_equal(x, y) for x, y in zip(a, b, strict=True))
