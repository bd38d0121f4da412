"""Element types of ONNX, and tensors of a model as constants: raw bytes, typed fields, sparse ones."""

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
}  # bits, a dtype that holds them
_MAX_TENSOR_BYTES = 2**63 - 1  # bytes of a tensor
_MAX_SPARSE_ELEMENTS = 1 << 28  # elements of a sparse tensor that is made dense


class NarrowIntegers(Unsupported):
    """Raised for elements of 4 or 2 bits, for which mlcc has no dtype. `widened` are the numbers in 8 bits, for
    operators whose results do not depend on the element type."""

    def __init__(self, problem: Unsupported, widened: TensorData) -> None:
        super().__init__(problem.reason, problem.help)
        self.widened = widened


def dtype_of(number: int) -> str:
    """The dtype of that number in ONNX. Raises Unsupported for one that mlcc does not have."""
    if number not in DTYPES:
        raise Unsupported(
            f"elements of type {_UNSUPPORTED_TYPES.get(number, number)} are not supported", "use another type"
        )
    return DTYPES[number]


def tensor_data(proto: onnx.TensorProto, raw: Any = None) -> TensorData:
    """Return a tensor of the model; `raw` are its bytes if they are stored in another file.

    Raises NarrowIntegers for elements of 4 and 2 bits, Unsupported for other element types that mlcc lacks, and for a
    size that does not fit the data.
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
            raise Unsupported(f"`{proto.name}` has {len(raw)} bytes, {count * storage.itemsize} are needed")
        elements = np.frombuffer(raw, storage.newbyteorder("<")).astype(storage, copy=False)
    if elements.size != count:
        raise Unsupported(f"`{proto.name}` has {elements.size} elements, its shape {list(shape)} needs {count}")
    if dtype.is_bool:
        elements = elements != 0
    return TensorData(dtype, shape, elements.reshape(shape), proto.name)


def _unpack_narrow(proto: onnx.TensorProto, raw: Any) -> NarrowIntegers:
    """Unpack a tensor with several elements in a byte, the first one in the lowest bits."""
    import numpy as np

    bits, name = _PACKED_INTEGERS[proto.data_type]
    dtype = DType.of(name)
    shape = extents(proto.dims, dtype)
    count = math.prod(shape)
    if raw is None and proto.HasField("raw_data"):
        raw = proto.raw_data
    packed = np.array(proto.int32_data, "int64").astype("uint8") if raw is None else np.frombuffer(raw, "uint8")
    if packed.size != -(-count * bits // 8):
        raise Unsupported(f"`{proto.name}` has {packed.size} bytes, {-(-count * bits // 8)} are needed")
    parts = packed[:, None] >> np.arange(0, 8, bits, dtype="uint8")
    numbers = (parts.reshape(-1)[:count] & (2**bits - 1)).astype("int16")
    if name == "int8":
        numbers -= (numbers >> bits - 1) << bits
    problem = Unsupported(
        f"elements of type {_UNSUPPORTED_TYPES[proto.data_type]} are not supported", "use another type"
    )
    return NarrowIntegers(problem, TensorData(dtype, shape, numbers.astype(name).reshape(shape), proto.name))


def extents(dims: Any, dtype: DType) -> tuple[int, ...]:
    """The extents of a tensor. Raises Unsupported for negative ones, and for a size that 64 bits do not hold."""
    shape = tuple(int(n) for n in dims)
    if any(n < 0 for n in shape) or math.prod(max(n, 1) for n in shape) * dtype.bytes > _MAX_TENSOR_BYTES:
        raise Unsupported(f"no tensor has the shape {list(shape)}")
    return shape


def _from_typed_field(proto: onnx.TensorProto, dtype: DType, storage: np.dtype) -> np.ndarray:
    """The elements of a tensor from the field of its type."""
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
    """A sparse tensor, made dense. Raises Unsupported for one that is not sound, or too large for that."""
    import numpy as np

    values, places = tensor_data(proto.values), tensor_data(proto.indices)
    shape = extents(proto.dims, values.dtype)
    if math.prod(shape) > _MAX_SPARSE_ELEMENTS:
        raise Unsupported(f"a sparse tensor of shape {list(shape)} is too large to be made dense")
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
        raise Unsupported("the indices of a sparse tensor lie outside of it, or do not fit its values") from None
    return TensorData(values.dtype, shape, dense, proto.values.name)
