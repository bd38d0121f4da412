"""Operators of the language itself: shapes as values, memory, printing, packed calls."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import BOOL, INT64, DType
from mlcc.ops import topi
from mlcc.ops.lazy import np
from mlcc.ops.registry import Impl
from mlcc.ops.shapes import Tensor, describe, fail, int64, product, result, shape_argument, shape_text, tensor
from mlcc.te.scalar import Scalar, to_expr


def infer_shape_of(call: relax.Call) -> relax.StructInfo:
    """Infer a shape value: that of the tensor."""
    info = tensor(call, 0)
    return relax.ShapeStructInfo(info.dims, info.ndim)


def infer_size(call: relax.Call) -> Tensor:
    """Infer an int64 scalar."""
    tensor(call, 0)
    return result((), INT64)


def infer_tensor_to_shape(call: relax.Call) -> relax.StructInfo:
    """Infer a shape with as many dimensions as the vector has elements."""
    info = tensor(call, 0)
    if info.ndim not in (-1, 1):
        fail(call, "E0445", f"needs a vector, the tensor has {info.ndim} dimensions")
    if info.dtype is not None and info.dtype is not INT64:
        fail(call, "E0444", f"needs a vector of int64, not of {info.dtype}")
    length = None if info.dims is None else tir.const_int(info.dims[0])
    return relax.ShapeStructInfo(None, -1 if length is None else length)


def infer_shape_to_tensor(call: relax.Call) -> Tensor:
    """Infer an int64 vector with an element for each dimension."""
    info = shape_argument(call, 0)
    if info.ndim < 0:
        return result(None, INT64, 1)
    return result((int64(info.ndim),), INT64)


def infer_none(call: relax.Call) -> relax.StructInfo:
    """Infer the empty tuple, for an operator that is called for its side effect."""
    return relax.TupleStructInfo(())


def infer_assert_op(call: relax.Call) -> relax.StructInfo:
    """Infer the empty tuple; the condition must be a bool scalar."""
    info = call.args[0].struct_info
    dtype = info.dtype if isinstance(info, (relax.TensorStructInfo, relax.PrimStructInfo)) else None
    if dtype is None and not isinstance(info, (relax.TensorStructInfo, relax.ObjectStructInfo)):
        fail(call, "E0443", f"the condition must be a bool, it is {describe(info)}")
    if dtype is not None and dtype is not BOOL:
        fail(call, "E0444", f"the condition must be bool, it is {dtype}")
    if isinstance(info, relax.TensorStructInfo) and info.ndim not in (-1, 0):
        fail(call, "E0445", f"the condition must be a scalar, it has {info.ndim} dimensions")
    return relax.TupleStructInfo(())


def infer_object(call: relax.Call) -> relax.StructInfo:
    """Infer an object of unknown type."""
    return relax.ObjectStructInfo()


def infer_same(call: relax.Call) -> relax.StructInfo:
    """Return the struct info of the first argument."""
    info = call.args[0].struct_info
    assert info is not None
    return info


def infer_to_vdevice(call: relax.Call) -> Tensor:
    """Infer the same tensor on another device."""
    data, device = tensor(call, 0), call.attrs["dst_vdevice"]
    if not isinstance(device, str) or not device:
        fail(call, "E0444", 'needs the name of a device, such as "cuda:0"')
    kind, number, scope = [*device.split(":"), "", ""][:3]
    name = f"{kind}:{number or 0}:{scope or 'global'}"
    return relax.TensorStructInfo(data.shape, data.dtype, data.ndim, name)


def infer_wrap_param(call: relax.Call) -> Tensor:
    """Infer a tensor of the same shape with another dtype."""
    data = tensor(call, 0)
    return relax.TensorStructInfo(data.shape, DType.of(call.attrs["dtype"]), data.ndim, data.vdevice)


def _infer_allocation(shape_at: int, dtype_at: int) -> Any:
    def infer(call: relax.Call) -> Tensor:
        """Infer a tensor of the shape and dtype that are arguments of the call."""
        shape, dtype_arg = call.args[shape_at], call.args[dtype_at]
        info = shape_argument(call, shape_at)
        dtype = dtype_arg.value if isinstance(dtype_arg, relax.DataTypeImm) else None
        if isinstance(shape, relax.ShapeExpr):
            return result(shape.values, dtype)
        return relax.TensorStructInfo(shape, dtype, info.ndim)

    return infer


def infer_view(call: relax.Call) -> Tensor:
    """Infer a view of a tensor's memory with another shape or dtype; it must not be larger."""
    data = tensor(call, 0)
    shape, dtype_arg = call.args[1], call.args[2]
    dtype = dtype_arg.value if isinstance(dtype_arg, relax.DataTypeImm) else data.dtype
    if not isinstance(shape.struct_info, relax.ShapeStructInfo):
        return relax.TensorStructInfo(data.shape, dtype, data.ndim, data.vdevice)
    values = shape.struct_info.values
    if values is not None and data.dims is not None and dtype is data.dtype:
        available, needed = product(data.dims), product(values)
        if isinstance(available, tir.IntImm) and isinstance(needed, tir.IntImm) and needed.value > available.value:
            fail(call, "E0445", f"{shape_text(values)} has more elements than {shape_text(data.dims)}")
    return result(values, dtype, shape.struct_info.ndim, data.vdevice)


def _infer_scalar(dtype: str) -> Any:
    return lambda call: relax.PrimStructInfo(DType.of(dtype))


# ---------------------------------------------------------------- lowering


def _lower_size(call: relax.Call, shape: Any) -> te.Tensor:
    count: te.Tensor = te.compute((), lambda: Scalar(construct.cast("int64", product(shape))), name="T_size")
    return count


def _lower_shape_to_tensor(call: relax.Call, values: Any) -> te.Tensor:
    """Select the extent of each dimension by its index."""

    def element(i: Any) -> Any:
        extent = Scalar(construct.const(0, INT64))
        for dim, value in reversed(list(enumerate(values))):
            is_dim = Scalar(construct.equal(to_expr(i), int64(dim)))
            extent = te.if_then_else(is_dim, Scalar(construct.cast(INT64, value)), extent)
        return extent

    vector: te.Tensor = te.compute((len(values),), element, name="shape_to_tensor")
    return vector


def _lower_wrap_param(call: relax.Call, x: te.Tensor) -> te.Tensor:
    return topi.cast(x, call.attrs["dtype"])


OPS: dict[str, Impl] = {
    "call_dps_packed": Impl("func: func, args: exprs, out_sinfo: types"),
    "call_inplace_packed": Impl("func: func, args: rest, inplace_indices: ints, sinfo_args: typelist"),
    "call_pure_packed": Impl("func: func, args: rest, sinfo_args: typelist"),
    "call_py_func": Impl("func_name: string, args: exprs, out_sinfo: types"),
    "call_tir": Impl("gvar: func, args: exprs, out_sinfo: types, tir_vars: shape? = None"),
    "call_tir_inplace": Impl(
        "gvar: func, args: exprs, inplace_indices: ints, out_sinfo: types, tir_vars: shape? = None",
    ),
    "call_tir_with_grad": Impl(
        "gvar: func, args: exprs, out_sinfo: types, te_grad_name: str, te_grad_kwargs: any = None",
    ),
    "dist.annotate_sharding": Impl("input, device_mesh: any, placement: any"),
    "dist.call_tir_local_view": Impl("gvar: func, args: exprs, out_sinfo: types, tir_vars: shape? = None"),
    "dist.redistribute": Impl("input, device_mesh: any, placement: any"),
    "dist.redistribute_replica_to_shard": Impl("input, num_workers: int, axis: int"),
    "invoke_pure_closure": Impl("closure, args: exprs, sinfo_args: typelist"),
    "shape_of": Impl("x", infer_shape_of, lambda call, x: tuple(int(n) for n in np.shape(x))),
    "size": Impl("x", infer_size, lambda call, x: np.asarray(np.size(x), np.int64), _lower_size, shape_only=(0,)),
    "tensor_to_shape": Impl("x", infer_tensor_to_shape, lambda call, x: tuple(int(n) for n in x)),
    "shape_to_tensor": Impl(
        "x", infer_shape_to_tensor, lambda call, shape: np.asarray(shape, np.int64), _lower_shape_to_tensor,
    ),
    "call_builtin_with_ctx": Impl("func: func, args: exprs, sinfo_args: typelist = None", pure=False),
    "invoke_closure": Impl("closure, args: exprs, sinfo_args: typelist", pure=False),
    "print": Impl("format: string, values: rest", infer_none, pure=False),
    "assert_op": Impl("condition, format: string, values: rest", infer_assert_op, pure=False),
    "null_value": Impl("", infer_object),
    "make_closure": Impl("func: func, args: exprs", infer_object),
    "builtin.stop_lift_params": Impl("x", infer_same, lambda call, x: x, aliases=("stop_lift_params",)),
    "builtin.alloc_tensor": Impl(
        'shape: shape, dtype: datatype, runtime_device_index: scalar = 0, storage_scope: string = "global"',
        _infer_allocation(0, 1), allocates=True, aliases=("alloc_tensor",),
    ),
    "memory.alloc_storage": Impl(
        "size: shape, virtual_device_index: scalar, storage_scope: string, dtype: datatype", infer_object,
        allocates=True,
    ),
    "memory.alloc_tensor": Impl(
        "storage, offset: scalar, shape: shape, dtype: datatype, runtime_device_index: scalar = 0",
        _infer_allocation(2, 3), allocates=True,
    ),
    "memory.kill_storage": Impl("storage", infer_none, pure=False),
    "memory.kill_tensor": Impl("tensor", infer_none, pure=False),
    "memory.ensure_zero_offset": Impl("x", infer_same, lambda call, x: x),
    "memory.view": Impl(
        "data, shape: shape? = None, dtype: datatype? = None, relative_byte_offset: scalar? = None", infer_view,
    ),
    "vm.alloc_storage": Impl(
        'size: shape, runtime_device_index: scalar, dtype: datatype, storage_scope: string = "global"', infer_object,
        allocates=True,
    ),
    "vm.alloc_tensor": Impl(
        "storage, offset: scalar, shape: shape, dtype: datatype, runtime_device_index: scalar = 0",
        _infer_allocation(2, 3), allocates=True,
    ),
    "vm.call_tir_dyn": Impl("func: func, args: exprs", infer_none, pure=False),
    "vm.kill_object": Impl("obj", infer_none, pure=False),
    "to_vdevice": Impl("data, dst_vdevice: any", infer_to_vdevice, lambda call, x: x),
    "hint_on_device": Impl(
        'data, dst_vdevice: any, memory_scope: str = "global"', lambda call: tensor(call, 0), lambda call, x: x,
    ),
    "wrap_param": Impl(
        'data, dtype: dtype = "float32"', infer_wrap_param, lambda call, x: np.asarray(x), _lower_wrap_param,
    ),
    "grad.no_grad": Impl("x", infer_same, lambda call, x: x),
    "grad.start_checkpoint": Impl("x", infer_same, lambda call, x: x),
    "grad.end_checkpoint": Impl("x", infer_same, lambda call, x: x),
    "inspect.tensor_ndim": Impl("x", _infer_scalar("int32")),
    "inspect.tensor_stride_i": Impl("tensor, axis: scalar", _infer_scalar("int64")),
    "inspect.tensor_shape_i": Impl("tensor, axis: scalar", _infer_scalar("int64")),
    "inspect.tensor_byte_offset": Impl("x", _infer_scalar("int64")),
    "inspect.tensor_elem_offset": Impl("x", _infer_scalar("int64")),
    "inspect.tensor_dtype_code": Impl("x", _infer_scalar("uint8")),
    "inspect.tensor_dtype_bits": Impl("x", _infer_scalar("uint8")),
    "inspect.tensor_dtype_lanes": Impl("x", _infer_scalar("uint16")),
}  # fmt: skip
