"""Unpacking of sub-byte integers, several of which share a byte."""

from __future__ import annotations

from typing import Any

from mlcc import te
from mlcc.ir import construct, relax
from mlcc.ir.dtypes import DType
from mlcc.ops.lazy import np
from mlcc.ops.registry import FusionKind, Impl
from mlcc.ops.shapes import Tensor, axis, fail, int64, result, simplify, tensor


def infer_unpack_bits(call: relax.Call) -> Tensor:
    """Infer the extent of `axis` times the number of integers per byte."""
    data = tensor(call, 0)
    if data.dtype is not None and str(data.dtype) != "uint8":
        fail(call, "E0444", f"the data must be of uint8, not of {data.dtype}")
    bits, wanted = call.attrs["bits"], str(call.attrs["out_dtype"])
    if bits not in (1, 2, 4):
        fail(call, "E0442", f"`bits` must be 1, 2 or 4, not {bits}")
    if wanted not in ("int8", "uint8"):
        fail(call, "E0442", f"`out_dtype` must be int8 or uint8, not {wanted}")
    if data.ndim < 0:
        fail(call, "E0445", "the number of dimensions of the data must be known")
    at = axis(call, call.attrs["axis"], data.ndim)
    if data.dims is None:
        return result(None, DType.of(wanted), data.ndim, data.vdevice)
    dims = list(data.dims)
    dims[at] = simplify(construct.mul(dims[at], int64(8 // bits)))
    return result(dims, DType.of(wanted), vdevice=data.vdevice)


def _lower_unpack_bits(call: relax.Call, x: te.Tensor) -> te.Tensor:
    """Extract bits by shifts in int32: logically for uint8; for int8 left and then arithmetically right, which extends
    the sign."""
    bits, dtype = call.attrs["bits"], str(call.attrs["out_dtype"])
    each, at = 8 // bits, call.attrs["axis"] % x.ndim

    def element(*i: Any) -> Any:
        byte = x(*i[:at], i[at] // each, *i[at + 1 :]).astype(dtype).astype("int32")
        place = (i[at] % each).astype("int32")
        if dtype == "uint8":
            return ((byte >> (place * bits)) & ((1 << bits) - 1)).astype(dtype)
        return ((byte << (32 - bits - place * bits)) >> (32 - bits)).astype(dtype)

    shape = list(x.buffer.shape)
    shape[at] = construct.mul(shape[at], int64(each))
    unpacked: te.Tensor = te.compute(shape, element, name="unpacked")
    return unpacked


def _np_unpack_bits(call: relax.Call, x: Any) -> Any:
    bits, dtype = call.attrs["bits"], str(call.attrs["out_dtype"])
    at = call.attrs["axis"] % x.ndim
    parts = [(x >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    shape = (*x.shape[:at], x.shape[at] * len(parts), *x.shape[at + 1 :])
    unpacked = np.stack(parts, at + 1).reshape(shape).astype("int16")
    return (unpacked - (unpacked >> (bits - 1) << bits) if dtype == "int8" else unpacked).astype(dtype)


OPS: dict[str, Impl] = {
    "unpack_bits": Impl(
        'data, axis: int = -1, bits: int = 4, out_dtype: dtype = "uint8"', infer_unpack_bits, _np_unpack_bits,
        _lower_unpack_bits, FusionKind.INJECTIVE,
    ),
}  # fmt: skip
