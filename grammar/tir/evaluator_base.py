"""The entries to the evaluation of expressions: the value of a node as an expression, a condition, a dtype, ...

New nodes get the span of their text, and so do diagnostics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.context import Scope, Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.evaluation_results import Scalar, describe, is_number, set_span
from mlcc.ir import construct, tir
from mlcc.ir.dtypes import NAMES, DType
from mlcc.ir.equal import structural_equal

Expr = tir.Expr
_BUILD_ERRORS = (ValueError, ArithmeticError, construct.TypeMismatch)


class EvaluatorBase:
    """Evaluates expressions in one scope; `operators` and `values` know the kinds of nodes."""

    def __init__(self, walk: Walk, scope: Scope) -> None:
        self.walk = walk
        self.scope = scope

    # ------------------------------------------------------------ entries

    def value(self, cst: tree.Expr) -> Any:
        """The value of any expression; see `values.evaluate`."""
        raise NotImplementedError

    def expr(self, cst: tree.Expr) -> Expr:
        """The value as an expression; Python numbers become constants."""
        return self.as_expr(self.value(cst), cst)

    def operand(self, cst: tree.Expr) -> Any:
        """Return an expression, or a Python number, which takes the dtype of the other operand."""
        value = self.value(cst)
        return value if is_number(value) else self.as_expr(value, cst)

    def as_expr(self, value: Any, cst: tree.Node) -> Expr:
        """`value` as an expression; fails if it is none."""
        if isinstance(value, Expr):
            return value
        if is_number(value):
            return self.build(cst, construct.const, value)  # type: ignore[no-any-return]
        if isinstance(value, Scalar):
            return self.build(cst, construct.load, value.buffer, 0)  # type: ignore[no-any-return]
        if isinstance(value, tir.IterVar):
            return value.var
        what = describe(value)
        help = "index it: `X[i, j]`" if isinstance(value, tir.Buffer) else None
        if isinstance(value, tuple):
            help = f"it has {len(value)} items: bind a name to each, as in `for i, j in T.grid(4, 4)`"
        return self.walk.fail("E0300", f"{what} is not a scalar expression", cst, help=help)

    def build(self, cst: tree.Node, fn: Callable[..., Any], *args: Any) -> Any:
        """Call `fn(*args)`; exceptions become diagnostics at `cst`, and the result gets the span of `cst`."""
        try:
            result = fn(*args)
        except _BUILD_ERRORS as bad:
            self.walk.fail("E0301", str(bad), cst)
        return set_span(result, self.walk.span(cst)) if isinstance(result, Expr) else result

    def bool(self, cst: tree.Expr) -> Expr:
        """A condition; an integer is compared with 0."""
        return self.as_condition(self.value(cst), cst)

    def integer(self, cst: tree.Expr, what: str) -> int:
        """A constant integer."""
        value = self.value(cst)
        if isinstance(value, tir.IntImm):
            value = value.value
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return self.walk.fail("E0302", f"{what} must be a constant integer", cst)

    def string(self, cst: tree.Expr, what: str) -> str:
        """A string."""
        value = self.value(cst)
        if isinstance(value, tir.StringImm):
            value = value.value
        if isinstance(value, str):
            return value
        return self.walk.fail("E0302", f"{what} must be a string", cst)

    def dtype(self, cst: tree.Expr) -> DType:
        """A dtype: `"float32"`, `T.float32`, or `T.handle().ty`."""
        value = self.value(cst)
        if isinstance(value, DType):
            return value
        if isinstance(value, str):
            return self.dtype_of(value or "void", cst)
        return self.walk.fail("E0302", 'a dtype must be a string such as `"float32"`', cst)

    def dtype_of(self, name: str, cst: tree.Expr) -> DType:
        """The dtype of that name; fails at `cst` if there is none."""
        try:
            return DType.of(name)
        except ValueError as bad:
            from mlcc.grammar.foreign import meant_dtype

            return self.walk.fail("E0312", str(bad), cst, help=did_you_mean(meant_dtype(name) or name, NAMES))

    def exprs(self, cst: tree.Expr, what: str) -> tuple[Expr, ...]:
        """A tuple or list of expressions; a single one stands for itself."""
        if isinstance(cst, tree.Display):
            return tuple(self.expr(item) for item in cst.items)
        value = self.value(cst)
        if isinstance(value, (tuple, list)):
            return tuple(self.as_expr(v, cst) for v in value)
        if value is None:
            self.walk.fail("E0302", f"{what} must be a list of expressions", cst)
        return (self.as_expr(value, cst),)

    def as_condition(self, value: Any, cst: tree.Node) -> Expr:
        """`value` as a condition; an integer is compared with 0."""
        condition = self.as_expr(value, cst)
        return condition if condition.dtype.is_bool else self.build(cst, construct.as_bool, condition)

    def extent(self, low: Expr, high: Expr, cst: tree.Node) -> Expr:
        """The extent of low, ..., high - 1: of `i:i + n` it is `n` as it stands, else the difference simplified."""
        if isinstance(low, tir.IntImm) and low.value == 0:
            return high
        if isinstance(high, tir.Add) and structural_equal(high.lhs, low):
            return high.rhs
        return self.simplify(self.build(cst, construct.sub, high, low))

    def simplify(self, value: Expr) -> Expr:
        """The value in simplest form, its place kept."""
        if isinstance(value, (tir.IntImm, tir.Var)):
            return value
        from mlcc.arith.analyzer import Analyzer

        simplified = Analyzer().simplify(value)
        return simplified if simplified.span is not None or value.span is None else set_span(simplified, value.span)
