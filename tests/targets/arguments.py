"""Random arguments for generated functions, and the comparison of what they become."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlcc.ir import tir
from mlcc.targets.plan.signature import signature
from tests.targets.build import from_bfloat16, to_bfloat16

TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}


def array(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """An array of small values; bfloat16 as bits."""
    if dtype == "bool":
        return np.asarray(rng.random(shape) > 0.5)
    if "int" in dtype:
        return np.asarray(rng.integers(0 if dtype[0] == "u" else -6, 7, shape)).astype(dtype)
    values = np.asarray(rng.uniform(-2, 2, shape)).astype("float32" if dtype == "bfloat16" else dtype)
    return to_bfloat16(values) if dtype == "bfloat16" else values


def arguments(func: tir.PrimFunc, seed: int, most: int = 8) -> tuple[list[Any], tuple[int, ...]]:
    """Arrays and scalars for a function, and the values of its symbols, from 1 to `most`. Strided buffers get strided
    arrays."""
    rng = np.random.default_rng(seed)
    symbols = signature(func).symbols
    sizes = {s: int(rng.integers(1, most + 1)) for s in symbols}
    for buffer in func.buffers:
        if buffer is not None and isinstance(buffer.elem_offset, tir.Var):
            sizes[buffer.elem_offset] = 0
    made: list[Any] = []
    for param, buffer in zip(func.params, func.buffers, strict=True):
        if buffer is None:
            made.append(array(str(param.dtype), (), rng)[()])
            continue
        shape = tuple(sizes[d] if isinstance(d, tir.Var) else tir.const_int(d) or 0 for d in buffer.shape)
        data = array(str(buffer.dtype), shape, rng)
        if buffer.strides:
            steps = tuple((tir.const_int(s) or 0) * data.itemsize for s in buffer.strides)
            reach = sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) // data.itemsize + 1
            room = array(str(buffer.dtype), (max(reach, 1),), rng)
            view = np.lib.stride_tricks.as_strided(room, shape, steps)
            view[...] = data
            data = view
        made.append(data)
    return made, tuple(sizes[s] for s in symbols)


def duplicate(args: list[Any]) -> list[Any]:
    """Arguments of their own memory, laid out alike."""
    made = []
    for arg in args:
        if not isinstance(arg, np.ndarray) or arg.flags.c_contiguous:
            made.append(arg.copy() if isinstance(arg, np.ndarray) else arg)
            continue
        room = np.zeros(
            1 + sum((n - 1) * s for n, s in zip(arg.shape, arg.strides, strict=True)) // arg.itemsize, arg.dtype
        )
        view = np.lib.stride_tricks.as_strided(room, arg.shape, arg.strides)
        view[...] = arg
        made.append(view)
    return made


def assert_alike(func: tir.PrimFunc, actual: list[Any], expected: list[Any], note: str, exact: bool = False) -> None:
    """Integers equal; floats within the tolerance of their dtype, NaN and infinities alike (all equal if `exact`)."""
    for buffer, a, e in zip(func.buffers, actual, expected, strict=True):
        if buffer is None:
            continue
        dtype = str(buffer.dtype)
        if dtype not in TOLERANCE:
            np.testing.assert_array_equal(a, e, err_msg=f"{note}, {buffer.name}")
            continue
        if dtype == "bfloat16":
            a, e = from_bfloat16(np.asarray(a)), from_bfloat16(np.asarray(e))
        tolerance = 0 if exact else TOLERANCE[dtype]
        np.testing.assert_allclose(
            a, e, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=f"{note}, {buffer.name}"
        )
