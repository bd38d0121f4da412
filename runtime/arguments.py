"""Convert a caller's values to slots of the argument vector, and pack the vector."""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlcc.errors import CallError, Diagnostic, error
from mlcc.runtime.abi import CPU, DLTENSOR, STORAGE, dtype_tag, element_bytes
from mlcc.runtime.dlpack import DeviceArgument, NotATensor, Tensor, as_array, borrow, overlaps_itself
from mlcc.runtime.manifest import Value, show_tensor


@dataclass(slots=True)
class Argument:
    """A converted argument: one slot of the argument vector."""

    leaf: Value
    label: str  # full name in messages
    name: str = ""  # short name in messages
    tensor: Tensor | None = None
    word: int = 0  # the cell of a scalar or pointer; the address of a tensor's shape
    words: tuple[int, ...] = ()  # the values of a shape, which the cell points to
    before: np.ndarray | None = None  # the caller's array, copied into `tensor` before each call
    after: np.ndarray | None = None  # the caller's array, copied from `tensor` after each call
    extended_dtype: np.dtype[Any] | None = None  # the dtype of an ml_dtypes array
    is_result: bool = False
    located: DeviceArgument | None = None  # set for a tensor in the memory of the device that runs the function


class RejectedArgument(Exception):
    """An argument that cannot be converted, with its diagnostic."""

    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = error(code, message, help=help)


# ---------------------------------------------------------------- converting arguments


def convert(leaf: Value, value: Any, label: str, writes: bool) -> Argument:
    """Convert a value to the declared kind. Raises Refused."""
    if leaf.kind == "tensor":
        return convert_tensor(leaf, value, label, writes)
    if leaf.kind == "scalar":
        return Argument(leaf, label, word=convert_scalar(leaf, value, label))
    if leaf.kind == "shape":
        return Argument(leaf, label, words=convert_shape(leaf, value, label))
    if value is None or isinstance(value, int):
        return Argument(leaf, label, word=value or 0)
    if isinstance(value, DeviceArgument):
        return Argument(leaf, label, tensor=value.tensor, word=value.tensor.address, located=value)
    try:
        tensor = borrow(value)
    except NotATensor as exc:
        raise RejectedArgument("E0803", f"{label} is {exc}, expected an address or an array") from None
    return Argument(leaf, label, tensor=tensor, word=tensor.address)


def convert_tensor(leaf: Value, value: Any, label: str, writes: bool) -> Argument:
    """Convert a tensor argument: the caller's memory, or a copy if its layout is not supported."""
    storage_dtype = STORAGE.get(leaf.dtype, leaf.dtype)
    if not leaf.dims and isinstance(value, (bool, int, float, np.generic)) and not writes:
        value = scalar_array(leaf, value, storage_dtype, label)
    located = value if isinstance(value, DeviceArgument) else None
    try:
        tensor = borrow(value) if located is None else located.tensor
    except NotATensor as exc:
        help = f"numpy.asarray(..., {leaf.dtype!r}) makes an array" if isinstance(value, (list, tuple)) else None
        raise RejectedArgument("E0803", f"{label} is {exc}, expected {show_tensor(leaf)}", help) from None
    exotic = value.dtype if isinstance(value, np.ndarray) and value.dtype.kind == "V" else None
    tagged = dtype_tag(value.dtype) if isinstance(value, np.ndarray) else None
    if tagged is not None and tagged != leaf.dtype:
        raise RejectedArgument("E0804", f"{label} is {tagged}, expected {show_tensor(leaf)}")
    if tensor.code != leaf.code:
        tensor = reinterpret(leaf, tensor, storage_dtype, label)
    if len(tensor.shape) != len(leaf.dims):
        count = len(tensor.shape)
        raise RejectedArgument(
            "E0805", f"{label} has {count} dimension{'s' if count != 1 else ''}, expected {show_tensor(leaf)}"
        )
    if writes and tensor.readonly:
        raise RejectedArgument("E0808", f"{label} is read-only, but the function writes it")
    if writes and overlaps_itself(tensor.shape, tensor.strides):
        raise RejectedArgument("E0809", f"{label} overlaps itself: elements share memory, but the function writes each")
    argument = Argument(leaf, label, tensor=tensor, extended_dtype=exotic, located=located)
    if located is not None:
        return argument  # the device checks its layout
    strided = tensor.strides is not None and leaf.strides is None
    width = max(1, element_bytes((leaf.code[0], leaf.code[1], 1)))
    if strided or tensor.address % width:
        original = as_array(tensor)
        copy = np.empty(original.shape, original.dtype)
        copied = Tensor(copy.__array_interface__["data"][0], tensor.shape, None, tensor.code, False, copy)
        argument.tensor = copied
        argument.before = original if leaf.role != "out" else None
        argument.after = original if writes else None
    return argument


def array_validator(leaf: Value, label: str) -> Callable[[tuple[int, ...], np.dtype[Any]], bool]:
    """Return a check of an array's shape and dtype against a parameter, made before the elements are read.

    The check raises CallError for a mismatch, and returns True if the declaration fixes the array's size.
    """

    def validate(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
        try:
            return _validate(leaf, label, shape, dtype)
        except RejectedArgument as exc:
            raise CallError(exc.diagnostic) from None

    return validate


def _validate(leaf: Value, label: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> bool:
    if leaf.kind == "scalar" and math.prod(shape) != 1:
        raise RejectedArgument("E0803", f"{label} is an array of shape {shape}, expected a number")
    if leaf.kind == "shape" and shape != (len(leaf.dims),):
        raise RejectedArgument(
            "E0805", f"{label} is an array of shape {shape}, expected a shape of {len(leaf.dims)} integers"
        )
    if leaf.kind != "tensor":
        return leaf.kind != "pointer"
    empty = np.empty((0,) * (len(shape) - 1) + tuple(min(d, 64) for d in shape[-1:]), dtype)  # takes no memory
    convert_tensor(leaf, empty, label, False)
    lanes = (leaf.code[2],) if leaf.code[2] > 1 and len(shape) > len(leaf.dims) else ()
    expected = (*leaf.dims, *lanes)
    if any(isinstance(dim, int) and dim != size for dim, size in zip(expected, shape, strict=True)):
        raise RejectedArgument("E0805", f"{label} has shape {shape}, expected {show_tensor(leaf)}")
    return all(isinstance(dim, int) for dim in expected)


def scalar_array(leaf: Value, value: Any, storage_dtype: str, label: str) -> np.ndarray:
    """Convert a number to a tensor without dimensions, if the dtype can represent it."""
    array = np.asarray(value)
    if isinstance(value, np.generic) or leaf.dtype in STORAGE:
        return array
    if not np.can_cast(array.dtype.type(0), storage_dtype, "same_kind"):
        raise RejectedArgument("E0804", f"{label} is a {type(value).__name__}, expected {show_tensor(leaf)}")
    try:
        return np.asarray(value, storage_dtype)
    except OverflowError:
        raise RejectedArgument("E0817", f"{label} is {value}, which {leaf.dtype} cannot represent") from None


def reinterpret(leaf: Value, tensor: Tensor, storage_dtype: str, label: str) -> Tensor:
    """Reinterpret an array as a dtype that NumPy lacks, or its last axis as the lanes of vectors."""
    code, bits, lanes = leaf.code
    base = (code, bits, 1)
    if leaf.dtype.partition("x")[0] in STORAGE and tensor.dtype == STORAGE[leaf.dtype.partition("x")[0]]:
        tensor = Tensor(tensor.address, tensor.shape, tensor.strides, base, tensor.readonly, tensor.owner)
    if lanes > 1 and tensor.code == base and tensor.strides is None and tensor.shape and tensor.shape[-1] == lanes:
        return Tensor(tensor.address, tensor.shape[:-1], None, leaf.code, tensor.readonly, tensor.owner)
    if tensor.code != leaf.code:
        help = (
            f'convert it by .astype("{leaf.dtype}")'
            if tensor.dtype in ("float64", "float32", "int64", "int32")
            else None
        )
        raise RejectedArgument("E0804", f"{label} is {tensor.dtype}, expected {show_tensor(leaf)}", help)
    return tensor


def convert_scalar(leaf: Value, value: Any, label: str) -> int:
    """Return the 64-bit cell of a scalar argument."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    kind, bits, _ = leaf.code
    if leaf.dtype == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise RejectedArgument("E0803", f"{label} is {value!r}, expected a bool")
        return int(value)
    if kind in (0, 1):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise RejectedArgument("E0803", f"{label} is {value!r}, expected an integer")
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind == 0 else (0, (1 << bits) - 1)
        if not low <= int(value) <= high:
            raise RejectedArgument("E0817", f"{label} is {value}, which {leaf.dtype} cannot represent")
        return int(value) & 0xFFFFFFFFFFFFFFFF
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        raise RejectedArgument("E0803", f"{label} is {value!r}, expected a number")
    try:
        return int(struct.unpack("<Q", struct.pack("<d", float(value)))[0])
    except OverflowError:
        raise RejectedArgument("E0817", f"{label} is {value}, which {leaf.dtype} cannot represent") from None


def convert_shape(leaf: Value, value: Any, label: str) -> tuple[int, ...]:
    """Return the values of a shape argument."""
    try:
        extents = tuple(int(v) for v in value)
    except (TypeError, ValueError):
        raise RejectedArgument(
            "E0803", f"{label} is {value!r}, expected a shape of {len(leaf.dims)} integers"
        ) from None
    if len(extents) != len(leaf.dims) or any(not -(1 << 63) <= v < 1 << 63 for v in extents):
        raise RejectedArgument("E0805", f"{label} is {extents}, expected a shape of {len(leaf.dims)} integers")
    return extents


def flatten(
    spec: Value, value: Any, function: str, name: str, arguments: list[Argument], findings: list[Diagnostic]
) -> None:
    """Convert a parameter (or results, if `name` is `out`), flattening tuples; diagnostics are collected."""
    writes = spec.role != "in" or name.partition("[")[0] == "out"
    label = f"argument `{name}` of `{function}`"
    try:
        if spec.kind != "tuple":
            arguments.append(convert(spec, value, label, writes))
            arguments[-1].name = name
            return
        if not isinstance(value, (tuple, list)) or len(value) != len(spec.fields):
            count = f" of {len(value)}" if isinstance(value, (tuple, list)) else ""
            raise RejectedArgument(
                "E0803", f"{label} is a {type(value).__name__}{count}, expected a tuple of {len(spec.fields)}"
            )
        for index, (part, item) in enumerate(zip(spec.fields, value, strict=True)):
            flatten(part, item, function, f"{name}[{index}]", arguments, findings)
    except RejectedArgument as exc:
        findings.append(exc.diagnostic)


# ---------------------------------------------------------------- the vector


def pack_arguments(arguments: list[Argument], results: int, extra: int) -> tuple[Any, int, int]:
    """Pack the argument vector and everything it points to into one buffer: (memory, address, query output)."""
    count = len(arguments)
    size = 8 * (count + extra)
    for argument in arguments:
        size += 8 * len(argument.words)
        if argument.leaf.kind == "tensor":
            size += DLTENSOR.size + 16 * len(argument.leaf.dims)
    memory = ctypes.create_string_buffer(size)
    base = ctypes.addressof(memory)
    offset = 8 * (count + extra)
    for index, argument in enumerate(arguments):
        cell = argument.word
        if argument.leaf.kind == "tensor":
            assert argument.tensor is not None
            cell, offset = base + offset, _pack_tensor(memory, base, offset, argument.tensor)
            argument.word = cell + DLTENSOR.size  # the address of its shape
        elif argument.words:
            struct.pack_into(f"<{len(argument.words)}q", memory, offset, *argument.words)
            cell, offset = base + offset, offset + 8 * len(argument.words)
            argument.word = cell
        elif argument.leaf.kind == "shape":
            cell = argument.word = base  # an empty shape: any valid address
        struct.pack_into("<Q", memory, 8 * index, cell)
    return memory, base, base + 8 * count


def _pack_tensor(memory: Any, base: int, offset: int, tensor: Tensor) -> int:
    ndim = len(tensor.shape)
    shape = offset + DLTENSOR.size
    strides = shape + 8 * ndim
    strides_address = base + strides if tensor.strides is not None else 0
    DLTENSOR.pack_into(memory, offset, tensor.address, CPU, 0, ndim, *tensor.code, base + shape, strides_address, 0)
    struct.pack_into(f"<{ndim}q", memory, shape, *tensor.shape)
    if tensor.strides is not None:
        struct.pack_into(f"<{ndim}q", memory, strides, *tensor.strides)
    return strides + 8 * ndim


def aliased_arguments(arguments: list[Argument]) -> tuple[Argument, Argument] | None:
    """Find an argument that is written through a copy, and another that shares memory with the caller's array."""
    for written in arguments:
        for other in arguments if written.after is not None else ():
            array = other.after if other.after is not None else other.before
            if array is None and other.tensor is not None and other.located is None and other.leaf.kind == "tensor":
                array = as_array(other.tensor)
            if other is not written and array is not None and _may_share_memory(written.after, array):
                return written, other
    return None


def _may_share_memory(a: np.ndarray | None, b: np.ndarray) -> bool:
    assert a is not None
    try:
        return np.shares_memory(a, b, max_work=1 << 16)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:  # assume so: their address ranges overlap
        return True


def address_range(tensor: Tensor) -> tuple[int, int]:
    """Return the address range of a tensor's elements."""
    last = 1
    for extent, stride in zip(tensor.shape, tensor.strides or (0,) * len(tensor.shape), strict=True):
        last = last * extent if tensor.strides is None else last + (extent - 1) * stride
    return tensor.address, tensor.address + last * element_bytes(tensor.code)
