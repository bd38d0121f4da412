"""Random arguments of a kernel, reproducible by a seed."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import encode
from mlcc.ir.tensor_data import storage_dtype
from mlcc.tune.measure.kernel import Argument

Bytes = npt.NDArray[np.uint8]
_CHUNK = 1 << 20  # elements drawn at a time
_INTEGER_LIMIT = 8  # upper bound of integers of 16 bits and more, which may be indices, shifts or sizes


class ValueDistribution(enum.Enum):
    """The distribution of an argument's random elements."""

    SIGNED = "signed"  # floats in (-1, 1): sums stay small, so that a missing term is detected
    POSITIVE = "positive"  # floats in (0.1, 1): for logarithms, roots and divisors
    ZERO = "zero"


def size_of(argument: Argument) -> int:
    """Return the size of a tensor in bytes, 0 for a scalar."""
    if argument.shape is None:
        return 0
    dtype = DType.of(argument.dtype)
    return math.prod(argument.shape) * dtype.bytes * dtype.lanes


def fill(memory: Sequence[Bytes], arguments: Sequence[Argument], seed: int, values: ValueDistribution) -> None:
    """Write values for the tensors among `arguments` into their memory.

    Output-only tensors are poisoned with NaN or the largest integer, which reveals reads and elements left unwritten.
    """
    for at, (argument, into) in enumerate(zip(arguments, memory, strict=True)):
        if argument.shape is None or not into.size:
            continue
        dtype = DType.of(argument.dtype).element
        array = into.view(storage_dtype(dtype))
        if argument.written and not argument.read:
            array[:] = _poison_value(dtype, array.dtype)
            continue
        generator = np.random.Generator(np.random.PCG64([seed, at]))
        for begin in range(0, array.size, _CHUNK):
            part = array[begin : begin + _CHUNK]
            part[:] = _draw(generator, part.size, dtype, part.dtype, argument.below, values)


def _poison_value(dtype: DType, stored: np.dtype[Any]) -> Any:
    if dtype.is_float:
        return encode(np.nan, dtype)
    return True if stored == np.bool_ else np.iinfo(stored).max


def _draw(
    generator: np.random.Generator,
    count: int,
    dtype: DType,
    stored: np.dtype[Any],
    below: int | None,
    values: ValueDistribution,
) -> Any:
    if values is ValueDistribution.ZERO:
        return np.zeros(count, stored)
    if dtype.is_float:
        low = -1.0 if values is ValueDistribution.SIGNED else 0.1
        return encode(generator.uniform(low, 1.0, count), dtype)
    if stored == np.bool_ or dtype.bits == 1:
        return generator.integers(0, 2, count).astype(stored)
    if below is not None:
        return generator.integers(0, max(below, 1), count).astype(stored)
    if dtype.bits == 8 and values is ValueDistribution.SIGNED:
        info = np.iinfo(stored)
        return generator.integers(info.min, info.max + 1, count).astype(stored)
    return generator.integers(0, _INTEGER_LIMIT, count).astype(stored)
