"""The evaluator of scalar expressions: syntax node -> Python value or TensorIR expression."""

from __future__ import annotations

from typing import Any

from mlcc.errors import did_you_mean
from mlcc.grammar.context import Scope, Walk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import calls as tir_calls
from mlcc.grammar.tir import methods as tir_methods
from mlcc.grammar.tir.call_arguments import argument
from mlcc.grammar.tir.evaluation_results import Scalar, describe, is_number, set_span
from mlcc.grammar.tir.functions import BUILTINS
from mlcc.grammar.tir.operators import OperatorEvaluator
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import VOID

__all__ = ["Evaluator", "Scalar", "describe", "evaluate", "is_number", "set_span"]


def evaluate(walk: Walk, scope: Scope, cst: tree.Expr) -> Any:
    """The value of an expression.

    Literals give bool, int, float, str, None, Ellipsis; displays give tuple, list and dict; names give what the scope
    holds; `T.float32` gives a `DType`; everything symbolic gives `tir.Expr`. What is wrong is noted and raises Skip.
    """
    return Evaluator(walk, scope).value(cst)


class Evaluator(OperatorEvaluator):
    """Evaluates all expressions in one scope."""

    def attribute(self, cst: tree.Attribute) -> Any:
        """`T.float32`, `cls.f`, `A.data`."""
        path = self.walk.dotted(cst, self.scope)
        if path is not None:
            return tir_calls.constant(self, path, cst)
        if self.is_self(cst.base):
            return self.function(cst, cst.name)
        return tir_methods.attribute(self, self.value(cst.base), cst.name, cst)

    def is_self(self, cst: tree.Expr) -> bool:
        """Return True if an expression is a name of the module itself (not shadowed)."""
        return isinstance(cst, tree.Name) and cst.id in self.walk.self_names and self.scope.find(cst.id) is None

    def function(self, cst: tree.Expr, name: str) -> relax.GlobalVar:
        """The handle of a function of the module."""
        handle = self.walk.functions.get(name)
        if handle is None:
            hint = did_you_mean(name, self.walk.functions)
            self.walk.fail("E0204", f"the module has no function `{name}`", cst, help=hint)
        return handle

    def call(self, cst: tree.Call) -> Any:
        """A call of a function of the language, a method, or a function of the module."""
        target = cst.function
        path = self.walk.dotted(target, self.scope)
        if path is not None:
            return tir_calls.call(self, path, cst)
        if isinstance(target, tree.Attribute) and not self.is_self(target.base):
            return tir_methods.call(self, self.value(target.base), target.name, cst)
        if isinstance(target, tree.Name) and target.id in BUILTINS and self.scope.find(target.id) is None:
            return BUILTINS[target.id](self, cst)
        callee = self.value(target)
        if isinstance(callee, relax.GlobalVar):
            return self.call_function(callee, cst)
        return self.walk.fail("E0300", f"{describe(callee)} cannot be called", target)

    def call_function(self, callee: relax.GlobalVar, cst: tree.Call) -> tir.Expr:
        """A call of another PrimFunc of the module; buffers are passed by their pointers."""
        if cst.keywords:
            self.walk.fail("E0304", "functions of the module take positional arguments only", cst.keywords[0])
        args = tuple(argument(self, a) for a in cst.args)
        dtype = self.walk.return_dtypes.get(callee.name, VOID)
        return set_span(tir.Call(dtype, callee, args), self.walk.span(cst))  # type: ignore[no-any-return]
