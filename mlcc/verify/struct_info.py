"""Compatibility of a value's struct info with an expected one.

Only certain contradictions count: sizes that differ for all values of the symbolic variables.
"""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import relax, tir
from mlcc.ir.visit import substitute
from mlcc.verify.format_expr import format_expr

Dims = tuple[tir.Expr, ...]
Bound = dict[tir.Var, tir.Expr]


def mismatch(want: relax.StructInfo, have: relax.StructInfo, bound: Bound | None = None) -> str | None:
    """Return why a value of struct info `have` cannot be used as a `want`, or None if it can.

    `bound` collects the values of the variables in `want`; without it, they are the same variables as in `have`.
    """
    match want, have:
        case (relax.ObjectStructInfo(), _) | (_, relax.ObjectStructInfo()):
            return None
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            return _tensors(want, have, bound)
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            return _ranks(want.ndim, have.ndim) or _dims(want.values, have.values, bound)
        case relax.PrimStructInfo(), relax.PrimStructInfo():
            if want.dtype is not have.dtype:
                return f"it is {have.dtype}, not {want.dtype}"
            if want.value is not None and have.value is not None:
                return _dim(want.value, have.value, "its value", bound)
            return None
        case relax.TupleStructInfo(fields=wanted), relax.TupleStructInfo(fields=actual):
            if len(wanted) != len(actual):
                return f"it is a tuple of {len(actual)}, not of {len(wanted)}"
            for at, (a, b) in enumerate(zip(wanted, actual, strict=True)):
                reason = mismatch(a, b, bound)
                if reason is not None:
                    return f"in element {at}, {reason}"
            return None
        case relax.FuncStructInfo(), relax.FuncStructInfo():
            if want.params is not None and have.params is not None and len(want.params) != len(have.params):
                return f"it takes {len(have.params)} arguments, not {len(want.params)}"
            return None
    return f"it is {kind_of(have)}, not {kind_of(want)}"


def kind_of(info: relax.StructInfo) -> str:
    """Return the kind of a value for messages, such as "a tensor"."""
    match info:
        case relax.TensorStructInfo():
            return "a tensor"
        case relax.ShapeStructInfo():
            return "a shape"
        case relax.PrimStructInfo(dtype=dtype):
            return f"a scalar of {dtype}"
        case relax.TupleStructInfo():
            return "a tuple"
        case relax.FuncStructInfo():
            return "a function"
    return "an object"


def _ranks(want: int, have: int) -> str | None:
    if want >= 0 and have >= 0 and want != have:
        return f"it has {have} dimension{'' if have == 1 else 's'}, not {want}"
    return None


def _tensors(want: relax.TensorStructInfo, have: relax.TensorStructInfo, bound: Bound | None) -> str | None:
    if want.dtype is not None and have.dtype is not None and want.dtype is not have.dtype:
        return f"it is {have.dtype}, not {want.dtype}"
    return _ranks(want.ndim, have.ndim) or _dims(want.dims, have.dims, bound)


def _dims(want: Dims | None, have: Dims | None, bound: Bound | None) -> str | None:
    if want is None or have is None:
        return None
    if len(want) != len(have):
        return _ranks(len(want), len(have))
    for at, (wanted, actual) in enumerate(zip(want, have, strict=True)):
        reason = _dim(wanted, actual, f"dimension {at}", bound)
        if reason is not None:
            return reason
    return None


def _dim(want: tir.Expr, have: tir.Expr, where: str, bound: Bound | None) -> str | None:
    if bound is not None:
        if isinstance(want, tir.Var) and want not in bound:
            bound[want] = have
            return None
        asked, want = want, substitute(want, bound)
        if not provably_differ(want, have):
            return None
        expected = f"{format_expr(asked)} (here {format_expr(want)})" if asked is not want else format_expr(want)
        return f"{where} is {format_expr(have)}, not {expected}"
    return f"{where} is {format_expr(have)}, not {format_expr(want)}" if provably_differ(want, have) else None


def provably_differ(a: tir.Expr, b: tir.Expr) -> bool:
    """Return True if two sizes provably differ for all values of their variables."""
    if a is b or not (a.dtype.is_int and b.dtype.is_int):
        return False
    analyzer = Analyzer()
    if a.dtype is not b.dtype:
        one, two = tir.const_int(a), tir.const_int(b)
        return one is not None and two is not None and one != two
    gap = analyzer.bound(analyzer.difference(a, b))
    return gap.min > 0 or gap.max < 0 or analyzer.differ(a, b)


def bound_variables(info: relax.StructInfo | None) -> list[tir.Var]:
    """The symbolic variables that a parameter of this struct info binds: those that stand alone."""
    match info:
        case relax.TensorStructInfo():
            return [d for d in info.dims or () if isinstance(d, tir.Var)]
        case relax.ShapeStructInfo(values=values):
            return [d for d in values or () if isinstance(d, tir.Var)]
        case relax.PrimStructInfo(value=tir.Var() as var):
            return [var]
        case relax.TupleStructInfo(fields=fields):
            return [v for f in fields for v in bound_variables(f)]
    return []


def dims_in(info: relax.StructInfo | None) -> list[tir.Expr]:
    """Return all symbolic expressions of a struct info, except those in function types, whose variables are local."""
    match info:
        case relax.TensorStructInfo():
            return list(info.dims or ())
        case relax.ShapeStructInfo(values=values):
            return list(values or ())
        case relax.PrimStructInfo(value=value) if value is not None:
            return [value]
        case relax.TupleStructInfo(fields=fields):
            return [v for f in fields for v in dims_in(f)]
    return []


def buffer_info(buffer: tir.Buffer) -> relax.TensorStructInfo:
    """The struct info of a TensorIR parameter."""
    shape = relax.ShapeExpr(buffer.shape, relax.ShapeStructInfo(buffer.shape, len(buffer.shape)))
    return relax.TensorStructInfo(shape, buffer.dtype, len(buffer.shape))


Functions = Mapping[str, "tir.PrimFunc | relax.Function"]
