"""Collective communication between the workers of a distributed program, by calls of runtime functions."""

from __future__ import annotations

from mlcc.ir import construct, relax, tir
from mlcc.ops.registry import Emit, Impl, bind_call
from mlcc.ops.shapes import Tensor, axis, extent_text, fail, int64, result, simplify, tensor

_REDUCTIONS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}  # by the number that the runtime takes

# ---------------------------------------------------------------- inference


def infer_same(call: relax.Call) -> Tensor:
    """Infer the tensor's own shape: every worker receives a tensor of that shape."""
    return tensor(call, 0)


def infer_allgather(call: relax.Call) -> Tensor:
    """Infer the concatenation of all workers' tensors along the first dimension."""
    data = tensor(call, 0)
    if data.dims is None:
        return data
    if not data.dims:
        fail(call, "E0445", "needs at least 1 dimension, the tensor has 0")
    rows = simplify(construct.mul(data.dims[0], int64(_workers(call))))
    return result((rows, *data.dims[1:]), data.dtype, vdevice=data.vdevice)


def infer_scatter(call: relax.Call) -> Tensor:
    """Infer a part of a dimension that is divided equally among the workers."""
    data, workers = tensor(call, 0), _workers(call)
    if data.ndim < 0:
        return data
    at = axis(call, call.attrs["axis"], data.ndim)
    if data.dims is None:
        return result(None, data.dtype, data.ndim, data.vdevice)
    extent = data.dims[at]
    rest = simplify(construct.floormod(extent, int64(workers)))
    if tir.const_int(rest) not in (None, 0):
        fail(call, "E0445", f"dimension {at} of {extent_text(extent)} cannot be divided among {workers} workers")
    part = simplify(construct.div(extent, int64(workers)))
    return result((*data.dims[:at], part, *data.dims[at + 1 :]), data.dtype, vdevice=data.vdevice)


def _workers(call: relax.Call) -> int:
    count: int = call.attrs["num_workers"]
    if count < 1:
        fail(call, "E0442", f"`num_workers` must be at least 1, it is {count}")
    return count


# ---------------------------------------------------------------- expansion


def _packed(call: relax.Call, name: str, *args: object) -> relax.Call:
    """Return the call of the runtime function that writes the result of `call`; flags are numbers, as in TVM."""
    return bind_call("call_dps_packed", (f"runtime.disco.{name}", args, call.struct_info), span=call.span)


def _allreduce(call: relax.Call, emit: Emit) -> relax.Call:
    kind = call.attrs["op_type"]
    if kind not in _REDUCTIONS:
        fail(call, "E0442", f"`op_type` must be one of {', '.join(_REDUCTIONS)}, it is `{kind}`")
    shape = relax.ShapeExpr((int64(_REDUCTIONS[kind]),))
    return _packed(call, "allreduce", call.args[0], shape, int(call.attrs["in_group"]))


def _allgather(call: relax.Call, emit: Emit) -> relax.Call:
    return _packed(call, "allgather", call.args[0], int(call.attrs["in_group"]))


def _broadcast(call: relax.Call, emit: Emit) -> relax.Call:
    return _packed(call, "broadcast_from_worker0", call.args[0], 0)


def _scatter(call: relax.Call, emit: Emit) -> relax.Call:
    """Make the parts contiguous in memory, as the runtime sends them."""
    data, workers = tensor(call, 0), call.attrs["num_workers"]
    assert data.dims is not None
    at = axis(call, call.attrs["axis"], data.ndim)
    part = simplify(construct.div(data.dims[at], int64(workers)))
    parts = emit("reshape", call.args[0], (*data.dims[:at], int64(workers), part, *data.dims[at + 1 :]))
    if at:
        order = [at, *(i for i in range(data.ndim + 1) if i != at)]
        parts = emit("permute_dims", parts, order)
    return _packed(call, "scatter_from_worker0", parts, 0)


OPS: dict[str, Impl] = {
    "ccl.allreduce": Impl('x, op_type: str = "sum", in_group: bool = True', infer_same, expand=_allreduce),
    "ccl.allgather": Impl("x, num_workers: int, in_group: bool = True", infer_allgather, expand=_allgather),
    "ccl.broadcast_from_worker0": Impl("x", infer_same, expand=_broadcast),
    "ccl.scatter_from_worker0": Impl("x, num_workers: int, axis: int = 0", infer_scatter, expand=_scatter),
}  # fmt: skip
