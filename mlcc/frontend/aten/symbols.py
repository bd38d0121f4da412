"""Symbolic extents as PyTorch's exporter writes them, from text to integer expressions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import tir

_BINARY: dict[type, Callable[[Any, Any], tir.Expr]] = {
    ast.Add: c.add, ast.Sub: c.sub, ast.Mult: c.mul, ast.FloorDiv: c.floordiv, ast.Mod: c.floormod,
}  # fmt: skip
_CALLS: dict[str, Callable[[Any, Any], tir.Expr]] = {
    "FloorDiv": c.floordiv, "CleanDiv": c.floordiv, "PythonMod": c.floormod, "Mod": c.floormod,
    "Max": c.maximum, "Min": c.minimum,
}  # fmt: skip


def parse_extent(text: str, symbols: Mapping[str, tir.Expr]) -> tir.Expr:
    """The expression that `text` is, as sympy prints it. Raises Unsupported for what extents cannot be."""
    try:
        return _expression(ast.parse(text.strip(), mode="eval").body, symbols)
    except (SyntaxError, RecursionError, KeyError, TypeError, ValueError):
        raise Unsupported(f"the extent `{text[:200]}` is no integer expression that mlcc knows") from None


def _expression(node: ast.expr, symbols: Mapping[str, tir.Expr]) -> tir.Expr:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return c.const(value, "int64")
        case ast.Name(id=name):
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return c.sub(c.const(0, "int64"), _expression(operand, symbols))
        case ast.BinOp(left=left, op=operator, right=right):
            if isinstance(operator, ast.Pow):
                return _power(_expression(left, symbols), right)
            return _BINARY[type(operator)](_expression(left, symbols), _expression(right, symbols))
        case ast.Call(func=ast.Name(id="Symbol"), args=[ast.Constant(value=str(name)), *_]):
            return symbols[name]
        case ast.Call(func=ast.Name(id="Integer"), args=[inner]):
            return _expression(inner, symbols)
        case ast.Call(func=ast.Name(id=("Add" | "Mul") as name), args=[first, *rest]):  # sympy's srepr
            made = _expression(first, symbols)
            for part in rest:
                made = (c.add if name == "Add" else c.mul)(made, _expression(part, symbols))
            return made
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]):
            made = _expression(first, symbols)
            for part in rest:
                made = _CALLS[name](made, _expression(part, symbols))
            return made
    raise ValueError(ast.dump(node))


def _power(base: tir.Expr, exponent: ast.expr) -> tir.Expr:
    power = exponent.value if isinstance(exponent, ast.Constant) else None
    if not isinstance(power, int) or not 1 <= power <= 4:
        raise ValueError("exponent")
    made = base
    for _ in range(power - 1):
        made = c.mul(made, base)
    return made
