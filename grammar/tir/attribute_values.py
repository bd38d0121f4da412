"""Attributes as the text writes them: `T.func_attr({...})`, `annotations={...}`, decorator options, messages."""

from __future__ import annotations

from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.context import Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.evaluation_results import Scalar, describe
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import tir
from mlcc.ir.dtypes import BOOL, INT32, DType
from mlcc.ir.node import Attrs
from mlcc.ir.tensor_data import TensorData, is_ndarray

_OPTIONS = ("private", "s_tir", "check_well_formed", "persistent", "pure")


def attributes(ev: OperatorEvaluator, cst: tree.Expr, what: str) -> dict[str, Any]:
    """Evaluate a dict with string keys."""
    value = ev.value(cst)
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        ev.walk.fail("E0302", f"{what} must be a dict with strings as keys", cst)
    return {k: attribute(ev, v, cst) for k, v in value.items()}


def annotations_of(ev: OperatorEvaluator, arguments: dict[str, tree.Expr]) -> dict[str, Any]:
    """The argument `annotations={...}` of a call, if it is given."""
    return attributes(ev, arguments["annotations"], "annotations") if "annotations" in arguments else {}


def attribute(ev: OperatorEvaluator, value: Any, cst: tree.Expr) -> Any:
    """The value of an attribute in its usual form: Python's scalars, tuples and maps, nodes for all else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tir.IntImm):
        if value.dtype is BOOL:
            return bool(value.value)
        return value.value if value.dtype is INT32 else value
    if isinstance(value, tir.StringImm):
        return value.value
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, (tuple, list)):
        return tuple(attribute(ev, v, cst) for v in value)
    if isinstance(value, dict):
        if not all(isinstance(k, str) for k in value):
            ev.walk.fail("E0302", "the keys of an attribute must be strings", cst)
        return Attrs({k: attribute(ev, v, cst) for k, v in value.items()})
    if isinstance(value, Scalar):
        return ev.as_expr(value, cst)
    if isinstance(value, (tir.Expr, tir.Buffer, tir.CommReducer, tir.IterVar, tir.Range, tir.IndexMap, TensorData)):
        return value
    if is_ndarray(value):
        return value
    return ev.walk.fail("E0302", f"{describe(value)} cannot be an attribute", cst)


def subject(ev: OperatorEvaluator, cst: tree.Expr) -> Any:
    """Return the node that `T.attr` annotates: an expression, a buffer, an axis, a reducer, or a string."""
    value = ev.value(cst)
    if isinstance(value, (str, tir.Buffer, tir.IterVar, tir.CommReducer)):
        return value
    return ev.as_expr(value, cst)


def attr_value(ev: OperatorEvaluator, value: Any, cst: tree.Expr) -> Any:
    """The value of `T.attr`: an expression, strings included."""
    if isinstance(value, str):
        return tir.StringImm(value, span=ev.walk.span(cst))
    if isinstance(value, (tuple, list, dict)):
        return attribute(ev, value, cst)
    return ev.as_expr(value, cst)


def assert_message(ev: OperatorEvaluator, cst: tree.Expr) -> tuple[str, tuple[str, ...]]:
    """The kind of error and the parts of the message: `"text"`, or `("ValueError", ["part", "part"])`."""
    value = ev.value(cst)
    kind = "RuntimeError"
    if isinstance(value, tuple):
        if len(value) != 2 or not isinstance(value[0], str):
            ev.walk.fail("E0302", 'a message must be a string, or `("ValueError", ["part", ...])`', cst)
        kind, value = value
    parts = value if isinstance(value, (list, tuple)) else [value]
    message_parts = []
    for part in parts:
        if isinstance(part, tir.StringImm):
            part = part.value
        if not isinstance(part, str):
            ev.walk.fail("E0302", 'a message must be a string, or `("ValueError", ["part", ...])`', cst)
        message_parts.append(part)
    return kind, tuple(message_parts)


def decorator_options(walk: Walk, cst: tree.Def) -> dict[str, Any]:
    """The options in `@T.prim_func(private=True)`; each is a constant."""
    options: dict[str, Any] = {}
    for decorator in cst.decorators:
        if not isinstance(decorator, tree.Call):
            continue
        for keyword in decorator.keywords:
            name, value = keyword.name, keyword.value
            if name not in _OPTIONS:
                walk.note("E0304", f"a function has no option `{name}`", keyword, help=did_you_mean(name, _OPTIONS))
            elif not isinstance(value, (tree.Const, tree.Int, tree.Float)):
                walk.note("E0302", f"`{name}` must be True or False", value)
            else:
                options[name] = value.value
    return options
