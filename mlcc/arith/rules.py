"""Rewrite rules as data: equations over mathematical integers, with the conditions under which they hold.

In a rule `x`, `y`, `z` stand for any expression and `k`, `n` for constants; a letter that comes again stands for the
same. What is said of constants alone is computed; a rule whose constants do not fit the dtype does not apply. The
first rule that fits is taken. `tests/arith/test_rules.py` proves every rule by trying small integers.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr

Same = Callable[[Expr, Expr], bool]
_Matcher = Callable[[Expr, Expr, Same], Expr | None]
_WORD = re.compile(r"\w+")
_CONSTANTS = {"k", "n"}
_NODES: dict[type[ast.AST], type[Expr]] = {
    ast.Add: tir.Add, ast.Sub: tir.Sub, ast.Mult: tir.Mul, ast.FloorDiv: tir.FloorDiv,
}  # fmt: skip
_CALLS: dict[str, type[Expr]] = {"min": tir.Min, "max": tir.Max}
_MAKE: dict[type[ast.AST] | str, str] = {
    ast.Add: "c.add", ast.Sub: "c.sub", ast.Mult: "c.mul", ast.FloorDiv: "c.floordiv", ast.Lt: "c.less",
    ast.Eq: "c.equal", ast.And: "c.logical_and", ast.Or: "c.logical_or", "min": "c.minimum", "max": "c.maximum",
}  # fmt: skip


class Rule(NamedTuple):
    """`pattern` is `result` where `condition`, of constants, holds."""

    pattern: str
    result: str
    condition: str = "True"

    def dual(self) -> Rule:
        """Return the rule with min and max exchanged."""
        swap = {"min": "max", "max": "min"}
        return Rule(*(_WORD.sub(lambda word: swap.get(word[0], word[0]), part) for part in self))


class Rules:
    """Rules of one operator, indexed by the classes of the operands and compiled on first use."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules
        self._by_class: dict[tuple[type, type], list[_Matcher]] = {}

    def apply(self, a: Expr, b: Expr, same: Same) -> Expr | None:
        """Return the result of the first rule that matches the operator's two operands; None if none does."""
        classes = (type(a), type(b))
        matchers = self._by_class.get(classes)
        if matchers is None:
            matchers = self._by_class[classes] = [_compile(rule) for rule in self.rules if _can_match(rule, *classes)]
        for matcher in matchers:
            result = matcher(a, b, same)
            if result is not None:
                return result
        return None


# ---------------------------------------------------------------- from texts to functions


class _Compiler:
    """Compiles one rule to a function of its operands: tests of the pattern line by line, then the result."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: set[str] = set()

    def test(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return None")

    def match(self, pattern: ast.expr, place: str) -> None:
        """Emit tests that match the node at `place`, and names for its parts."""
        if isinstance(pattern, ast.Name) and pattern.id in _CONSTANTS:
            self.test(f"type({place}) is IntImm")
            self.bind(pattern.id, f"{place}.value", f"{place}.value == {pattern.id}")
        elif isinstance(pattern, ast.Name):
            self.bind(pattern.id, place, f"same({pattern.id}, {place})")
        else:
            one, two = operands(pattern)
            self.test(f"type({place}) is {_class_of(pattern).__name__}")  # type: ignore[union-attr]
            self.match(one, f"{place}.lhs")
            self.match(two, f"{place}.rhs")

    def bind(self, name: str, value: str, again: str) -> None:
        if name in self.known:
            self.test(again)
        else:
            self.known.add(name)
            self.lines.append(f"{name} = {value}")

    def build(self, result: ast.expr) -> str:
        """Return the text of an expression that builds the result; emit code that computes and checks constants."""
        if isinstance(result, ast.Constant) and isinstance(result.value, bool):
            return f"c.const({result.value})"
        if not {n.id for n in ast.walk(result) if isinstance(n, ast.Name)} - _CONSTANTS:
            name = f"c{len(self.lines)}"
            self.lines.append(f"{name} = {ast.unparse(result)}")
            self.test(f"lowest <= {name} <= highest")
            return f"IntImm(dtype, {name})"
        if isinstance(result, ast.Name):
            return result.id
        key = result.func.id if isinstance(result, ast.Call) else type(operator(result))  # type: ignore[attr-defined]
        one, two = operands(result)
        return f"{_MAKE[key]}({self.build(one)}, {self.build(two)})"


def operator(node: ast.expr) -> ast.AST:
    """Return the operator of an infix expression of a rule."""
    return node.ops[0] if isinstance(node, ast.Compare) else node.op  # type: ignore[attr-defined]


def operands(node: ast.expr) -> tuple[ast.expr, ast.expr]:
    """Return the two operands of an operator, or of min and max, in a rule."""
    match node:
        case ast.Compare(left=one, comparators=[two]) | ast.BinOp(left=one, right=two):
            return one, two
        case ast.BoolOp(values=[one, two]) | ast.Call(args=[one, two]):
            return one, two
    raise ValueError(ast.unparse(node))


def _class_of(pattern: ast.expr) -> type[Expr] | None:
    """Return the class of nodes that a pattern matches; None for any."""
    if isinstance(pattern, ast.Name):
        return tir.IntImm if pattern.id in _CONSTANTS else None
    if isinstance(pattern, ast.Call):
        return _CALLS[pattern.func.id]  # type: ignore[attr-defined]
    return _NODES[type(operator(pattern))]


def _can_match(rule: Rule, first: type, second: type) -> bool:
    """Return True if the rule can match operands of these classes."""
    one, two = (_class_of(part) for part in operands(ast.parse(rule.pattern, mode="eval").body))
    return one in (None, first) and two in (None, second)


@functools.cache
def _limits(dtype: DType) -> tuple[int, int]:
    """Return the least and the greatest value of an integer dtype."""
    values = 1 << dtype.bits
    return (-values // 2, values // 2 - 1) if dtype.kind == "int" else (0, values - 1)


@functools.cache
def _compile(rule: Rule) -> _Matcher:
    """Return a function that tries a rule on two operands."""
    one, two = operands(ast.parse(rule.pattern, mode="eval").body)
    writer = _Compiler()
    writer.match(one, "a")
    writer.match(two, "b")
    if rule.condition != "True":
        writer.test(rule.condition)
    writer.lines += ["dtype = a.dtype", "lowest, highest = limits(dtype)"]
    result = writer.build(ast.parse(rule.result, mode="eval").body)
    body = "".join(f"    {line}\n" for line in [*writer.lines, f"return {result}"])
    scope: dict[str, Any] = {"c": c, "IntImm": tir.IntImm, "limits": _limits}
    scope |= {cls.__name__: cls for cls in (*_NODES.values(), *_CALLS.values())}
    exec(f"def attempt(a, b, same):\n{body}", scope)
    attempt: _Matcher = scope["attempt"]
    return attempt


# ---------------------------------------------------------------- the rules

LESS = Rules(
    Rule("k - x < n", "k - n < x"),
    Rule("n < k - x", "x < k - n"),
    Rule("x * k < n", "x < (n - 1) // k + 1", "k > 0"),
    Rule("n < x * k", "n // k < x", "k > 0"),
    Rule("x * k < n", "-n // -k < x", "k < 0"),
    Rule("n < x * k", "x < (-n - 1) // -k + 1", "k < 0"),
    Rule("x // k < n", "x < n * k", "k > 0"),
    Rule("n < x // k", "(n + 1) * k - 1 < x", "k > 0"),
    Rule("x * k < y * k", "x < y", "k > 0"),
    Rule("x * k < y * k", "y < x", "k < 0"),
    Rule("min(x, y) < z", "x < z or y < z"),
    Rule("max(x, y) < z", "x < z and y < z"),
    Rule("z < min(x, y)", "z < x and z < y"),
    Rule("z < max(x, y)", "z < x or z < y"),
    Rule("x + y < x", "y < 0"),
    Rule("y + x < x", "y < 0"),
    Rule("x < x + y", "0 < y"),
    Rule("x < y + x", "0 < y"),
    Rule("x + y < x + z", "y < z"),
    Rule("y + x < x + z", "y < z"),
    Rule("x + y < z + x", "y < z"),
    Rule("y + x < z + x", "y < z"),
)

EQUAL = Rules(
    Rule("x + k == n", "x == n - k"),
    Rule("x - k == n", "x == n + k"),
    Rule("k - x == n", "x == k - n"),
    Rule("x * k == n", "x == n // k", "k != 0 and n % k == 0"),
    Rule("x * k == n", "False", "k != 0 and n % k != 0"),
)

_MIN = (  # monotone maps move out
    Rule("min(x + k, n)", "min(x, n - k) + k"),
    Rule("min(k - x, n)", "k - max(x, k - n)"),
    Rule("min(x * k, n)", "min(x, n // k) * k", "k > 0 and n % k == 0"),
    Rule("min(x * k, n)", "max(x, n // k) * k", "k < 0 and n % k == 0"),
    Rule("min(x * k, y * k)", "min(x, y) * k", "k > 0"),
    Rule("min(x * k, y * k)", "max(x, y) * k", "k < 0"),
    Rule("min(x // k, y // k)", "min(x, y) // k", "k > 0"),
    Rule("min(x // k, y // k)", "max(x, y) // k", "k < 0"),
    Rule("min(x + y, x + z)", "min(y, z) + x"),
    Rule("min(y + x, x + z)", "min(y, z) + x"),
    Rule("min(x + y, z + x)", "min(y, z) + x"),
    Rule("min(y + x, z + x)", "min(y, z) + x"),
    Rule("min(x - y, z - y)", "min(x, z) - y"),
    Rule("min(x - y, x - z)", "x - max(y, z)"),
)
MIN = Rules(*_MIN)
MAX = Rules(*(rule.dual() for rule in _MIN))
