"""DLPack: import and export arrays without copies.

NumPy creates the capsules. For dtypes that NumPy lacks (bfloat16, 8-bit floats) the capsule has the storage type, and
its element type is corrected.
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mlcc.runtime.abi import CPU, CUDA_HOST, STORAGE, DLTensor, dtype_code, dtype_name

_PLAIN, _VERSIONED = b"dltensor", b"dltensor_versioned"
_READ_ONLY = 1  # flag bit of a versioned capsule
_DEVICES = {1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda_managed"}

_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Managed(ctypes.Structure):
    """DLManagedTensorVersioned; the older DLManagedTensor starts with the tensor itself."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor),
    )  # fmt: skip


class NotATensor(TypeError):
    """The object has no memory that can be read here; the message is the reason."""


class Tensor(NamedTuple):
    """Memory of an array, kept alive by `owner`. `strides` are in elements; None for compact row-major."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    code: tuple[int, int, int]
    readonly: bool
    owner: Any

    @property
    def dtype(self) -> str:
        return dtype_name(*self.code)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceArgument:
    """An argument in device memory: its memory, which the host must not access, and the array itself."""

    tensor: Tensor
    value: Any


@functools.lru_cache(maxsize=256)
def numpy_code(dtype: np.dtype[Any]) -> tuple[int, int, int] | None:
    """Return the DLPack type of a NumPy dtype (including `ml_dtypes`); None if there is none."""
    if not dtype.isnative:
        return None
    try:
        return dtype_code(dtype.name)
    except ValueError:
        return None


def compact(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if strides (in elements) are row-major without gaps; extents of 1, and empty arrays, allow any."""
    expected = 1
    if 0 in shape:
        return True
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def overlaps_itself(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> bool:
    """Return True if two elements of a strided array may overlap. `strides` are in elements; None is compact.

    Exact for arrays whose strides nest, which all slices do, and for others of at most 2**24 elements.
    """
    if strides is None or 0 in shape:
        return False
    reach = 0
    for stride, extent in sorted((abs(s), e) for s, e in zip(strides, shape, strict=True) if e > 1):
        if stride <= reach:
            break
        reach += stride * (extent - 1)
    else:
        return False
    if 0 in (s for s, e in zip(strides, shape, strict=True) if e > 1) or math.prod(shape) > 1 << 24:
        return True
    offsets = np.zeros((), np.int64)
    for stride, extent in zip(strides, shape, strict=True):
        offsets = np.add.outer(offsets, np.arange(extent, dtype=np.int64) * stride)
    return np.unique(offsets).size != offsets.size


def of_array(array: np.ndarray) -> Tensor:
    """Return a NumPy array's memory. Raises NotATensor for unsupported dtypes."""
    code = numpy_code(array.dtype)
    if code is None:
        raise NotATensor(f"a NumPy array of dtype {array.dtype}")
    strides = None
    if not array.flags.c_contiguous:
        if any(s % array.itemsize for s in array.strides):
            raise NotATensor("a NumPy array whose strides are not multiples of its element size")
        strides = tuple(s // array.itemsize for s in array.strides)
    address = array.__array_interface__["data"][0]
    return Tensor(address, array.shape, strides, code, not array.flags.writeable, array)


def borrow(value: Any) -> Tensor:
    """Return the memory of a NumPy array or of an object with `__dlpack__`. Raises NotATensor."""
    if isinstance(value, np.ndarray):
        return of_array(value)
    if isinstance(value, TensorView):
        return value.tensor
    if not hasattr(value, "__dlpack__"):
        raise NotATensor(f"{_article(type(value).__name__)}, not an array")
    device = device_of(value) or (CPU, 0)
    if device[0] not in (CPU, CUDA_HOST):
        raise NotATensor(f"an array in the memory of device type {_DEVICES.get(device[0], device[0])}")
    return _import_capsule(value, {}, (CPU, CUDA_HOST))


def borrow_from(value: Any, stream: int) -> Tensor:
    """Return the memory of a device array, after ordering its producer's pending work before `stream`.

    A stream of 0 is DLPack's default. Raises NotATensor.
    """
    return _import_capsule(value, {"stream": stream} if stream else {}, None)


def device_of(value: Any) -> tuple[int, int] | None:
    """Return DLPack's device type and number of an array; None for any other value."""
    if not hasattr(value, "__dlpack_device__"):
        return None
    kind, number = value.__dlpack_device__()
    return int(kind), int(number)


def _import_capsule(value: Any, options: dict[str, Any], devices: tuple[int, ...] | None) -> Tensor:
    capsule = _capsule(value, options)
    if _is_valid(capsule, _VERSIONED):
        managed = _Managed.from_address(_pointer(capsule, _VERSIONED))
        if managed.major > 1:
            raise NotATensor(f"an array of DLPack version {managed.major}, which is too new")
        return _from_dltensor(managed.tensor, bool(managed.flags & _READ_ONLY), (value, capsule), devices)
    if _is_valid(capsule, _PLAIN):
        return _from_dltensor(DLTensor.from_address(_pointer(capsule, _PLAIN)), False, (value, capsule), devices)
    raise NotATensor(f"{_article(type(value).__name__)} whose DLPack capsule is not valid")


def _capsule(value: Any, options: dict[str, Any]) -> Any:
    """Request a capsule, versioned if the producer supports it. It is not consumed, so its destructor frees it."""
    try:
        return value.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        pass
    except (BufferError, RuntimeError, ValueError) as exc:
        raise NotATensor(f"an array that cannot be exported: {exc}") from None
    try:
        return value.__dlpack__(**options)
    except (BufferError, RuntimeError, ValueError, TypeError) as exc:
        raise NotATensor(f"an array that cannot be exported: {exc}") from None


def _from_dltensor(raw: DLTensor, readonly: bool, owner: Any, devices: tuple[int, ...] | None) -> Tensor:
    if devices is not None and raw.device.device_type not in devices:
        raise NotATensor(f"an array in the memory of device type {_DEVICES.get(raw.device.device_type, '?')}")
    dims = ctypes.c_int64 * raw.ndim
    shape = tuple(dims.from_address(raw.shape)) if raw.ndim else ()
    strides = tuple(dims.from_address(raw.strides)) if raw.ndim and raw.strides else None
    if strides is not None and compact(shape, strides):
        strides = None
    code = (raw.dtype.code, raw.dtype.bits, raw.dtype.lanes)
    return Tensor((raw.data or 0) + raw.byte_offset, shape, strides, code, readonly, owner)


def _article(noun: str) -> str:
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


class _Memory:
    """An object with NumPy's array interface, over memory that `owner` keeps alive."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__ = interface
        self.owner = owner


def as_array(tensor: Tensor) -> np.ndarray:
    """Return a NumPy array of the same memory, in the storage type (bfloat16: uint16); vector lanes are a last axis."""
    name = dtype_name(tensor.code[0], tensor.code[1], 1)
    dtype = np.dtype(STORAGE.get(name, name))
    lanes = tensor.code[2]
    shape, strides = tensor.shape, tensor.strides
    if lanes > 1:
        shape = (*shape, lanes)
        strides = None if strides is None else (*(s * lanes for s in strides), 1)
    interface = {
        "version": 3, "typestr": dtype.str, "shape": shape, "data": (tensor.address, tensor.readonly),
        "strides": None if strides is None else tuple(s * dtype.itemsize for s in strides),
    }  # fmt: skip
    if 0 in shape or not tensor.address:
        return np.empty(shape, dtype)  # NumPy takes no null pointers; there is nothing to share
    return np.asarray(_Memory(interface, tensor.owner))


class TensorView:
    """A tensor of a dtype that NumPy lacks, for packed functions: DLPack consumers see the true dtype.

    `bits` is the same memory as a NumPy array of unsigned integers.
    """

    __slots__ = ("bits", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.bits = as_array(tensor)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.tensor.shape

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **options: Any) -> Any:
        """Return a capsule of the same memory, with the true element type."""
        capsule = self.bits.__dlpack__(**options)
        _dltensor_of(capsule).dtype.code = self.tensor.code[0]
        return capsule

    def __repr__(self) -> str:
        return f"TensorView({self.dtype}, {self.shape})"


def _dltensor_of(capsule: Any) -> DLTensor:
    """Return the DLTensor in a capsule, for modification in place."""
    if _is_valid(capsule, _VERSIONED):
        return _Managed.from_address(_pointer(capsule, _VERSIONED)).tensor  # type: ignore[no-any-return]
    return DLTensor.from_address(_pointer(capsule, _PLAIN))


def device_capsule(tensor: Tensor, device: tuple[int, int], max_version: Any) -> Any:
    """Return a capsule of device memory, which is not accessed; it keeps `tensor.owner` alive."""
    options = {} if max_version is None else {"max_version": max_version}
    capsule = as_array(tensor._replace(readonly=False)).__dlpack__(**options)
    raw = _dltensor_of(capsule)
    raw.device.device_type, raw.device.device_id = device
    raw.dtype.code = tensor.code[0]
    return capsule


def view(tensor: Tensor) -> np.ndarray | TensorView:
    """Return a tensor as packed functions receive it: a NumPy array if NumPy has the dtype, else a `TensorView`."""
    return TensorView(tensor) if tensor.dtype.partition("x")[0] in STORAGE else as_array(tensor)
