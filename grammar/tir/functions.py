"""The functions `T.*` of expressions: nodes as they are written, folding functions, vectors, constants of dtypes.

`FUNCTIONS` maps names to handlers that build the value from the evaluator and the call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.arguments import signature
from mlcc.grammar.tir.call_arguments import make_call, operand_pair
from mlcc.grammar.tir.evaluation_results import describe, is_number
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import BOOL, DType

Handler = Callable[[Any, tree.Call], Any]
Expr = tir.Expr


# ---------------------------------------------------------------- nodes as they are written


def _node(cls: type[tir.BinaryOp]) -> Handler:
    """`T.Add(a, b)`: the node itself, never folded; operands already have one dtype."""
    parameters = signature(f"T.{cls.__name__}", "a b", "span")
    compares, logical = issubclass(cls, tir.CompareOp), cls in (tir.And, tir.Or)

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
        arguments = parameters.bind(ev.walk, cst)
        a, b = operand_pair(ev, arguments["a"], arguments["b"])
        if a.dtype is not b.dtype:
            message = f"`T.{cls.__name__}` needs operands of the same dtype"
            ev.walk.fail("E0301", message, cst, f"{a.dtype} and {b.dtype}")
        if logical and not a.dtype.is_bool:
            ev.walk.fail("E0301", f"`T.{cls.__name__}` takes bools, not {a.dtype}", cst)
        dtype = BOOL.with_lanes(a.dtype.lanes) if compares else a.dtype
        return cls(dtype, a, b, span=ev.walk.span(cst))

    return handler


def _unfolded_bit_operation(name: str, symbol: str) -> Handler:
    parameters = signature(f"T.{symbol}", "a b", "span")

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
        arguments = parameters.bind(ev.walk, cst)
        a, b = operand_pair(ev, arguments["a"], arguments["b"])
        return make_call(ev, cst, name, a.dtype, (a, b))

    return handler


def _not(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    value = ev.expr(signature("T.Not", "a", "span").bind(ev.walk, cst)["a"])
    if not value.dtype.is_bool:
        ev.walk.fail("E0301", f"`T.Not` takes a bool, not {value.dtype}", cst)
    return tir.Not(value.dtype, value, span=ev.walk.span(cst))


def _cast_node(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.Cast", "dtype value", "span").bind(ev.walk, cst)
    dtype, value = ev.dtype(arguments["dtype"]), ev.expr(arguments["value"])
    if dtype.lanes != value.dtype.lanes:
        ev.walk.fail("E0301", f"cannot cast {value.dtype} to {dtype}: they have different lanes", cst)
    return tir.Cast(dtype, value, span=ev.walk.span(cst))


def _cast(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.cast", "value dtype", "span").bind(ev.walk, cst)
    if isinstance(arguments["value"], tree.Str):  # both orders are in use
        arguments["value"], arguments["dtype"] = arguments["dtype"], arguments["value"]
    return ev.build(cst, construct.cast, ev.dtype(arguments["dtype"]), ev.expr(arguments["value"]))  # type: ignore[no-any-return]


def _let(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    """`T.Let(body, where={x: value})`, or in older texts `T.Let(x, value, body)`."""
    parameters = signature("T.Let", "expr where= body=")
    arguments = parameters.bind(ev.walk, cst)
    if "body" in arguments:
        var, value, body = ev.value(arguments["expr"]), ev.expr(arguments["where"]), arguments["body"]
    else:
        where = arguments.get("where")
        if where is None or not isinstance(where, tree.Dict) or len(where.entries) != 1:
            ev.walk.fail("E0302", "`T.Let` binds one variable: `T.Let(x + 1, where={x: value})`", cst)
        var, value, body = ev.value(where.entries[0][0]), ev.expr(where.entries[0][1]), arguments["expr"]
    if not isinstance(var, tir.Var):
        ev.walk.fail("E0302", "`T.Let` must bind a variable, such as `x = T.float32()`", cst)
    if var.dtype is not value.dtype:
        ev.walk.fail("E0301", f"`{var.name}` is {var.dtype}, but its value is {value.dtype}", cst)
    body_expr = ev.expr(body)
    return tir.Let(body_expr.dtype, var, value, body_expr, span=ev.walk.span(cst))


# ---------------------------------------------------------------- folding functions


def _function(name: str, names: str, fn: Callable[..., Any]) -> Handler:
    """A function of expressions, built by `fn`."""
    known = signature(f"T.{name}", names, "span dtype")
    parameters = known.positional

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Any:
        arguments = known.bind(ev.walk, cst)
        return ev.build(cst, fn, *(ev.operand(arguments[p]) for p in parameters if p in arguments))

    return handler


def _selection(name: str, fn: Callable[..., Any]) -> Handler:
    parameters = signature(f"T.{name}", "condition true_value false_value", "cond t f span dtype")
    order = ("condition", "true_value", "false_value")

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Any:
        short = dict(zip(("cond", "t", "f"), order, strict=True))
        keywords = tuple(replace(k, name=short.get(k.name, k.name)) for k in cst.keywords)
        arguments = parameters.bind(ev.walk, replace(cst, keywords=keywords))
        return ev.build(
            cst,
            fn,
            ev.bool(arguments["condition"]),
            ev.operand(arguments["true_value"]),
            ev.operand(arguments["false_value"]),
        )

    return handler


def _dtype_limit(name: str, fn: Callable[[DType], Expr]) -> Handler:
    parameters = signature(f"T.{name}", "dtype", "span")

    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Any:
        return ev.build(cst, fn, ev.dtype(parameters.bind(ev.walk, cst)["dtype"]))

    return handler


def _ramp(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.Ramp", "base stride lanes", "span").bind(ev.walk, cst)
    lanes = _lane_count(ev, arguments["lanes"])
    return ev.build(cst, calls.ramp, ev.operand(arguments["base"]), ev.operand(arguments["stride"]), lanes)  # type: ignore[no-any-return]


def _broadcast(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.Broadcast", "value lanes", "span").bind(ev.walk, cst)
    return ev.build(cst, calls.broadcast, ev.operand(arguments["value"]), _lane_count(ev, arguments["lanes"]))  # type: ignore[no-any-return]


def _lane_count(ev: OperatorEvaluator, cst: tree.Expr) -> int:
    count = ev.integer(cst, "the number of lanes")
    if not 2 <= count <= 1024:
        ev.walk.fail("E0302", "a vector must have 2 to 1024 lanes", cst)
    return count


def _shuffle(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.Shuffle", "vectors indices", "span").bind(ev.walk, cst)
    vectors, indices = ev.exprs(arguments["vectors"], "`vectors`"), ev.exprs(arguments["indices"], "`indices`")
    return ev.build(cst, calls.shuffle, vectors, indices)  # type: ignore[no-any-return]


def _buffer_load(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    arguments = signature("T.BufferLoad", "buffer indices", "predicate span").bind(ev.walk, cst)
    buffer = ev.value(arguments["buffer"])
    if not isinstance(buffer, tir.Buffer):
        ev.walk.fail("E0302", "`buffer` must be a buffer", arguments["buffer"])
    items = tree.items_of(arguments["indices"])
    return ev.load(buffer, tree.Index(cst.start, cst.end, arguments["buffer"], items))


def _likely(ev: OperatorEvaluator, cst: tree.Call) -> Expr:
    value = ev.bool(signature("T.likely", "cond", "span dtype").bind(ev.walk, cst)["cond"])
    return value if isinstance(value, tir.IntImm) else make_call(ev, cst, "likely", value.dtype, (value,))


# ---------------------------------------------------------------- Python's own functions


def _number_conversion(fn: Callable[[Any], Any]) -> Handler:
    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Any:
        if len(cst.args) != 1 or cst.keywords:
            ev.walk.fail("E0304", "one argument is needed", cst)
        value = ev.value(cst.args[0])
        if not isinstance(value, (bool, int, float, str)):
            ev.walk.fail("E0300", "only a number can be converted here", cst, help="convert expressions by `T.Cast`")
        try:
            return fn(value)
        except (ValueError, OverflowError) as bad:
            return ev.walk.fail("E0302", str(bad), cst)

    return handler


def _min_or_max(name: str, pick: Callable[..., Any], fn: Callable[..., Expr]) -> Handler:
    def handler(ev: OperatorEvaluator, cst: tree.Call) -> Any:
        if len(cst.args) < 2 or cst.keywords:
            ev.walk.fail("E0304", f"`{name}` takes two arguments", cst)
        values = [ev.operand(a) for a in cst.args]
        if all(is_number(v) for v in values):
            return pick(values)
        return functools.reduce(lambda a, b: ev.build(cst, fn, a, b), values)

    return handler


def _len(ev: OperatorEvaluator, cst: tree.Call) -> Any:
    value = ev.value(cst.args[0]) if len(cst.args) == 1 else None
    if not isinstance(value, (tuple, list, dict, str)):
        ev.walk.fail("E0300", f"{describe(value)} has no length", cst)
    return len(value)


BUILTINS: dict[str, Handler] = {
    "min": _min_or_max("min", min, construct.minimum), "max": _min_or_max("max", max, construct.maximum),
    "abs": _function("abs", "x", calls.absolute), "float": _number_conversion(float), "int": _number_conversion(int),
    "bool": _number_conversion(bool), "len": _len,
}  # fmt: skip

# ---------------------------------------------------------------- the tables

_NODES = (
    tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max, tir.EQ, tir.NE,
    tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or,
)  # fmt: skip

_FOLDING: dict[str, tuple[str, Callable[..., Any]]] = {
    "min": ("a b", construct.minimum), "max": ("a b", construct.maximum), "truncdiv": ("a b", construct.div),
    "truncmod": ("a b", construct.truncmod), "floordiv": ("a b", calls.floordiv), "div": ("a b", construct.div),
    "floormod": ("a b", calls.floormod), "indexdiv": ("a b", calls.floordiv),
    "indexmod": ("a b", calls.floormod), "ceildiv": ("lhs rhs", calls.ceildiv),
    "bitwise_and": ("x y", calls.bitwise_and), "bitwise_or": ("x y", calls.bitwise_or),
    "bitwise_xor": ("x y", calls.bitwise_xor), "bitwise_not": ("x", calls.bitwise_not),
    "BitwiseNot": ("a", calls.bitwise_not), "shift_left": ("x y", calls.shift_left),
    "shift_right": ("x y", calls.shift_right), "abs": ("x", calls.absolute), "fabs": ("x", calls.absolute),
    "pow": ("x y", calls.power), "power": ("x y", calls.power), "isnan": ("x", calls.isnan),
    "isinf": ("x", calls.isinf), "isfinite": ("x", calls.isfinite),
    **{n: ("x", functools.partial(calls.rounding, n)) for n in ("floor", "ceil", "trunc", "round", "nearbyint")},
}  # fmt: skip

FUNCTIONS: dict[str, Handler] = {
    **{c.__name__: _node(c) for c in _NODES},
    **{name: _function(name, names, fn) for name, (names, fn) in _FOLDING.items()},
    "LShift": _unfolded_bit_operation("shift_left", "LShift"),
    "RShift": _unfolded_bit_operation("shift_right", "RShift"),
    "BitwiseAnd": _unfolded_bit_operation("bitwise_and", "BitwiseAnd"),
    "BitwiseOr": _unfolded_bit_operation("bitwise_or", "BitwiseOr"),
    "BitwiseXor": _unfolded_bit_operation("bitwise_xor", "BitwiseXor"), "Not": _not, "Cast": _cast_node, "cast": _cast,
    "Let": _let, "let": _let, "BufferLoad": _buffer_load, "Select": _selection("Select", calls.select),
    "if_then_else": _selection("if_then_else", calls.if_then_else), "Ramp": _ramp, "ramp": _ramp,
    "Broadcast": _broadcast, "broadcast": _broadcast, "Shuffle": _shuffle, "likely": _likely,
    "min_value": _dtype_limit("min_value", construct.min_value),
    "max_value": _dtype_limit("max_value", construct.max_value), "infinity": _dtype_limit("infinity", calls.infinity),
}  # fmt: skip
