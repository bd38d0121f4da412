"""The short way of a call: compact NumPy arrays in, fresh NumPy arrays out.

What a function's arguments look like is laid down once, in areas of memory that calls take turns with; a call only
fills in addresses and extents. Anything unusual goes the long way, by `Function.bind`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mlcc.runtime.abi import CPU, DLTENSOR, OFFSET, STORAGE
from mlcc.runtime.manifest import Dim, FunctionSpec, Value, evaluate

_DATA = OFFSET["data"] // 8


class Area:
    """The argument vector of one function with its DLTensors, as 64-bit cells."""

    __slots__ = ("base", "buffer", "cells", "shapes")

    def __init__(self, tensors: tuple[Value, ...], extra: int) -> None:
        count = len(tensors)
        size = 8 * (count + extra) + sum(DLTENSOR.size + 8 * len(t.dims) for t in tensors)
        self.buffer = ctypes.create_string_buffer(size)
        self.base = ctypes.addressof(self.buffer)
        self.cells = memoryview(self.buffer).cast("B").cast("q")
        self.shapes: list[tuple[int, ...] | None] = [None] * count
        at = 8 * (count + extra)
        for index, tensor in enumerate(tensors):
            ndim = len(tensor.dims)
            shape = self.base + at + DLTENSOR.size
            DLTENSOR.pack_into(self.buffer, at, 0, CPU, 0, ndim, *tensor.code, shape, 0, 0)
            self.cells[index] = self.base + at
            at += DLTENSOR.size + 8 * ndim

    def place(self, index: int, cell: int, array: np.ndarray) -> None:
        """Have argument `index`, whose DLTensor starts at `cell`, be an array."""
        self.cells[cell + _DATA] = array.__array_interface__["data"][0]
        shape = array.shape
        if shape != self.shapes[index]:
            self.shapes[index] = shape
            at = cell + DLTENSOR.size // 8
            for extent in shape:
                self.cells[at] = extent
                at += 1


class FastPath:
    """Calls of a relax function whose parameters and results are plain tensors of dtypes that NumPy has."""

    __slots__ = (
        "areas",
        "count",
        "dtypes",
        "extra",
        "inputs",
        "ndims",
        "outputs",
        "places",
        "shapes",
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
        self.places = []
        at = len(tensors) + self.extra
        for tensor in tensors:
            self.places.append(at)
            at += DLTENSOR.size // 8 + len(tensor.dims)
        # where each symbol is read, and the results' shapes where they are constant
        self.symbols = {
            dim: (index, axis)
            for index, tensor in reversed(list(enumerate(self.inputs)))
            for axis, dim in reversed(list(enumerate(tensor.dims)))
            if isinstance(dim, str)
        }
        self.shapes: list[tuple[Dim, ...] | None] = [
            t.dims if all(isinstance(d, int) for d in t.dims) else None for t in self.outputs
        ]
        self.areas: list[Area] = []

    @staticmethod
    def of(spec: FunctionSpec) -> FastPath | None:
        """The short way for a function, if it is one that has it."""
        if spec.kind != "relax" or spec.results is None:
            return None
        results = spec.results.fields if spec.results.kind == "tuple" else (spec.results,)
        if not results or not all(_is_plain(v) for v in (*spec.params, *results)):
            return None
        return FastPath(spec, results, spec.results.kind != "tuple")

    def prepare(self, args: tuple[Any, ...]) -> tuple[Area, list[np.ndarray]] | None:
        """An area that holds the arguments, and fresh results; None if something needs the long way."""
        for array, dtype, ndim in zip(args, self.dtypes, self.ndims, strict=False):
            if type(array) is not np.ndarray or array.dtype is not dtype or array.ndim != ndim:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
        try:
            results = [self._fresh(index, args) for index in range(len(self.outputs))]
        except (ValueError, MemoryError, OverflowError):
            return None
        try:
            area = self.areas.pop()
        except IndexError:
            area = Area((*self.inputs, *self.outputs), self.extra)
        for index, array in enumerate((*args, *results)):
            area.place(index, self.places[index], array)
        return area, results

    def _fresh(self, index: int, args: tuple[Any, ...]) -> np.ndarray:
        shape: Any = self.shapes[index]
        if shape is None:
            symbols = {name: args[i].shape[axis] for name, (i, axis) in self.symbols.items()}
            shape = tuple(evaluate(d, symbols) for d in self.outputs[index].dims)
        return np.empty(shape, self.dtypes[self.count + index])


def _is_plain(value: Value) -> bool:
    """A tensor without lanes or declared strides, of a dtype that NumPy has."""
    return value.kind == "tensor" and value.strides is None and value.code[2] == 1 and value.dtype not in STORAGE
