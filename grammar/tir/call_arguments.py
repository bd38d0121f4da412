"""Arguments of the functions `T.*`: expressions, strings, buffers, dtypes."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.evaluation_results import set_span
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import DType

Expr = tir.Expr


def argument(ev: OperatorEvaluator, cst: tree.Expr) -> Expr:
    """An argument of an intrinsic: an expression, a string, or a buffer, which stands for its pointer."""
    value = ev.value(cst)
    if isinstance(value, str):
        return tir.StringImm(value, span=ev.walk.span(cst))
    if isinstance(value, DType):
        return tir.StringImm(str(value), span=ev.walk.span(cst))
    if isinstance(value, tir.Buffer):
        return value.data
    return ev.as_expr(value, cst)


def packed_argument(ev: OperatorEvaluator, cst: tree.Expr) -> Expr:
    value = ev.value(cst)
    if isinstance(value, tir.Buffer):
        return set_span(calls.pack_buffer(value), ev.walk.span(cst))  # type: ignore[no-any-return]
    if isinstance(value, str):
        return tir.StringImm(value, span=ev.walk.span(cst))
    return ev.as_expr(value, cst)


def make_call(ev: OperatorEvaluator, cst: tree.Call, name: str, dtype: DType, args: tuple[Expr, ...]) -> tir.Call:
    return set_span(tir.Call(dtype, tir.Op(f"tir.{name}"), args), ev.walk.span(cst))  # type: ignore[no-any-return]


def split_dtype(ev: OperatorEvaluator, cst: tree.Call, name: str) -> tuple[DType, tuple[tree.Expr, ...]]:
    """The dtype of a call that states it, by name or as first argument, and the other arguments."""
    args = cst.args
    for keyword in cst.keywords:
        if keyword.name == "dtype":
            return ev.dtype(keyword.value), args
    if not args:
        ev.walk.fail("E0304", f"`T.{name}` needs the dtype of its result", cst, help="as first argument, or `dtype=`")
    return ev.dtype(args[0]), args[1:]


def literal_dtype(value: Any, like: DType | None) -> DType | None:
    """The dtype for a Python number beside operands of dtype `like`."""
    if like is None or (isinstance(value, float) and not like.is_float) or like.is_bool:
        return None
    return like


def operand_pair(ev: OperatorEvaluator, first: tree.Expr, second: tree.Expr) -> tuple[Expr, Expr]:
    """Two operands; a Python number takes the dtype of the other one where it fits."""
    a, b = ev.operand(first), ev.operand(second)
    if not isinstance(a, Expr):
        a = ev.build(first, construct.const, a, literal_dtype(a, b.dtype if isinstance(b, Expr) else None))
    if not isinstance(b, Expr):
        b = ev.build(second, construct.const, b, literal_dtype(b, a.dtype))
    return a, b
