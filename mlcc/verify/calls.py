"""Rules of intrinsic calls and of calls between TensorIR functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.errors import did_you_mean
from mlcc.ir import relax, tir
from mlcc.ir.tir import Expr
from mlcc.verify.expressions import RuleViolation


def call_error(call: tir.Call, functions: Mapping[str, Any]) -> RuleViolation | None:
    """Return the error of a call, without looking into its arguments, or None."""
    for argument in call.args:
        if not isinstance(argument, Expr):
            return "E0349", f"`{type(argument).__name__}` cannot be the argument of a call"
    if isinstance(call.op, relax.GlobalVar):
        return _function(call, functions)
    if not isinstance(call.op, tir.Op):
        return "E0349", f"`{type(call.op).__name__}` cannot be called"
    name = call.op.name.removeprefix("tir.")
    return _choice(call) if name == "if_then_else" else _intrinsic(call, name)


def _function(call: tir.Call, functions: Mapping[str, Any]) -> RuleViolation | None:
    func = functions.get(call.op.name)
    if func is None:
        return None  # missing functions are reported when building
    if not isinstance(func, tir.PrimFunc):
        return "E0354", f"`{call.op.name}` is a graph-level function; TensorIR cannot call it"
    if len(func.params) != len(call.args):
        return "E0354", f"`{call.op.name}` takes {len(func.params)} arguments, but {len(call.args)} were given"
    return _launch(call, func) if func.attrs.get("tir.is_global_func") else None


def _launch(call: tir.Call, kernel: tir.PrimFunc) -> RuleViolation | None:
    """Return the error of a launch's arguments, or None. Arguments are copied bitwise: their dtypes must match."""
    for number, (arg, param) in enumerate(zip(call.args, kernel.params, strict=True)):
        if arg.dtype is not param.dtype:
            message = f"argument {number} of the kernel `{call.op.name}` is {arg.dtype}"
            return "E0354", f"{message}, its parameter `{param.name}` {param.dtype}"
    return None


def _choice(call: tir.Call) -> RuleViolation | None:
    if len(call.args) != 3:
        return "E0345", f"`if_then_else` takes 3 arguments, but {len(call.args)} were given"
    condition, yes, no = call.args
    if not condition.dtype.is_bool or condition.dtype.lanes not in (1, call.dtype.lanes):
        return "E0342", f"the condition of `if_then_else` must be bool, not {condition.dtype}"
    if yes.dtype is not no.dtype or yes.dtype is not call.dtype:
        return "E0337", f"the sides of `if_then_else` are {yes.dtype} and {no.dtype}"
    return None


def _intrinsic(call: tir.Call, name: str) -> RuleViolation | None:
    from mlcc.ir import intrinsics

    intrinsic = intrinsics.find(name)
    if intrinsic is None:
        return None  # an operator that only its target knows
    if not intrinsic.takes(len(call.args)):
        return "E0345", f"`{name}` takes {intrinsic.arity} arguments, but {len(call.args)} were given"
    if (intrinsic.extern or intrinsic.packed) and not isinstance(call.args[0], tir.StringImm):
        return "E0345", f"the first argument of `{name}` must be the name of the function it calls"
    want = intrinsics.result_dtype(intrinsic, call.args)
    if intrinsic.operands in ("float", "integer", "match") and want is not None and want is not call.dtype:
        return "E0337", f"`{name}` of {call.args[0].dtype} gives {want}, not {call.dtype}"
    if intrinsic.operands == "match" and any(a.dtype is not call.args[0].dtype for a in call.args):
        dtypes = " and ".join(str(a.dtype) for a in call.args)
        return "E0337", f"the operands of `{name}` are {dtypes}"
    return None


def unknown_callee(name: str, known: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return message and help for a function that is missing in the module."""
    return f"the module has no function `{name}`", did_you_mean(name, known)
