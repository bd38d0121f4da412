"""Relations of struct infos: the subtype test of one against another, and their common supertype."""

from __future__ import annotations

import enum
from collections.abc import Iterable

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import calls, relax, tir
from mlcc.ir.node import Node, walk


class Fit(enum.IntEnum):
    """The relation of a value's stated struct info to its known struct info."""

    COVERS = 0  # it says the same, or less
    NARROWS = 1  # it says more: only a look at the value itself can tell
    CONTRADICTS = 2  # no value satisfies both


def fit(said: relax.StructInfo, known: relax.StructInfo) -> Fit:
    """Return the relation of the stated struct info `said` to a value's struct info `known`."""
    match said, known:
        case relax.ObjectStructInfo(), _:
            return Fit.COVERS
        case _, relax.ObjectStructInfo():
            return Fit.NARROWS
        case relax.PrimStructInfo(), relax.PrimStructInfo():
            if said.dtype is not known.dtype:
                return Fit.CONTRADICTS
            return _fit_dims(_one(said.value), _one(known.value))
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            return max(_fit_ndim(said.ndim, known.ndim), _fit_dims(said.values, known.values))
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            return _fit_tensor(said, known)
        case relax.TupleStructInfo(), relax.TupleStructInfo():
            if len(said.fields) != len(known.fields):
                return Fit.CONTRADICTS
            return _worst(fit(a, b) for a, b in zip(said.fields, known.fields, strict=True))
        case relax.FuncStructInfo(), relax.FuncStructInfo():
            return _fit_function(said, known)
        case _:
            return Fit.CONTRADICTS


def possible(said: relax.StructInfo, known: relax.StructInfo) -> bool:
    """Return True if a value of struct info `known` may also have `said`, for some values of the symbolic variables."""
    match said, known:
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            dtypes = said.dtype is None or known.dtype is None or said.dtype is known.dtype
            devices = said.vdevice is None or known.vdevice is None or said.vdevice == known.vdevice
            return dtypes and devices and _shapes_meet(said.ndim, _values(said.shape), known.ndim, _values(known.shape))
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            return _shapes_meet(said.ndim, said.values, known.ndim, known.values)
        case relax.TupleStructInfo(), relax.TupleStructInfo():
            same_length = len(said.fields) == len(known.fields)
            return same_length and all(map(possible, said.fields, known.fields))
    return fit(said, known) is not Fit.CONTRADICTS


def _shapes_meet(
    ndim: int, dims: tuple[tir.Expr, ...] | None, other_ndim: int, others: tuple[tir.Expr, ...] | None
) -> bool:
    if -1 not in (ndim, other_ndim) and ndim != other_ndim:
        return False
    return dims is None or others is None or not any(map(_never_equal, dims, others))


def _never_equal(a: tir.Expr, b: tir.Expr) -> bool:
    bounds = Analyzer().compare(a, b)
    return bounds.min > 0 or bounds.max < 0


def _worst(found: Iterable[Fit]) -> Fit:
    return max(found, default=Fit.COVERS)


def _one(value: tir.Expr | None) -> tuple[tir.Expr, ...] | None:
    return None if value is None else (value,)


def _fit_ndim(said: int, known: int) -> Fit:
    if said == -1 or said == known:
        return Fit.COVERS
    return Fit.NARROWS if known == -1 else Fit.CONTRADICTS


def _fit_dims(said: tuple[tir.Expr, ...] | None, known: tuple[tir.Expr, ...] | None) -> Fit:
    if said is None:
        return Fit.COVERS
    if known is None:
        return Fit.NARROWS
    if len(said) != len(known) or any(differ(a, b) for a, b in zip(said, known, strict=True)):
        return Fit.CONTRADICTS
    return Fit.COVERS


def _fit_tensor(said: relax.TensorStructInfo, known: relax.TensorStructInfo) -> Fit:
    relation = _fit_ndim(said.ndim, known.ndim)
    if said.dtype is not None and said.dtype is not known.dtype:
        relation = max(relation, Fit.NARROWS if known.dtype is None else Fit.CONTRADICTS)
    if said.vdevice is not None and known.vdevice is not None and said.vdevice != known.vdevice:
        return Fit.CONTRADICTS
    if said.shape is None or said.shape is known.shape:
        return relation
    mine, theirs = _values(said.shape), _values(known.shape)
    return max(relation, Fit.NARROWS if mine is None or theirs is None else _fit_dims(mine, theirs))


def _values(shape: relax.Expr | None) -> tuple[tir.Expr, ...] | None:
    """The dimensions of a shape, directly or behind a variable."""
    if isinstance(shape, relax.ShapeExpr):
        return shape.values
    info = None if shape is None else shape.struct_info
    return info.values if isinstance(info, relax.ShapeStructInfo) else None


def _fit_function(said: relax.FuncStructInfo, known: relax.FuncStructInfo) -> Fit:
    relation = Fit.NARROWS if said.purity and not known.purity else Fit.COVERS
    if said.params is None:
        return max(relation, fit(said.ret, known.ret))
    if known.params is None:
        return Fit.NARROWS
    if len(said.params) != len(known.params):
        return Fit.CONTRADICTS
    if variables(*said.params) or variables(*known.params):
        return relation  # each has symbolic variables of its own
    inputs = _worst(fit(b, a) for a, b in zip(said.params, known.params, strict=True))
    return max(relation, inputs, fit(said.ret, known.ret))


# ---------------------------------------------------------------- dimensions

_SAMPLES = ((2, 3, 5, 7, 11, 13, 17, 19), (64, 48, 100, 31, 128, 96, 36, 1), (7, 8, 1, 4, 2, 1, 1000, 5))


def same(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True if two dimensions are provably equal."""
    return a is b or Analyzer().prove_equal(a, b)


def differ(a: tir.Expr, b: tir.Expr) -> bool:
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
    """An integer expression for given values of its variables; None where it has none, or is of another kind."""
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


# ---------------------------------------------------------------- what two have in common


def common(a: relax.StructInfo, b: relax.StructInfo) -> relax.StructInfo:
    """Return the common supertype of two struct infos (TVM's `StructInfoLCA`)."""
    match a, b:
        case relax.PrimStructInfo(), relax.PrimStructInfo() if a.dtype is b.dtype:
            agree = a.value is not None and b.value is not None and same(a.value, b.value)
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
            return relax.TupleStructInfo(tuple(common(x, y) for x, y in zip(a.fields, b.fields, strict=True)))
        case relax.FuncStructInfo(), relax.FuncStructInfo():
            if max(fit(a, b), fit(b, a)) is Fit.COVERS:
                return a
            return relax.FuncStructInfo(None, relax.ObjectStructInfo(), a.purity and b.purity)
        case _:
            return relax.ObjectStructInfo()


def _same_dims(a: tuple[tir.Expr, ...] | None, b: tuple[tir.Expr, ...] | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    return all(same(x, y) for x, y in zip(a, b, strict=True))
