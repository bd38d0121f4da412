"""Find the first call that makes a NaN or an infinity out of inputs that have none, for `mlcc run --check-nan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mlcc.errors import Diagnostic, NotFiniteError, Source, Span, error
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode
from mlcc.runtime.observer import BEFORE, ObservedTensor, Site

_MAX_INPUTS = 8  # that a message describes


class NanCheck:
    """An observer that raises NotFiniteError (E0877) at the first culprit.

    That is a call whose result has a NaN while its inputs have none, or an infinity while its inputs have neither. With
    `allow_infinity` infinities are as good as other numbers. `calls` counts the calls. `texts` are the sources that
    messages show, by file.
    """

    def __init__(self, sites: Sequence[Site], allow_infinity: bool = False, texts: Mapping[str, str] = {}) -> None:  # noqa: B006
        self.sites = sites
        self.allow_infinity = allow_infinity
        self.texts = texts
        self.calls = 0
        self._before: list[np.ndarray] = []  # copies of what the call under way changes in place

    def __call__(self, site: int, phase: int, *tensors: Any) -> None:
        known = self.sites[site]
        if phase == BEFORE:
            changed = [t for t in known.tensors if t.in_place]
            self._before = [values(a, t.dtype).copy() for a, t in zip(tensors, changed, strict=True)]
            return
        before, self._before = self._before, []
        self.calls += 1
        arrays = [values(a, t.dtype) for a, t in zip(tensors, known.tensors, strict=True)]
        given = [(t, a) for t, a in zip(known.tensors, arrays, strict=True) if not t.written]
        given += zip((t for t in known.tensors if t.in_place), before, strict=True)
        for tensor, array in zip(known.tensors, arrays, strict=True):
            if tensor.written and not self.is_good(array) and self._is_culprit(array, given):
                raise NotFiniteError(self._finding(known, tensor, array, given))

    def is_good(self, array: np.ndarray) -> bool:
        """Return True if no element of an array is to be found."""
        if array.dtype.kind not in "fc":
            return True
        return not np.isnan(array).any() if self.allow_infinity else bool(np.isfinite(array).all())

    def _is_culprit(self, result: np.ndarray, given: Sequence[tuple[ObservedTensor, np.ndarray]]) -> bool:
        floats = [array for _, array in given if array.dtype.kind in "fc"]
        if np.isnan(result).any():
            return not any(np.isnan(array).any() for array in floats)
        return all(np.isfinite(array).all() for array in floats)

    def _finding(
        self, site: Site, tensor: ObservedTensor, result: np.ndarray,
        given: Sequence[tuple[ObservedTensor, np.ndarray]],
    ) -> Diagnostic:  # fmt: skip
        nan = np.isnan(result)
        bad = nan if nan.any() else ~np.isfinite(result)
        at = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape)) if bad.shape else ()
        what = "a NaN" if nan.any() else "an infinity"
        kind = "kernel" if site.kind == "kernel" else "packed function"
        message = (
            f"the {kind} `{site.name}` makes {what}: {describe_bad(result)} in its result {_form(tensor, result)}"
            f"{f' (`{site.binding}`)' if site.binding else ''}; element {list(at)} is {result[at]!s}"
        )
        notes = [_described(t, a, at, result.shape) for t, a in given[:_MAX_INPUTS]]
        if len(given) > _MAX_INPUTS:
            notes.append(f"and {len(given) - _MAX_INPUTS} more")
        help = f"its inputs: {'; '.join(notes)}" if notes else "it has no inputs"
        if site.name.startswith("fused_"):
            help += ". With -O0 its operators run one by one"
        span = self._span(site)
        label = site.origin or ("this call" if span is not None or site.line is None else f"in line {site.line}")
        return error("E0877", message, span, label, help=help, file=site.file)

    def _span(self, site: Site) -> Span | None:
        text = self.texts.get(site.file or "")
        if text is None or site.line is None or site.end > len(text):
            return None
        return Span(Source(site.file or "", text), site.start, site.end)


def values(array: Any, dtype: str) -> np.ndarray:
    """Return the values of a tensor that an observer got, narrow floats as float32."""
    return decode(array.bits, DType.of(dtype)) if hasattr(array, "bits") else np.asarray(array)


def describe_bad(array: np.ndarray) -> str:
    """Say how many elements of an array are NaNs and infinities."""
    counts = (("NaN", int(np.isnan(array).sum())), ("infinite", int(np.isinf(array).sum())))
    shown = " and ".join(f"{count} {word}" for word, count in counts if count)
    return f"{shown} of {array.size} elements"


def _form(tensor: ObservedTensor, array: np.ndarray) -> str:
    return f"{tensor.dtype}{list(array.shape)}"


def _described(tensor: ObservedTensor, array: np.ndarray, at: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """Describe an input: its range, and its element at the same place as that of a result of `shape`."""
    text = f"`{tensor.name}` {_form(tensor, array)}"
    if not array.size:
        return f"{text} is empty"
    here = _same_place(array.shape, at, shape)
    if here is not None:
        text += f" is {array[here]!s} at {list(here)}" if here else f" is {array[()]!s}"
    return f"{text}, from {array.min()!s} to {array.max()!s}" if here is None or here else text


def _same_place(own: tuple[int, ...], at: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index that `at` in `shape` has in an array that broadcasts to it; None for one that does not."""
    if len(own) > len(shape) or any(n not in (1, m) for n, m in zip(own[::-1], shape[::-1], strict=False)):
        return None
    return tuple(0 if n == 1 else i for n, i in zip(own, at[len(at) - len(own) :], strict=True))
