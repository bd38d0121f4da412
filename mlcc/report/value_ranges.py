"""The ranges of a program's tensors, and what float16, bfloat16 and int8 make of their elements.

Elements are counted while the program runs (`mlcc.runtime.observer`), so nothing of a tensor is kept. Shares are exact.
Quantiles come from a histogram of 128 bins for each power of two: they are at most 2**-7 below the true ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mlcc.report.clamped import ClampingCalls
from mlcc.report.nan_check import values
from mlcc.runtime.observer import AFTER, ObservedTensor, Site

QUANTILES = (0.5, 0.99, 0.999)
_MAX_SUMMARY = 8  # tensors that a summary names


@dataclass(frozen=True)
class Format:
    """A binary floating-point format of IEEE 754: bits of the fraction, and exponents of its normal numbers."""

    name: str
    fraction: int
    lowest: int
    highest: int

    def lost(self, size: np.ndarray) -> tuple[int, int, int]:
        """Count, of finite magnitudes, those that round to infinity, to a subnormal number, and to zero.

        Rounding is to nearest, ties to even. Magnitudes of 0 are not counted.
        """
        half_step = 2.0 ** (self.lowest - self.fraction - 1)  # of subnormal numbers
        over = int((size >= (2 - 2.0 ** -(self.fraction + 1)) * 2.0**self.highest).sum())
        zero = int(((size > 0) & (size <= half_step)).sum())
        small = int(((size > half_step) & (size < 2.0**self.lowest - half_step)).sum())
        return over, small, zero


FORMATS = (Format("float16", 10, -14, 15), Format("bfloat16", 7, -126, 127))
LIMITS = {"int8": (-128, 127), "uint8": (0, 255)}


@dataclass
class TensorRange:
    """The elements of a tensor, over all calls. `lost` has the counts of `Format.lost` by format."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    made_by: str = ""
    file: str | None = None
    line: int | None = None
    origin: str = ""
    calls: int = 0
    count: int = 0
    zeros: int = 0
    nan: int = 0
    infinite: int = 0
    least: float = np.inf
    greatest: float = -np.inf
    lost: dict[str, list[int]] = field(default_factory=lambda: {f.name: [0, 0, 0] for f in FORMATS})
    at_limits: int | None = None
    clamped: int | None = None  # elements beyond the limits of the operator that made them; None if not all are known
    _bins: dict[int, int] = field(default_factory=dict, repr=False)

    def add(self, array: np.ndarray) -> None:
        """Count the elements of a call."""
        self.calls += 1
        self.shape = array.shape
        self.count += array.size
        if self.dtype in LIMITS:
            low, high = LIMITS[self.dtype]
            self.at_limits = (self.at_limits or 0) + int(((array == low) | (array == high)).sum())
        wide = array.astype(np.float64).ravel()
        finite = wide[np.isfinite(wide)] if array.dtype.kind == "f" else wide
        self.nan += int(np.isnan(wide).sum())
        self.infinite += int(np.isinf(wide).sum())
        if not finite.size:
            return
        self.zeros += int((finite == 0).sum())
        self.least = min(self.least, float(finite.min()))
        self.greatest = max(self.greatest, float(finite.max()))
        size = np.abs(finite)
        if array.dtype.kind == "f":
            for form in FORMATS:
                self.lost[form.name] = [a + b for a, b in zip(self.lost[form.name], form.lost(size), strict=True)]
        bins, counts = np.unique(size.view(np.int64) >> (52 - 7), return_counts=True)
        for at, count in zip(bins.tolist(), counts.tolist(), strict=True):
            self._bins[at] = self._bins.get(at, 0) + count

    def quantile(self, share: float) -> float:
        """Return a magnitude that at least this share of the finite elements does not exceed by more than 2**-7."""
        total = sum(self._bins.values())
        passed = 0
        for at in sorted(self._bins):
            passed += self._bins[at]
            if passed >= share * total:
                return float(np.array([at << (52 - 7)], np.int64).view(np.float64)[0])
        return 0.0

    def share(self, count: int) -> float:
        return count / self.count if self.count else 0.0

    @property
    def is_float(self) -> bool:
        return "float" in self.dtype

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON data; shares are of all elements."""
        found: dict[str, Any] = {
            "name": self.name, "dtype": self.dtype, "shape": list(self.shape), "made_by": self.made_by or None,
            "file": self.file, "line": self.line, "origin": self.origin or None, "calls": self.calls,
            "elements": self.count, "nan": self.nan, "infinite": self.infinite, "zeros": self.zeros,
            "min": self.least if self._bins else None, "max": self.greatest if self._bins else None,
            "abs_quantiles": {f"{q:g}": self.quantile(q) for q in QUANTILES} if self._bins else None,
        }  # fmt: skip
        if self.is_float:
            words = ("overflow", "subnormal", "zero")
            for name, counts in self.lost.items():
                found[name] = {word: self.share(count) for word, count in zip(words, counts, strict=True)}
        if self.at_limits is not None:
            found["at_limits"] = self.share(self.at_limits)
        if self.clamped is not None:
            found["clamped"] = self.share(self.clamped)
        return found


class ValueRanges:
    """An observer that collects the ranges of arguments, constants and all results, in order of first use."""

    def __init__(self, sites: Sequence[Site], clamping: ClampingCalls | None = None) -> None:
        self.sites = sites
        self._clamping = clamping
        self._found: dict[Any, TensorRange] = {}

    @property
    def tensors(self) -> list[TensorRange]:
        return list(self._found.values())

    def __call__(self, site: int, phase: int, *tensors: Any) -> None:
        if phase != AFTER:
            return
        known = self.sites[site]
        outputs = sum(t.written for t in known.tensors)
        for at, (tensor, given) in enumerate(zip(known.tensors, tensors, strict=True)):
            array = values(given, tensor.dtype)
            key: Any = (site, at)
            if not tensor.written:
                if tensor.place not in ("argument", "constant"):
                    continue
                key = (known.function, tensor.place, tensor.number, array.shape)
                if key in self._found:
                    continue
            if key not in self._found:
                self._found[key] = _described(known, tensor, at, outputs)
            found = self._found[key]
            if tensor.written and outputs == 1 and self._clamping is not None:
                read = [values(t, k.dtype) for k, t in zip(known.tensors, tensors, strict=True) if not k.written]
                count = self._clamping.count(known, read, array)
                is_known = count is not None and (found.calls == 0 or found.clamped is not None)
                found.clamped = (found.clamped or 0) + (count or 0) if is_known else None
            found.add(array)


def _described(site: Site, tensor: ObservedTensor, at: int, outputs: int) -> TensorRange:
    if not tensor.written:
        name = tensor.name if tensor.place == "argument" else f"{tensor.name} of {site.name}"
        return TensorRange(name, tensor.dtype, (), tensor.place)
    name = site.binding or (tensor.name if site.kind == "kernel" else site.name)
    if outputs > 1:
        name += f"[{at - sum(not t.written for t in site.tensors)}]"
    return TensorRange(name, tensor.dtype, (), site.name, site.file, site.line, site.origin)


def as_json(path: str, func: str, tensors: Sequence[TensorRange]) -> dict[str, Any]:
    """Return the ranges as JSON data."""
    return {"file": path, "function": func, "tensors": [one.as_json() for one in tensors]}


_HEAD = (
    "min", "max", "|x| 50%", "99%", "99.9%", "f16 over", "f16 sub", "f16 zero", "bf16 over", "bf16 sub", "bf16 zero",
    "at limits", "clamped", "tensor",
)  # fmt: skip


def table(path: str, func: str, tensors: Sequence[TensorRange]) -> list[str]:
    """Return the ranges as lines of text, and which tensors lose most in each format."""
    cells = [_HEAD, *(_cells(one, path) for one in tensors)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [f"{func} of {path}: {len(tensors)} tensors", ""]
    for *figures, name in cells:
        row = "  ".join(figure.rjust(width) for figure, width in zip(figures, widths, strict=False))
        lines.append(f"{row}  {name}")
    return [*lines, "", *_summary(tensors)]


def _cells(one: TensorRange, path: str) -> tuple[str, ...]:
    has_values = bool(one._bins)
    figures = (one.least, one.greatest, *(one.quantile(q) for q in QUANTILES)) if has_values else ()
    numbers = [f"{figure:.3g}" for figure in figures] or [""] * (2 + len(QUANTILES))
    lost = [_percent(one.share(n)) if one.is_float else "" for f in FORMATS for n in one.lost[f.name]]
    limits = "" if one.at_limits is None else _percent(one.share(one.at_limits))
    where = "" if one.line is None else f"  {'line ' if one.file == path else f'{one.file}:'}{one.line}"
    bad = f"  {one.nan} NaN, {one.infinite} infinite" if one.nan or one.infinite else ""
    origin = f" ({one.origin.split(' ')[0]})" if one.origin else ""
    made = f"  {one.made_by}" if one.made_by else ""
    name = f"{one.name}: {one.dtype}{list(one.shape)}{made}{where}{origin}{bad}"
    clamped = "" if one.clamped is None else _percent(one.share(one.clamped))
    return (*numbers, *lost, limits, clamped, name)


def _percent(share: float) -> str:
    """Format a share; nothing for 0, and never 0% or 100% for other than these."""
    if share == 0:
        return "."
    if share == 1:
        return "100%"
    text = f"{100 * share:.2g}"
    return "99.9%" if float(text) >= 100 else f"{text}%" if share >= 1e-5 else "<0.001%"


def _summary(tensors: Sequence[TensorRange]) -> list[str]:
    lines = []
    for form in FORMATS:
        for word, at in (("overflows", slice(0, 1)), ("loses precision or becomes 0", slice(1, 3))):
            shares = [(one.share(sum(one.lost[form.name][at])), one.name) for one in tensors if one.is_float]
            lines += _named(f"{form.name} {word}", shares)
    limits = [(one.share(one.at_limits), one.name) for one in tensors if one.at_limits is not None]
    lines += _named("8-bit integers are at a limit", limits)
    clamped = [(one.share(one.clamped), one.name) for one in tensors if one.clamped is not None]
    lines += _named("elements beyond the limits were clamped", clamped)
    return lines or ["float16 and bfloat16 hold every element as a normal number"]


def _named(what: str, shares: Sequence[tuple[float, str]]) -> list[str]:
    suffering = sorted(((share, name) for share, name in shares if share), key=lambda one: -one[0])
    if not suffering:
        return []
    shown = ", ".join(f"`{name}` {_percent(share)}" for share, name in suffering[:_MAX_SUMMARY])
    more = f" and {len(suffering) - _MAX_SUMMARY} more" if len(suffering) > _MAX_SUMMARY else ""
    return [f"{what} in {shown}{more}"]
