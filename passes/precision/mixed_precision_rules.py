"""The analysis of `to-mixed-precision`: values that may be kept in half precision, since no use needs more."""

from __future__ import annotations

from typing import Any

from mlcc import ops
from mlcc.ir import relax, tir
from mlcc.ops.registry import Precision
from mlcc.relax.queries import is_tensor_or_tuple, used_vars

HALF, FULL = "float16", "float32"
Dtypes = Any  # a dtype's name for a tensor ("" where nothing is required), a tuple of these for a tuple


def policy(call: relax.Call) -> Precision | None:
    """Return the precision in which an operator computes; None for calls of functions."""
    if not isinstance(call.op, tir.Op):
        return None
    op = ops.get(call.op.name)
    return Precision.FULL if op is None or op.impl.infer is None else op.impl.precision


def precision(info: relax.StructInfo | None, override: str | None = None) -> Dtypes:
    """Return the dtype `override` for every tensor of a value, or each tensor's own."""
    match info:
        case relax.TensorStructInfo(dtype=dtype):
            return override if override is not None else str(dtype or "")
        case relax.TupleStructInfo(fields=fields):
            return tuple(precision(f, override) for f in fields)
    return ""


def requirements(func: relax.Function) -> dict[relax.Var, Dtypes]:
    """Return the dtypes that the uses of each variable require, in dataflow blocks and in results.

    A backward analysis: users are visited before the values that they use.
    """
    analysis = _Requirements()
    analysis.sequence(func.body)
    return analysis.needs


class _Requirements:
    def __init__(self) -> None:
        self.needs: dict[relax.Var, Dtypes] = {}

    def require(self, expr: Any, needed: Dtypes) -> None:
        if isinstance(expr, relax.Var):
            self.needs[expr] = _stricter(self.needs.get(expr, ""), needed)
        elif isinstance(expr, relax.Tuple):
            for part, need in zip(expr.fields, needed, strict=True):
                self.require(part, need)

    def sequence(self, seq: relax.SeqExpr) -> None:
        self.use(seq.body)
        for block in reversed(seq.blocks):
            if isinstance(block, relax.DataflowBlock):
                for binding in reversed(block.bindings):
                    self.binding(binding)

    def binding(self, binding: Any) -> None:
        match binding:
            case relax.VarBinding(var=var, value=relax.Tuple() as value):
                self.require(value, self.needs.get(var) or precision(value.struct_info, FULL))
            case relax.VarBinding(var=var, value=relax.TupleGetItem(tuple_value=source, index=index)):
                parts = list(precision(source.struct_info, FULL))  # nothing is known about the other fields
                if parts:
                    parts[index] = self.needs.get(var) or parts[index]
                    self.require(source, tuple(parts))
            case relax.VarBinding(value=relax.Call() as call) if policy(call) is not None:
                wanted = HALF if policy(call) is Precision.HALF else FULL
                for arg in call.args:
                    if is_tensor_or_tuple(arg.struct_info):
                        self.require(arg, precision(arg.struct_info, wanted))
            case _:
                self.use(binding.value)

    def use(self, expr: relax.Expr) -> None:
        """Record a use by anything but an operator, which needs a value in full precision."""
        for var in used_vars(expr):
            if is_tensor_or_tuple(var.struct_info):
                self.require(var, precision(var.struct_info, FULL))


def _stricter(a: Dtypes, b: Dtypes) -> Dtypes:
    if isinstance(a, tuple) or isinstance(b, tuple):
        a, b = a or ("",) * len(b), b or ("",) * len(a)
        return tuple(map(_stricter, a, b))
    return max(a, b)  # "" < "float16" < "float32"
