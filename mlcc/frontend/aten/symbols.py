"""Symbolic numbers as PyTorch's exporter writes them: from text to expressions over integers."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import tir

_MAX_LENGTH = 20_000  # characters of an expression
_MAX_DENOMINATOR = 1 << 20  # denominators up to which products of floats and extents are exact

_Binary = Callable[[Any, Any], Any]


class _Ratio(NamedTuple):
    """A float that is an integer expression divided by a number."""

    number: tir.Expr
    divisor: int


def parse_extent(text: str, symbols: Mapping[str, tir.Expr]) -> tir.Expr:
    """Parse an expression that sympy printed: an integer expression or a comparison of two.

    Raises Unsupported for expressions that no extent can have.
    """
    try:
        expression = _expression(_tree(text), symbols)
        if isinstance(expression, _Ratio):
            raise ValueError("a float")
        return expression
    except _Unknown as problem:
        raise Unsupported(
            f"`{text[:200]}` depends on `{problem}`, which no input or node of the program defines"
        ) from None
    except (SyntaxError, RecursionError, KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError):
        raise Unsupported(f"the extent `{text[:200]}` is not a supported integer expression") from None


def symbols_of(text: str) -> list[str]:
    """Return the symbols in an expression in order of appearance."""
    try:
        nodes = [n for n in ast.walk(_tree(text)) if isinstance(n, (ast.Name, ast.Call))]
    except (SyntaxError, RecursionError, ValueError):
        return []
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    return list(dict.fromkeys(n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in called))


@functools.lru_cache(maxsize=4096)
def infix_extent(text: str) -> int | str:
    """Convert an expression in sympy's `srepr` form to a number or to infix notation: `2*s77 + 1`.

    Raises ValueError for other texts.
    """
    try:
        tree = _ToInfix().visit(_tree(text))
        if isinstance(tree, ast.Constant) and type(tree.value) is int:
            return tree.value
        return ast.unparse(tree)
    except (SyntaxError, RecursionError, TypeError, MemoryError, AttributeError) as problem:
        raise ValueError(f"no expression: {problem}") from None


@functools.lru_cache(maxsize=4096)
def _tree(text: str) -> ast.expr:
    if len(text) > _MAX_LENGTH:
        raise ValueError("too long")
    return ast.parse(text.strip(), mode="eval").body


# ---------------------------------------------------------------- from sympy's representation to plain notation

_CHAINS: dict[str, ast.operator] = {"Add": ast.Add(), "Mul": ast.Mult(), "Pow": ast.Pow(), "PowByNatural": ast.Pow()}
_COMPARISONS: dict[str, ast.cmpop] = {
    "Equality": ast.Eq(), "Unequality": ast.NotEq(), "StrictGreaterThan": ast.Gt(), "GreaterThan": ast.GtE(),
    "StrictLessThan": ast.Lt(), "LessThan": ast.LtE(), "Eq": ast.Eq(), "Ne": ast.NotEq(), "Gt": ast.Gt(),
    "Ge": ast.GtE(), "Lt": ast.Lt(), "Le": ast.LtE(),
}  # fmt: skip
_NAMES = {"true": True, "false": False}


class _ToInfix(ast.NodeTransformer):
    """Replaces constructor calls of symbols and numbers by these, and calls of operators by infix operators."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_NAMES[node.id]) if node.id in _NAMES else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        match name, node.args:
            case "Symbol", [ast.Constant(value=str(symbol)), *_] if symbol.isidentifier():
                return ast.Name(symbol)
            case (("Integer" | "Float"), [number, *_]):
                return ast.Constant(_number(name, ast.literal_eval(number)))
            case "Rational", [ast.Constant(value=int(above)), ast.Constant(value=int(below))]:
                return ast.BinOp(ast.Constant(above), ast.Div(), ast.Constant(below))
        arguments = [self.visit(a) for a in node.args]
        if name in _CHAINS and len(arguments) > 1:
            return functools.reduce(lambda a, b: ast.BinOp(a, _CHAINS[name], b), arguments)
        if name in _COMPARISONS and len(arguments) == 2:
            return ast.Compare(arguments[0], [_COMPARISONS[name]], [arguments[1]])
        return ast.Call(node.func, arguments, [])


def _number(kind: str, value: Any) -> int | float:
    return int(value) if kind == "Integer" else float(value)


# ---------------------------------------------------------------- to expressions


class _Unknown(Exception):
    """Raised for an undefined symbol."""


_INTEGER: dict[str, _Binary] = {
    "FloorDiv": c.floordiv, "CleanDiv": c.floordiv, "PythonMod": c.floormod, "Mod": c.floormod,
    "Max": c.maximum, "Min": c.minimum, "And": c.logical_and, "Or": c.logical_or,
}  # fmt: skip
_OPERATORS: dict[type, _Binary] = {ast.FloorDiv: c.floordiv, ast.Mod: c.floormod}
_COMPARE: dict[type, _Binary] = {
    ast.Eq: c.equal, ast.NotEq: c.not_equal, ast.Gt: c.greater, ast.GtE: c.greater_equal, ast.Lt: c.less,
    ast.LtE: c.less_equal,
}  # fmt: skip
_ROUNDED = {"TruncToInt": c.floordiv, "FloorToInt": c.floordiv, "floor": c.floordiv, "Trunc": c.floordiv}


def _expression(node: ast.expr, symbols: Mapping[str, tir.Expr]) -> Any:
    """Convert a syntax tree to an integer expression, a condition, or a ratio."""
    match node:
        case ast.Constant(value=bool(value)):
            return c.const(value, "bool")
        case ast.Constant(value=int(value)):
            return c.const(value, "int64")
        case ast.Constant(value=float(value)):
            return _ratio(Fraction(value))
        case ast.Name(id=name):
            if name not in symbols:
                raise _Unknown(name)
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _multiply(c.const(-1, "int64"), _expression(operand, symbols))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return c.logical_not(_expression(operand, symbols))
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _power(_expression(left, symbols), right)
        case ast.BinOp(left=left, op=operator, right=right):
            return _binary(operator, _expression(left, symbols), _expression(right, symbols))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _COMPARE[type(operator)](_expression(left, symbols), _expression(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=[first, *rest]):
            return _call(name, _expression(first, symbols), [_expression(r, symbols) for r in rest])
    raise ValueError(ast.dump(node))


def _binary(operator: ast.operator, a: Any, b: Any) -> Any:
    match operator:
        case ast.Add():
            return _add(a, b)
        case ast.Sub():
            return _add(a, _multiply(c.const(-1, "int64"), b))
        case ast.Mult():
            return _multiply(a, b)
        case ast.Div():
            return _divide(a, b)
    return _OPERATORS[type(operator)](a, b)


def _call(name: str, first: Any, rest: list[Any]) -> Any:
    if name in _INTEGER:
        return functools.reduce(_INTEGER[name], rest, first)
    if name in ("ToFloat", "Identity"):
        return first
    if name in ("IntTrueDiv", "FloatTrueDiv") and len(rest) == 1:
        return _divide(first, rest[0])
    if name == "Not":
        return c.logical_not(first)
    if name in _ROUNDED:  # extents are non-negative, so truncation equals floor
        return c.floordiv(first.number, c.const(first.divisor, "int64")) if isinstance(first, _Ratio) else first
    if name in ("CeilToInt", "ceiling") and isinstance(first, _Ratio):
        return c.floordiv(c.add(first.number, c.const(first.divisor - 1, "int64")), c.const(first.divisor, "int64"))
    if name == "ModularIndexing" and len(rest) == 2:
        return c.floormod(c.floordiv(first, rest[0]), rest[1])
    raise ValueError(name)


def _ratio(value: Fraction) -> Any:
    """Return a fraction as an expression. Raises ValueError if computing with it in float64 would not be exact."""
    if value.denominator > _MAX_DENOMINATOR or abs(value.numerator) > _MAX_DENOMINATOR:
        raise ValueError("inexact")
    number = c.const(value.numerator, "int64")
    return number if value.denominator == 1 else _Ratio(number, value.denominator)


def _exact_parts(value: Any) -> tuple[tir.Expr, int]:
    """Return numerator and divisor of an operand. Raises ValueError if the divisor is not a power of 2, so inexact."""
    number, divisor = value if isinstance(value, _Ratio) else (value, 1)
    if divisor & (divisor - 1):
        raise ValueError("inexact")
    return number, divisor


def _make_ratio(number: tir.Expr, divisor: int) -> Any:
    if divisor > _MAX_DENOMINATOR:
        raise ValueError("inexact")
    return number if divisor == 1 else _Ratio(number, divisor)


def _multiply(a: Any, b: Any) -> Any:
    (x, below), (y, beneath) = _exact_parts(a), _exact_parts(b)
    return _make_ratio(c.mul(x, y), below * beneath)


def _add(a: Any, b: Any) -> Any:
    (x, below), (y, beneath) = _exact_parts(a), _exact_parts(b)
    if below == beneath:
        return _make_ratio(c.add(x, y), below)
    above = c.add(c.mul(x, c.const(beneath, "int64")), c.mul(y, c.const(below, "int64")))
    return _make_ratio(above, below * beneath)


def _divide(a: Any, b: Any) -> Any:
    """Return a quotient as a ratio. Rounding an integer quotient to float64 does not change its floor."""
    divisor = tir.const_int(b) if isinstance(b, tir.Expr) else None
    if divisor is None or divisor < 1:
        raise ValueError("inexact")
    x, below = _exact_parts(a)
    return _make_ratio(x, below * divisor)


def _power(base: Any, exponent: ast.expr) -> Any:
    power = exponent.value if isinstance(exponent, ast.Constant) else None
    if not isinstance(power, int) or not 1 <= power <= 4:
        raise ValueError("exponent")
    return functools.reduce(_multiply, [base] * power)
