"""Struct info inference of calls: by the operator's rule, the call's stated struct info, or the callee's signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax, tir
from mlcc.ir.construct import exact_integers
from mlcc.ir.visit import substitute
from mlcc.ops.registry import get
from mlcc.ops.size_limits import impossible_size


def infer_operator(call: relax.Call) -> relax.StructInfo | None:
    """Infer the struct info of an operator call; None if the operator has no rule. Raises CompileError (E044x)."""
    if call.sinfo_args:
        return _stated_info(call.sinfo_args)
    op = get(call.op.name)
    if op is None or op.impl.infer is None:
        return None
    if any(a.struct_info is None for a in call.args):
        return None
    try:
        with exact_integers():
            info = op.impl.infer(call)
    except OverflowError as exc:
        raise _impossible(call, "E0447", f"a size overflows: {exc}") from None
    reason = impossible_size(info)
    if reason is not None:
        raise _impossible(call, *reason)
    return info


def _impossible(call: relax.Call, code: str, why: str) -> CompileError:
    return CompileError(error(code, f"`R.{call.op.name.removeprefix('relax.')}`: {why}", call.span))


def infer_struct_info(
    call: relax.Call, functions: Mapping[str, relax.GlobalVar] | None = None
) -> relax.StructInfo | None:
    """Infer the struct info of any call, None if it is unknown; `functions` are those of the module.

    Raises CompileError for arguments that the callee cannot take.
    """
    if isinstance(call.op, tir.Op):
        return call.struct_info if call.struct_info is not None else infer_operator(call)
    if call.sinfo_args:
        return _stated_info(call.sinfo_args)
    if isinstance(call.op, relax.ExternFunc):
        return relax.ObjectStructInfo()
    info = call.op.struct_info
    if info is None and isinstance(call.op, relax.GlobalVar) and functions is not None:
        known = functions.get(call.op.name)
        info = known.struct_info if known is not None else None
    return None if info is None else call_result_info(info, call)


def _stated_info(types: tuple[relax.StructInfo, ...]) -> relax.StructInfo:
    return types[0] if len(types) == 1 else relax.TupleStructInfo(types)


def call_result_info(info: relax.StructInfo, call: relax.Call) -> relax.StructInfo:
    """Infer the result of calling a function with struct info `info`: arguments bind its symbolic variables."""
    if not isinstance(info, relax.FuncStructInfo):
        if isinstance(info, relax.ObjectStructInfo):
            return info
        raise CompileError(error("E0441", "this is not a function, it cannot be called", call.span))
    if info.params is None:
        return info.ret
    if len(info.params) != len(call.args):
        message = f"the function takes {len(info.params)} arguments, {len(call.args)} were given"
        raise CompileError(error("E0441", message, call.span))
    bound: dict[tir.Var, tir.Expr] = {}
    for want, argument in zip(info.params, call.args, strict=True):
        if argument.struct_info is not None:
            match_info(want, argument.struct_info, bound)
    return erase(info.ret, bound, _vars(info.params))


def match_info(want: relax.StructInfo, have: relax.StructInfo, bound: dict[tir.Var, tir.Expr]) -> None:
    """Bind each variable that is a whole dimension or scalar of `want` to the corresponding value in `have`."""
    match want, have:
        case relax.TensorStructInfo(), relax.TensorStructInfo():
            _match_dims(want.dims, have.dims, bound)
        case relax.ShapeStructInfo(), relax.ShapeStructInfo():
            _match_dims(want.values, have.values, bound)
        case relax.PrimStructInfo(value=value), relax.PrimStructInfo(value=other) if value is not None:
            _match_dims((value,), None if other is None else (other,), bound)
        case relax.TupleStructInfo(fields=mine), relax.TupleStructInfo(fields=theirs) if len(mine) == len(theirs):
            for a, b in zip(mine, theirs, strict=True):
                match_info(a, b, bound)
        case _:
            pass


def _match_dims(
    want: tuple[tir.Expr, ...] | None, have: tuple[tir.Expr, ...] | None, bound: dict[tir.Var, tir.Expr]
) -> None:
    if want is None or have is None or len(want) != len(have):
        return
    for mine, theirs in zip(want, have, strict=True):
        if isinstance(mine, tir.Var):
            bound.setdefault(mine, theirs)


def _substituted(value: tir.Expr, bound: Mapping[tir.Var, tir.Expr]) -> tir.Expr:
    """Substitute variables and simplify the result if it changes."""
    replaced: tir.Expr = substitute(value, bound)
    if replaced is value or isinstance(replaced, (tir.Var, tir.IntImm)):
        return replaced
    from mlcc.arith.analyzer import Analyzer

    return Analyzer().simplify(replaced)


def _vars(infos: Any) -> set[tir.Var]:
    from mlcc.ir.visit import used_vars

    variables: set[tir.Var] = set()
    for info in infos:
        variables |= used_vars(info)
    return variables


def erase(info: relax.StructInfo, bound: Mapping[tir.Var, tir.Expr], inner: set[tir.Var]) -> relax.StructInfo:
    """Substitute variables in `info`; values that use an unbound variable of `inner` become unknown."""
    unbound = inner - set(bound)

    def known(values: tuple[tir.Expr, ...] | None) -> tuple[tir.Expr, ...] | None:
        if values is None:
            return None
        from mlcc.ir.visit import used_vars

        if any(used_vars(v) & unbound for v in values):
            return None
        return tuple(_substituted(v, bound) for v in values)

    match info:
        case relax.TensorStructInfo(dtype=dtype, ndim=ndim, vdevice=device):
            if info.dims is None:
                return info
            dims = known(info.dims)
            if dims is None:
                return relax.TensorStructInfo(None, dtype, ndim, device)
            shape = relax.ShapeExpr(dims, relax.ShapeStructInfo(dims, len(dims)))
            return relax.TensorStructInfo(shape, dtype, ndim, device)
        case relax.ShapeStructInfo(values=values, ndim=ndim):
            return relax.ShapeStructInfo(known(values), ndim)
        case relax.PrimStructInfo(dtype=dtype, value=value):
            bound_value = known(None if value is None else (value,))
            return relax.PrimStructInfo(dtype, None if bound_value is None else bound_value[0])
        case relax.TupleStructInfo(fields=fields):
            return relax.TupleStructInfo(tuple(erase(f, bound, inner) for f in fields))
        case _:
            return info
