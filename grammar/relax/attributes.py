"""Attributes of relax functions: `R.func_attr({...})`, whose values may be arrays."""

from __future__ import annotations

from typing import Any

from mlcc.grammar.constants import array_with_dtype
from mlcc.grammar.metadata import metadata_key
from mlcc.grammar.printer.tvm import canonical_attributes
from mlcc.grammar.relax import expr as relax_expr
from mlcc.grammar.relax.scope import FunctionWalk
from mlcc.grammar.syntax import tree
from mlcc.grammar.tir import attribute_values
from mlcc.grammar.tir.evaluator import Evaluator


def function_attributes(fw: FunctionWalk, cst: tree.Call) -> dict[str, Any]:
    """The attributes that `R.func_attr` states, by their usual names; `R.data` and `R.const` stand for arrays."""
    if len(cst.args) != 1 or not isinstance(cst.args[0], tree.Dict) or cst.keywords:
        fw.walk.fail("E0407", "R.func_attr takes one dict", cst)
    return canonical_attributes(attribute_values.attributes(_Values(fw), cst.args[0], "attributes of a function"))


class _Values(Evaluator):
    """Evaluates the values of attributes."""

    def __init__(self, fw: FunctionWalk) -> None:
        super().__init__(fw.walk, fw.scalars)
        self._fw = fw

    def value(self, cst: tree.Expr) -> Any:
        """Evaluate a value; a constant gives its array, or a reference if its data are missing."""
        if not self._is_constant(cst):
            return super().value(cst)
        data = relax_expr.value(self._fw, cst).data
        return data if data.array is None else array_with_dtype(data.array, data.dtype)

    def _is_constant(self, cst: tree.Expr) -> bool:
        if isinstance(cst, tree.Call):
            return self.walk.dotted(cst.function, self.scope) in ("R.const", "R.data")
        key = metadata_key(cst) if isinstance(cst, tree.Index) else None
        return key is not None and key not in self.walk.strings
