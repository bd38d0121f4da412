"""Calls of functions of the module and of the environment, constants, shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.ir import relax
from mlcc.ir.dtypes import DType
from mlcc.ops import values
from mlcc.ops.relations import SubtypeCheck, check_subtype
from mlcc.relax import convert
from mlcc.relax.construct import prim_value as _prim_value
from mlcc.relax.convert import accept_newer_names
from mlcc.relax.op_call import call

OutInfo = relax.StructInfo | Sequence[relax.StructInfo]


@accept_newer_names
def call_tir(gvar: relax.GlobalVar, args: Any, out_sinfo: OutInfo, tir_vars: Any = None) -> relax.Call:
    """A call of a TensorIR function of the module, which writes its results to new tensors."""
    _need_global(gvar, "call_tir")
    return call("call_tir", gvar, _listed(args), out_sinfo, tir_vars=_shape(tir_vars))


@accept_newer_names
def call_tir_inplace(
    gvar: relax.GlobalVar, args: Any, inplace_indices: Any, out_sinfo: OutInfo, tir_vars: Any = None
) -> relax.Call:
    """Like `call_tir`; result i overwrites argument `inplace_indices[i]`, or is a new tensor where that is -1."""
    _need_global(gvar, "call_tir_inplace")
    return call("call_tir_inplace", gvar, _listed(args), inplace_indices, out_sinfo, tir_vars=_shape(tir_vars))


def _listed(args: Any) -> Any:
    """Wrap a single argument in a list."""
    single = not isinstance(args, (list, tuple, relax.Tuple))
    return (args,) if single else args


def _need_global(gvar: Any, name: str) -> None:
    if not isinstance(gvar, relax.GlobalVar):
        help = "call_dps_packed calls a function of the environment by its name"
        raise TypeError(f"{name} calls a function of the module (a GlobalVar); {help}")


def _shape(tir_vars: Any) -> Any:
    return tuple(tir_vars) if isinstance(tir_vars, list) else tir_vars


@accept_newer_names
def call_dps_packed(func: str | relax.Expr, args: Any, out_sinfo: OutInfo) -> relax.Call:
    """A call of a packed function of the environment, which writes its results to new tensors."""
    return call("call_dps_packed", func, _listed(args), out_sinfo)


@accept_newer_names
def call_pure_packed(func: str | relax.Expr, *args: Any, sinfo_args: OutInfo) -> relax.Call:
    """A call of a packed function that returns its result and has no effects."""
    return call("call_pure_packed", func, *args, sinfo_args=sinfo_args)


@accept_newer_names
def extern(name: str, struct_info: relax.StructInfo | None = None) -> relax.ExternFunc:
    """The packed function of that name."""
    plain = values.extern(name)
    return plain if struct_info is None else relax.ExternFunc(name, struct_info)


def const(value: Any, dtype: Any = None) -> relax.Constant:
    """A number, list or array as a constant. Without a dtype, int64 becomes int32 and float64 float32, as in TVM.

    `dtype` may be the type of a tensor, as in older TVM; its shape has to be the array's.
    """
    import numpy as np

    if isinstance(dtype, relax.TensorStructInfo):
        constant = const(value, dtype.dtype)
        if constant.struct_info is None or check_subtype(dtype, constant.struct_info) is not SubtypeCheck.COVERS:
            raise CompileError(error("E0905", f"the constant is `{constant.struct_info}`, not `{dtype}`"))
        return constant
    if isinstance(value, relax.Constant):
        return value
    if isinstance(value, (bool, int, float, list, tuple, np.generic)):
        try:
            value = np.asarray(value)
        except ValueError:
            raise TypeError("the lists of a constant have different lengths") from None
    if not convert.is_array(value):
        raise TypeError(f"a constant must be a number, a list or an array, not {values.describe(value)}")
    array = convert.array_of(value)
    if array.dtype.kind == "O":
        raise TypeError("the numbers of a constant must have the same dtype")
    if dtype is None:
        name = str(array.dtype)
        known = DType.of({"int64": "int32", "float64": "float32"}.get(name, name))
    else:
        known = convert.dtype_of(dtype)
    if known is not None and known.is_int and array.dtype.kind in "iu" and array.size:
        limits = np.iinfo(str(known))
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise CompileError(error("E0905", f"a number of the constant does not fit {known}"))
    return convert.constant(array, known)


def prim_value(value: Any, dtype: Any = None) -> relax.PrimValue:
    """A scalar as a value: Python's integers are int64, its floats float64."""
    from mlcc.ir import construct, tir

    value = convert.unwrap(value)
    if dtype is not None and isinstance(value, (bool, int, float)):
        value = construct.const(value, convert.dtype_of(dtype))
    if not isinstance(value, (bool, int, float, tir.Expr)):
        raise TypeError(f"a scalar must be a number or a TensorIR expression, not {values.describe(value)}")
    return _prim_value(value) if isinstance(value, tir.Expr) else values.scalar(value)


def get_shape_of(expr: relax.Expr) -> relax.Expr:
    """The shape of a tensor: as an expression where it is known, else as a call of `shape_of`."""
    info = expr.struct_info
    if not isinstance(info, relax.TensorStructInfo):
        raise CompileError(error("E0443", "only a tensor has a shape", expr.span))
    return info.shape if info.shape is not None else call("shape_of", expr)
