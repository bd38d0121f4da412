"""ONNX element types, and reading the tensors of a model: raw bytes, typed fields, sparse tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from mlcc.frontend.problems import Unsupported
from mlcc.ir.dtypes import DType
from mlcc.ir.tensor_data import TensorData, storage_dtype

if TYPE_CHECKING:
    import numpy as np
    import onnx

# TensorProto.DataType -> dtype
DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16", 17: "float8_e4m3fn", 19: "float8_e5m2",
}  # fmt: skip
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}

_UNSUPPORTED_TYPES = {
    8: "strings", 14: "complex64", 15: "complex128", 18: "float8e4m3fnuz", 20: "float8e5m2fnuz", 21: "uint4",
    22: "int4", 23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2",
}  # fmt: skip
_PACKED_INTEGERS = {
    21: (4, "uint8"),
    22: (4, "int8"),
    25: (2, "uint8"),
    26: (2, "int8"),
}  # bits, and the dtype that holds the unpacked elements
_MAX_TENSOR_BYTES = 2**63 - 1  # bytes of a tensor
_MAX_SPARSE_ELEMENTS = 1 << 28  # elements of a sparse tensor that is converted to a dense one


class NarrowIntegers(Unsupported):
    """Raised for 4-bit and 2-bit elements, for which mlcc has no dtype. `widened` has the numbers in 8 bits, for
    operators whose results do not depend on the element type."""

    def __init__(self, problem: Unsupported, widened: TensorData) -> None:
        super().__init__(problem.reason, problem.help)
        self.widened = widened


def dtype_of(number: int) -> str:
    """Return the dtype with that number in ONNX. Raises Unsupported for one that mlcc does not support."""
    if number not in DTYPES:
        raise Unsupported(
            f"elements of type {_UNSUPPORTED_TYPES.get(number, number)} are not supported", "use another type"
        )
    return DTYPES[number]


def tensor_data(proto: onnx.TensorProto, raw: Any = None) -> TensorData:
    """Return a tensor of the model; `raw` are its bytes if they are stored in another file.

    Raises NarrowIntegers for 4-bit and 2-bit elements, Unsupported for other unsupported element types, and for data of
    a size that does not match the shape.
    """
    import numpy as np

    if proto.data_type in _PACKED_INTEGERS:
        raise _unpack_narrow(proto, raw)
    dtype = DType.of(dtype_of(proto.data_type))
    shape = extents(proto.dims, dtype)
    storage = np.dtype(storage_dtype(dtype))
    if raw is None and proto.HasField("raw_data"):
        raw = proto.raw_data
    count = math.prod(shape)
    if raw is None:
        elements = _from_typed_field(proto, dtype, storage)
    else:
        if len(raw) != count * storage.itemsize:
            raise Unsupported(f"`{proto.name}` has {len(raw)} bytes, but needs {count * storage.itemsize}")
        elements = np.frombuffer(raw, storage.newbyteorder("<")).astype(storage, copy=False)
    if elements.size != count:
        raise Unsupported(f"`{proto.name}` has {elements.size} elements, but its shape {list(shape)} needs {count}")
    if dtype.is_bool:
        elements = elements != 0
    return TensorData(dtype, shape, elements.reshape(shape), proto.name)


def _unpack_narrow(proto: onnx.TensorProto, raw: Any) -> NarrowIntegers:
    """Unpack a tensor with several elements per byte, the first in the lowest bits."""
    import numpy as np

    bits, name = _PACKED_INTEGERS[proto.data_type]
    dtype = DType.of(name)
    shape = extents(proto.dims, dtype)
    count = math.prod(shape)
    if raw is None and proto.HasField("raw_data"):
        raw = proto.raw_data
    packed = np.array(proto.int32_data, "int64").astype("uint8") if raw is None else np.frombuffer(raw, "uint8")
    if packed.size != -(-count * bits // 8):
        raise Unsupported(f"`{proto.name}` has {packed.size} bytes, but needs {-(-count * bits // 8)}")
    parts = packed[:, None] >> np.arange(0, 8, bits, dtype="uint8")
    numbers = (parts.reshape(-1)[:count] & (2**bits - 1)).astype("int16")
    if name == "int8":
        numbers -= (numbers >> bits - 1) << bits
    problem = Unsupported(
        f"elements of type {_UNSUPPORTED_TYPES[proto.data_type]} are not supported", "use another type"
    )
    return NarrowIntegers(problem, TensorData(dtype, shape, numbers.astype(name).reshape(shape), proto.name))


def extents(dims: Any, dtype: DType) -> tuple[int, ...]:
    """Return the extents of a tensor. Raises Unsupported for negative ones, and for a size beyond 64 bits."""
    shape = tuple(int(n) for n in dims)
    if any(n < 0 for n in shape) or math.prod(max(n, 1) for n in shape) * dtype.bytes > _MAX_TENSOR_BYTES:
        raise Unsupported(f"the shape {list(shape)} is not valid")
    return shape


def _from_typed_field(proto: onnx.TensorProto, dtype: DType, storage: np.dtype) -> np.ndarray:
    """Return the elements of a tensor from the protobuf field for its type."""
    import numpy as np

    name = str(dtype)
    field: Any
    if name in ("float32", "float64", "int64"):
        field = {"float32": proto.float_data, "float64": proto.double_data, "int64": proto.int64_data}[name]
        return np.array(field, storage)
    if name in ("uint32", "uint64"):
        return np.array(proto.uint64_data, "uint64").astype(storage)
    stored = np.array(proto.int32_data, "int64")
    if name == "float16":  # bit patterns
        return stored.astype("uint16").view("float16")
    return stored.astype("uint8" if dtype.is_bool else storage)


def sparse_data(proto: onnx.SparseTensorProto) -> TensorData:
    """Convert a sparse tensor to a dense one. Raises Unsupported for one that is malformed or too large."""
    import numpy as np

    values, places = tensor_data(proto.values), tensor_data(proto.indices)
    shape = extents(proto.dims, values.dtype)
    if math.prod(shape) > _MAX_SPARSE_ELEMENTS:
        raise Unsupported(f"a sparse tensor of shape {list(shape)} is too large to convert to a dense one")
    assert values.array is not None and places.array is not None
    dense = np.zeros(shape, storage_dtype(values.dtype))
    index = places.array.astype("int64")
    try:
        if index.ndim == 1:
            if index.size and index.min() < 0:
                raise IndexError
            dense.reshape(-1)[index] = values.array
        else:
            if (index < 0).any() or index.ndim != 2 or index.shape[1] != len(shape):
                raise IndexError
            dense[tuple(index.T)] = values.array
    except (IndexError, ValueError):
        raise Unsupported("the indices of a sparse tensor are out of range, or do not match its values") from None
    return TensorData(values.dtype, shape, dense, proto.values.name)
