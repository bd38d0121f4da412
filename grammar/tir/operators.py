"""Evaluation of expressions without calls: literals, names, operators.

Operators on Python numbers are Python's, on expressions TVM's: they bring operands to one dtype and fold constants.
Every node that is made gets the place of its text.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from mlcc.grammar.context import UNKNOWN, Skip
from mlcc.grammar.metadata import metadata_key
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import indexing
from mlcc.grammar.tir.evaluation_results import Scalar, describe, is_number, set_span
from mlcc.grammar.tir.evaluator_base import EvaluatorBase
from mlcc.ir import calls, construct, tir

Expr = tir.Expr

_BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Expr]]] = {
    "+": (operator.add, construct.add), "-": (operator.sub, construct.sub), "*": (operator.mul, construct.mul),
    "/": (operator.truediv, construct.div), "//": (operator.floordiv, calls.floordiv),
    "%": (operator.mod, calls.floormod), "<<": (operator.lshift, calls.shift_left),
    ">>": (operator.rshift, calls.shift_right), "&": (operator.and_, calls.bitwise_and),
    "|": (operator.or_, calls.bitwise_or), "^": (operator.xor, calls.bitwise_xor),
    "==": (operator.eq, construct.equal), "!=": (operator.ne, construct.not_equal), "<": (operator.lt, construct.less),
    "<=": (operator.le, construct.less_equal), ">": (operator.gt, construct.greater),
    ">=": (operator.ge, construct.greater_equal),
}  # fmt: skip
_PYTHON_BITS = 128  # integers that the text computes with before they become constants


class OperatorEvaluator(EvaluatorBase):
    """Evaluates in one scope; `values.Evaluator` adds names with dots and calls."""

    def value(self, cst: tree.Expr) -> Any:
        return _VALUE[type(cst)](self, cst)

    # ------------------------------------------------------------ nodes without structure

    def _literal(self, cst: tree.Literal) -> Any:
        return cst.value

    def _name(self, cst: tree.Name) -> Any:
        binding = self.scope.find(cst.id)
        if binding is not None:
            if binding.value is UNKNOWN:
                raise Skip
            return binding.value
        if cst.id in self.walk.functions:
            return self.walk.functions[cst.id]
        if cst.id in self.walk.modules:
            return self.walk.fail("E0300", f"`{cst.id}` is not a value", cst)
        return self.walk.unknown_name(cst, cst.id, self.scope)

    def _slice(self, cst: tree.Slice) -> Any:
        return self.walk.fail("E0302", "a slice `a:b` is allowed only in the indices of a buffer", cst)

    def _tuple(self, cst: tree.Tuple) -> Any:
        return tuple(self._items(cst))

    def _list(self, cst: tree.List) -> Any:
        return list(self._items(cst))

    def _items(self, cst: tree.Display) -> list[Any]:
        items: list[Any] = []
        for item in cst.items:
            if isinstance(item, tree.Star):
                value = self.value(item.value)
                if not isinstance(value, (tuple, list)):
                    self.walk.fail("E0300", "only a tuple or list can be starred", item)
                items.extend(value)
            else:
                items.append(self.value(item))
        return items

    def _dict(self, cst: tree.Dict) -> Any:
        entries = {}
        for key, value in cst.entries:
            name = self.value(key)
            if not isinstance(name, (str, int, tir.Var)):
                self.walk.fail("E0302", "keys must be strings", key)
            entries[name] = self.value(value)
        return entries

    def _lambda(self, cst: tree.Lambda) -> Any:
        return self.walk.fail("E0300", "a lambda is not allowed here", cst)

    def _star(self, cst: tree.Star) -> Any:
        return self.walk.fail("E0300", "a starred expression is not allowed here", cst)

    # ------------------------------------------------------------ operators

    def _binary(self, cst: tree.Binary) -> Any:
        op, left, right = cst.op, self.value(cst.left), self.value(cst.right)
        if is_number(left) and is_number(right):
            return self._python(cst, op, left, right)
        known = _BINARY.get(op)
        if known is None:
            help = "write `T.pow(x, y)`" if op == "**" else None
            self.walk.fail("E0300", f"`{op}` is not an operator of expressions", cst, help=help)
        a = left if is_number(left) else self.as_expr(left, cst.left)
        b = right if is_number(right) else self.as_expr(right, cst.right)
        if op == "/" and not (_is_float(a) or _is_float(b)):
            help = "`//` rounds down, `T.truncdiv` toward zero"
            self.walk.fail("E0301", "`/` of integers is ambiguous: it does not say how to round", cst, help=help)
        return self.build(cst, known[1], a, b)

    def _python(self, cst: tree.Expr, op: str, left: Any, right: Any) -> Any:
        if op == "**":
            if isinstance(right, int) and abs(right) > _PYTHON_BITS:
                self.walk.fail("E0301", "the exponent is too large", cst)
            fn: Callable[[Any, Any], Any] = operator.pow
        else:
            fn = _BINARY[op][0]
        if op == "<<" and not 0 <= right <= _PYTHON_BITS:
            self.walk.fail("E0301", f"cannot shift by {right}", cst)
        try:
            result = fn(left, right)
        except (ArithmeticError, TypeError, ValueError) as bad:
            return self.walk.fail("E0301", str(bad), cst)
        if isinstance(result, complex) or (isinstance(result, int) and result.bit_length() > _PYTHON_BITS):
            return self.walk.fail("E0301", "the result does not fit any dtype", cst)
        return result

    def _compare(self, cst: tree.Compare) -> Any:
        op = cst.op
        if op in _BINARY:
            left, right = self.value(cst.left), self.value(cst.right)
            symbolic = (Expr, Scalar, tir.IterVar)
            plain = not isinstance(left, symbolic) and not isinstance(right, symbolic)
            if plain and (op in ("==", "!=") or (is_number(left) and is_number(right))):
                return _BINARY[op][0](left, right)
            a = left if is_number(left) else self.as_expr(left, cst.left)
            b = right if is_number(right) else self.as_expr(right, cst.right)
            return self.build(cst, _BINARY[op][1], a, b)
        left, right = self.value(cst.left), self.value(cst.right)
        if op in ("is", "is not") and (left is None or right is None):
            return (left is right) == (op == "is")
        return self.walk.fail("E0300", f"`{op}` is not an operator of expressions", cst)

    def _bool(self, cst: tree.Bool) -> Any:
        left, right = self.value(cst.left), self.value(cst.right)
        if isinstance(left, bool) and isinstance(right, bool):
            return (left and right) if cst.op == "and" else (left or right)
        a, b = self.as_condition(left, cst.left), self.as_condition(right, cst.right)
        if a.dtype is not b.dtype:
            a, b = self.build(cst, construct.match_types, a, b)
        return set_span((tir.And if cst.op == "and" else tir.Or)(a.dtype, a, b), self.walk.span(cst))

    def _unary(self, cst: tree.Unary) -> Any:
        op, value = cst.op, self.value(cst.operand)
        if is_number(value):
            if op == "not":
                return not value
            if op == "~" and isinstance(value, float):
                self.walk.fail("E0301", "`~` is for integers", cst)
            return -value if op == "-" else ~value if op == "~" else value
        operand = self.as_expr(value, cst.operand)
        if op == "not":
            operand = self.as_condition(operand, cst.operand)
            return set_span(tir.Not(operand.dtype, operand), self.walk.span(cst))
        if op == "-":
            return self.build(cst, calls.negate, operand)
        return self.build(cst, calls.bitwise_not, operand) if op == "~" else operand

    def _choose(self, cst: tree.IfExp) -> Any:
        condition = self.value(cst.condition)
        if isinstance(condition, bool):
            return self.value(cst.then if condition else cst.other)
        test = self.as_condition(condition, cst.condition)
        return self.build(cst, calls.if_then_else, test, self.operand(cst.then), self.operand(cst.other))

    # ------------------------------------------------------------ elements

    def _index(self, cst: tree.Index) -> Any:
        if isinstance(cst.base, tree.Index) and self.walk.strings:
            text = self.walk.strings.get(metadata_key(cst) or "")
            if text is not None:
                return text
        base = self.value(cst.base)
        if isinstance(base, tir.Buffer):
            return self.load(base, cst)
        if isinstance(base, Scalar):
            return self.load(base.buffer, cst)
        if isinstance(base, (tuple, list)) and len(cst.items) == 1 and not isinstance(cst.items[0], tree.Slice):
            at = self.integer(cst.items[0], "an index into a tuple")
            if not -len(base) <= at < len(base):
                self.walk.fail("E0302", f"index {at} is outside a tuple of {len(base)}", cst.items[0])
            return base[at]
        return self.walk.fail("E0300", f"{describe(base)} has no elements", cst.base)

    def load(self, buffer: tir.Buffer, cst: tree.Index) -> Expr:
        """`buffer[indices]`."""
        return self.build(cst, construct.load, buffer, *self.indices(buffer, cst))  # type: ignore[no-any-return]

    def indices(self, buffer: tir.Buffer, cst: tree.Index) -> list[Expr]:
        """The indices of an access to an element; a slice in the last place means a vector."""
        return indexing.indices(self, buffer, cst)

    def region(self, cst: tree.Expr) -> tir.BufferRegion:
        """`A[i, 0:4]`, or a whole buffer `A`, as a region; dimensions left out are whole."""
        return indexing.region(self, cst)


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, Expr) and value.dtype.is_float)


_VALUE: dict[type[tree.Expr], Callable[[Any, Any], Any]] = {
    tree.Int: OperatorEvaluator._literal, tree.Float: OperatorEvaluator._literal, tree.Str: OperatorEvaluator._literal,
    tree.Const: OperatorEvaluator._literal, tree.Name: OperatorEvaluator._name, tree.Tuple: OperatorEvaluator._tuple,
    tree.List: OperatorEvaluator._list, tree.Dict: OperatorEvaluator._dict, tree.Binary: OperatorEvaluator._binary,
    tree.Compare: OperatorEvaluator._compare, tree.Bool: OperatorEvaluator._bool, tree.Unary: OperatorEvaluator._unary,
    tree.IfExp: OperatorEvaluator._choose, tree.Lambda: OperatorEvaluator._lambda, tree.Star: OperatorEvaluator._star,
    tree.Index: OperatorEvaluator._index, tree.Slice: OperatorEvaluator._slice,
    tree.Attribute: lambda self, cst: self.attribute(cst), tree.Call: lambda self, cst: self.call(cst),
}  # fmt: skip
