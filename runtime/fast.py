"""The fast path of a call: compact NumPy arrays in, new NumPy arrays out.

The argument vector of a function is laid out once, in areas that calls reuse; a call only fills in addresses, and
extents that differ from those of the call before. Anything unusual takes the general path, `Function.bind`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mlcc.runtime.abi import CPU, DLTENSOR, OFFSET, STORAGE
from mlcc.runtime.manifest import FunctionSpec, Value, evaluate

_DATA = OFFSET["data"] // 8
_SHAPE = DLTENSOR.size // 8
COMPACT = 0x0001 | 0x0100  # of ndarray.flags.num: C_CONTIGUOUS, ALIGNED
_first_byte = ctypes.c_char.from_buffer
_addressof = ctypes.addressof


class Area:
    """The argument vector of one function with its DLTensors, as 64-bit cells.

    `run_args` are the arguments of the native function, once the query function has accepted the current extents, and
    `workspace` is the memory that they name.
    """

    __slots__ = ("base", "buffer", "cells", "facts", "run_args", "shapes", "workspace")

    def __init__(self, tensors: tuple[Value, ...], extra: int) -> None:
        count = len(tensors)
        size = 8 * (count + extra) + sum(DLTENSOR.size + 8 * len(t.dims) for t in tensors)
        self.buffer = ctypes.create_string_buffer(size)
        self.base = ctypes.addressof(self.buffer)
        self.facts = self.base + 8 * count
        self.cells = memoryview(self.buffer).cast("B").cast("q")
        self.shapes: list[tuple[int, ...] | None] = [None] * count
        self.run_args: tuple[int, int, int] | None = None
        self.workspace: Any = None
        at = 8 * (count + extra)
        for index, tensor in enumerate(tensors):
            ndim = len(tensor.dims)
            shape = self.base + at + DLTENSOR.size
            DLTENSOR.pack_into(self.buffer, at, 0, CPU, 0, ndim, *tensor.code, shape, 0, 0)
            self.cells[index] = self.base + at
            at += DLTENSOR.size + 8 * ndim

    def reshape(self, index: int, cell: int, shape: tuple[int, ...]) -> None:
        """Change the shape of argument `index`, whose DLTensor starts at `cell`; it has to be checked again."""
        self.shapes[index] = shape
        self.run_args = None
        for at, extent in enumerate(shape, cell + _SHAPE):
            self.cells[at] = extent


def address_of(array: np.ndarray) -> int:
    """Return the address of the elements by the fastest way that Python has."""
    try:
        return _addressof(_first_byte(array))  # type: ignore[arg-type]  # an array is a buffer
    except (TypeError, ValueError, BufferError):  # read-only or empty
        return array.__array_interface__["data"][0]  # type: ignore[no-any-return]


class FastPath:
    """The fast path of a relax function whose parameters and results are plain tensors of NumPy dtypes."""

    __slots__ = (
        "areas",
        "count",
        "data_cells",
        "dtypes",
        "extra",
        "inputs",
        "ndims",
        "outputs",
        "cell_offsets",
        "single",
        "symbols",
    )

    def __init__(self, spec: FunctionSpec, results: tuple[Value, ...], single: bool) -> None:
        self.inputs = spec.params
        self.outputs = results
        self.single = single
        self.count = len(self.inputs)
        tensors = (*self.inputs, *self.outputs)
        self.dtypes = [np.dtype(t.dtype) for t in tensors]
        self.ndims = [len(t.dims) for t in tensors]
        self.extra = 1 + len(spec.symbols)
        self.cell_offsets = []
        at = len(tensors) + self.extra
        for tensor in tensors:
            self.cell_offsets.append(at)
            at += DLTENSOR.size // 8 + len(tensor.dims)
        self.data_cells = [at + _DATA for at in self.cell_offsets]
        # symbol -> (argument, axis) that determines it
        self.symbols = {
            dim: (index, axis)
            for index, tensor in reversed(list(enumerate(self.inputs)))
            for axis, dim in reversed(list(enumerate(tensor.dims)))
            if isinstance(dim, str)
        }
        self.areas: list[Area] = []

    @staticmethod
    def of(spec: FunctionSpec) -> FastPath | None:
        """Return the fast path of a function; None if its signature does not allow one."""
        if spec.kind != "relax" or spec.results is None:
            return None
        results = spec.results.fields if spec.results.kind == "tuple" else (spec.results,)
        if not results or not all(is_plain_tensor(v) for v in (*spec.params, *results)):
            return None
        return FastPath(spec, results, spec.results.kind != "tuple")

    def prepare(self, args: tuple[Any, ...], out: Any = None) -> tuple[Area, list[np.ndarray]] | None:
        """Fill an area with the arguments and the results, which are new arrays unless given as `out`.

        Return None if the general path is needed.
        """
        if len(args) != self.count:
            return None
        arrays = args
        if out is not None:
            if not self.single and (type(out) is not tuple or len(out) != len(self.outputs)):
                return None
            arrays = (*args, out) if self.single else (*args, *out)
        for array, dtype, ndim in zip(arrays, self.dtypes, self.ndims, strict=False):
            if type(array) is not np.ndarray or array.dtype is not dtype or array.ndim != ndim:
                return None
            if array.flags.num & COMPACT != COMPACT:
                return None
        try:
            area = self.areas.pop()
        except IndexError:
            area = Area((*self.inputs, *self.outputs), self.extra)
        shapes, cell_offsets, cells = area.shapes, self.cell_offsets, area.cells
        index = 0
        for array in arrays:
            shape = array.shape
            if shape != shapes[index]:
                area.reshape(index, cell_offsets[index], shape)
            cells[cell_offsets[index] + _DATA] = address_of(array)
            index += 1
        if out is not None:
            area.run_args = None  # it may overlap an input
            results = list(arrays[self.count :])
            return (area, results) if all(a.flags.writeable for a in results) else None
        results = []
        try:
            if area.run_args is None:
                for at in range(len(self.outputs)):
                    area.reshape(index + at, cell_offsets[index + at], self._shape(at, args))
            for dtype in self.dtypes[index:]:
                array = np.empty(shapes[index], dtype)
                cells[cell_offsets[index] + _DATA] = address_of(array)
                results.append(array)
                index += 1
        except (ValueError, MemoryError, OverflowError):
            return None
        return area, results

    def _shape(self, index: int, args: tuple[Any, ...]) -> tuple[int, ...]:
        """Return the shape of a result for the arguments' shapes."""
        symbols = {name: args[i].shape[axis] for name, (i, axis) in self.symbols.items()}
        return tuple(evaluate(d, symbols) for d in self.outputs[index].dims)


def is_plain_tensor(value: Value) -> bool:
    """Return True for a tensor of a NumPy dtype without lanes, declared strides and data-dependent extents."""
    plain = value.kind == "tensor" and value.strides is None and value.code[2] == 1 and value.dtype not in STORAGE
    return plain and not value.at_most
