"""Memory layout of tensors as the exporter states it: decides whether a reshaped tensor is a view or a copy.

Extents and strides may be expressions. A property is tested for several sizes, which must agree.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from mlcc.frontend.aten.graph import Extent, TensorMeta
from mlcc.frontend.aten.symbols import parse_extent, symbols_of
from mlcc.frontend.problems import Unsupported
from mlcc.ir import construct as c
from mlcc.ir import tir

_SAMPLES = (0, 1, 2)
_Answer = TypeVar("_Answer")


def is_same_layout(a: TensorMeta, b: TensorMeta) -> bool:
    """Return True if two tensors have equal shapes and strides."""
    if a.shape == b.shape and a.strides == b.strides and a.strides is not None:
        return True
    return _decide(lambda x, y: _canonical_layout(*x) == _canonical_layout(*y), a, b)


def is_contiguous(meta: TensorMeta) -> bool:
    """Return True if a tensor is contiguous and row-major."""
    return _decide(lambda x: _canonical_layout(*x) == _canonical_layout(x[0], _contiguous_strides(x[0])), meta)


def is_view(source: TensorMeta, result: TensorMeta) -> bool:
    """Return True if a reshape is a view: no element has to move."""
    return _decide(lambda x, y: _view_strides(x[0], x[1], y[0]) is not None, source, result)


_Layout = tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides


def _decide(question: Callable[..., bool], *metas: TensorMeta) -> bool:
    answers = {question(*(_sample_layout(meta, sample) for meta in metas)) for sample in _SAMPLES}
    if len(answers) > 1:
        raise Unsupported("whether it is a view or a copy depends on its sizes")
    return answers.pop()


def _sample_layout(meta: TensorMeta, sample: int) -> _Layout:
    if meta.strides is None:
        raise Unsupported("the program does not state the strides of a tensor")
    return _numbers(meta.shape, sample), _numbers(meta.strides, sample)


def _numbers(given: Sequence[Extent], sample: int) -> tuple[int, ...]:
    return tuple(e if isinstance(e, int) else _evaluate_sample(e, sample) for e in given)


@functools.lru_cache(maxsize=4096)
def _evaluate_sample(text: str, sample: int) -> int:
    symbols: dict[str, tir.Expr] = {
        name: c.const(5 + zlib.crc32(f"{name} {sample}".encode()) % 400, "int64") for name in symbols_of(text)
    }
    number = tir.const_int(parse_extent(text, symbols))
    if number is None:
        raise Unsupported(f"`{text[:200]}` is not an extent")
    return number


def _canonical_layout(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return extents and strides, with irrelevant strides set to 0."""
    if 0 in shape:
        return tuple((n, 0) for n in shape)
    return tuple((n, s if n != 1 else 0) for n, s in zip(shape, strides, strict=True))


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _view_strides(shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...] | None:
    """Return the strides of a tensor viewed in another shape; None if a copy is needed. See torch's `computeStride`."""
    if 0 in shape or not shape:
        return _contiguous_strides(wanted)
    result = [0] * len(wanted)
    at = len(wanted) - 1
    run, base = 1, strides[-1]
    for i in reversed(range(len(shape))):
        run *= shape[i]
        if i and (shape[i - 1] == 1 or strides[i - 1] == run * base):
            continue
        filled = 1
        while at >= 0 and (filled < run or wanted[at] == 1):
            result[at] = filled * base
            filled *= wanted[at]
            at -= 1
        if filled != run:
            return None
        if i:
            base, run = strides[i - 1], 1
    return tuple(result) if at < 0 else None
