"""The shared evaluator of scalar expressions: syntax node -> Python value or TensorIR expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mlcc.grammar.context import Scope, Walk
from mlcc.grammar.tree import Cst
from mlcc.ir import construct, tir

_BINARY: dict[str, Callable[[Any, Any], tir.Expr]] = {
    "+": construct.add, "-": construct.sub, "*": construct.mul, "/": construct.div, "//": construct.floordiv,
    "%": construct.floormod, "==": construct.equal, "!=": construct.not_equal, "<": construct.less,
    "<=": construct.less_equal, ">": construct.greater, ">=": construct.greater_equal,
    "and": construct.logical_and, "or": construct.logical_or,
}  # fmt: skip


def evaluate(walk: Walk, scope: Scope, cst: Cst) -> Any:
    """The value of an expression.

    Literals give bool, int, float, str, None, Ellipsis; displays give tuple, list and dict; names give what the scope
    holds; everything symbolic gives `tir.Expr`. Operators fold as TVM's do. What is wrong is noted and raises Skip.
    """
    kind = cst[0]
    if kind in ("int", "float", "str", "const"):
        return cst[3]
    if kind == "name":
        found = scope.find(cst[3])
        if found is None:
            walk.unknown_name(cst, cst[3], scope)
        return found.value
    if kind == "tuple":
        return tuple(evaluate(walk, scope, x) for x in cst[3])
    if kind == "list":
        return [evaluate(walk, scope, x) for x in cst[3]]
    if kind == "dict":
        return {evaluate(walk, scope, k): evaluate(walk, scope, v) for k, v in cst[3]}
    return walk.fail("E0300", "this expression cannot stand here", cst)
