"""Rules of graph-level calls: side effects, and compatibility of arguments and results with the callee."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.errors import Label
from mlcc.ir import relax, tir
from mlcc.ir.effects import written_parameters
from mlcc.verify.report import Report
from mlcc.verify.struct_info import Bound, Functions, buffer_info, mismatch

_TIR_CALLS = ("relax.call_tir", "relax.call_tir_with_grad", "relax.call_tir_inplace")


def impurity_reason(call: relax.Call, functions: Functions) -> str | None:
    """Return why a call is impure, as the start of a message, or None for a pure call."""
    op = call.op
    if isinstance(op, tir.Op):
        from mlcc.ops.registry import get

        known = get(op.name)
        if known is None or known.pure:
            return None
        return f"`R.{known.short}` has a side effect: it is not allowed"
    if isinstance(op, relax.ExternFunc):
        return f"calling the packed function `{op.name}` may have side effects: it is not allowed"
    if isinstance(op, relax.GlobalVar):
        func = functions.get(op.name)
        if isinstance(func, relax.Function) and not func.is_pure:
            return f"`{op.name}` is declared with side effects: it cannot be called"
        return None
    info = op.struct_info if isinstance(op, relax.Expr) else None
    if isinstance(info, relax.FuncStructInfo) and not info.purity:
        return "this function may have side effects: it cannot be called"
    return None


def check_call(call: relax.Call, functions: Functions, report: Report) -> None:
    """Report arguments and results that contradict the callee's signature."""
    op = call.op
    if isinstance(op, relax.GlobalVar):
        func = functions.get(op.name)
        if isinstance(func, relax.Function):
            infos = [p.struct_info for p in func.params]
            names = [p.name for p in func.params]
            _arguments(call, op.name, call.args, infos, names, {}, report)
        return
    if isinstance(op, tir.Op):
        if op.name in _TIR_CALLS:
            _call_tir(call, functions, report)
        elif op.name == "relax.call_dps_packed" and len(call.args) > 1:
            callee = getattr(call.args[0], "name", "")
            func = functions.get(callee)
            passed = _argument_infos(call.args[1])
            if isinstance(func, tir.PrimFunc) and passed is not None:
                _check_inputs_unmodified(call, callee, func, len(passed), report)
        return
    info = op.struct_info if isinstance(op, relax.Expr) else None
    if isinstance(info, relax.FuncStructInfo) and info.params is not None and not isinstance(op, relax.ExternFunc):
        _arguments(call, getattr(op, "name", "the function"), call.args, list(info.params), [], {}, report)


def _arguments(
    call: relax.Call, name: str, args: Sequence[relax.Expr], infos: Sequence[relax.StructInfo | None],
    names: Sequence[str], bound: Bound, report: Report,
) -> None:  # fmt: skip
    if len(args) != len(infos):
        report.add("E0486", f"`{name}` takes {len(infos)} arguments, but {len(args)} are given", call)
        return
    for at, (argument, want) in enumerate(zip(args, infos, strict=True)):
        have = argument.struct_info
        why = mismatch(want, have, bound) if want is not None and have is not None else None
        if why is not None:
            parameter = f"parameter `{names[at]}`" if at < len(names) else f"parameter {at}"
            message = f"argument {at} of `{name}` does not fit {parameter}: {why}"
            report.add("E0487", message, diagnostic_node(argument, call))


def _call_tir(call: relax.Call, functions: Functions, report: Report) -> None:
    if len(call.args) < 2:
        report.add("E0494", "call_tir takes a function and its arguments", call)
        return
    callee = call.args[0]
    if not isinstance(callee, relax.GlobalVar):
        report.add("E0494", "call_tir calls a TensorIR function of the module", call)
        return
    func = functions.get(callee.name)
    if func is None:
        return  # missing functions are reported when building
    if not isinstance(func, tir.PrimFunc):
        report.add("E0488", f"`{callee.name}` is not a TensorIR function", call)
        return
    passed = _argument_infos(call.args[1])
    if passed is None:
        return
    results = [i for info in call.sinfo_args for i in _flatten_info(info)]
    in_place = call.attrs.get("inplace_indices")
    if in_place is not None:
        results = [r for r, at in zip(results, in_place, strict=False) if at < 0]
    extra = call.args[2] if len(call.args) > 2 else None
    scalars = len(extra.values) if isinstance(extra, relax.ShapeExpr) else 0
    count = len(passed) + len(results) + scalars
    if count != len(func.params):
        parts = f"{len(passed)} arguments, {len(results)} results" + (f", {scalars} sizes" if scalars else "")
        place = (Label(func.span, f"`{callee.name}` is defined here"),) if func.span is not None else ()
        message = f"`{callee.name}` has {len(func.params)} parameters, but the call has {parts}"
        report.add("E0486", message, call, related=place)
        return
    _check_inputs_unmodified(call, callee.name, func, len(passed), report)
    bound: Bound = {}
    slots = list(zip(func.params, func.buffers, strict=False))
    for at, ((param, buffer), have) in enumerate(zip(slots, [*passed, *results], strict=False)):
        if have is None:
            continue
        is_result = at >= len(passed)
        want = buffer_info(buffer) if buffer is not None else _scalar_info(param)
        why = mismatch(want, have, bound) if want is not None else None
        if why is None:
            continue
        if is_result:
            report.add(
                "E0488", f"result {at - len(passed)} does not fit `{param.name}` of `{callee.name}`: {why}", call
            )
        else:
            argument = call.args[1].fields[at] if isinstance(call.args[1], relax.Tuple) else call
            message = f"argument {at} does not fit `{param.name}` of `{callee.name}`: {why}"
            report.add("E0487", message, diagnostic_node(argument, call))


def _check_inputs_unmodified(call: relax.Call, name: str, func: tir.PrimFunc, count: int, report: Report) -> None:
    """Report arguments that the function writes: values of the graph are immutable, and other users may read them."""
    in_place = call.attrs.get("inplace_indices") or ()
    for at in written_parameters(func):
        if at < count and at not in in_place:
            place = (Label(func.span, f"`{name}` is defined here"),) if func.span is not None else ()
            message = f"`{name}` writes its parameter `{func.params[at].name}`, for which the call passes argument {at}"
            help = f"make it a result, or use `R.call_tir_inplace(..., inplace_indices=[{at}])`"
            report.add("E0497", message, call, related=place, help=help)


def _scalar_info(param: tir.Var) -> relax.StructInfo | None:
    return None if param.dtype.is_handle else relax.PrimStructInfo(param.dtype)


def _argument_infos(args: relax.Expr) -> list[relax.StructInfo | None] | None:
    """Return the struct infos of the arguments, or None if their number is unknown."""
    if isinstance(args, relax.Tuple):
        return [f.struct_info for f in args.fields]
    info = args.struct_info
    if isinstance(info, relax.TupleStructInfo):
        return list(info.fields)
    return None if info is None or isinstance(info, relax.ObjectStructInfo) else [info]


def _flatten_info(info: relax.StructInfo) -> list[relax.StructInfo]:
    if isinstance(info, relax.TupleStructInfo):
        return [i for f in info.fields for i in _flatten_info(f)]
    return [info]


def missing_functions(root: Any, functions: Functions, report: Report) -> None:
    """Report calls of functions that the module does not have."""
    from mlcc.ir.node import walk
    from mlcc.verify.calls import unknown_callee

    reported: set[str] = set()
    for node in walk(root):
        callee = node
        if isinstance(node, tir.Call) and isinstance(node.op, relax.GlobalVar):
            callee = node.op
        if isinstance(callee, relax.GlobalVar) and callee.name not in functions and callee.name not in reported:
            reported.add(callee.name)
            message, help = unknown_callee(callee.name, functions)
            report.add("E0485", message, callee if callee.span is not None else node, "not defined", help=help)


def diagnostic_node(argument: relax.Expr, user: relax.Expr) -> relax.Expr:
    """Return the node to blame for an argument: itself, or `user` for a variable (its span is that of its binding)."""
    return user if isinstance(argument, relax.Var) or argument.span is None else argument
