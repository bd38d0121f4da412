"""Layouts with split axes, such as NCHW4c: parsing, legality for a tensor, and index maps between layouts.

Where a layout is a permutation, an entry is the number of an axis of the original tensor; where it splits an axis,
`Inner` is the part of extent `factor` that runs fastest, and the number of the axis what is left of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import INT32, INT64

LayoutParts = tuple[tuple[str, int | None], ...]  # letters in upper case; the factor of an inner part
_PART = re.compile(r"([A-Z])|([1-9]\d{0,8})([a-z])")


def parse_layout(layout: str) -> LayoutParts | None:
    """Parse the axes of a layout; None for an invalid one: repeated axes, inner parts without an axis."""
    parts: list[tuple[str, int | None]] = []
    at = 0
    for match in _PART.finditer(layout):
        if match.start() != at:
            return None
        at = match.end()
        parts.append((match[1], None) if match[1] else (match[3].upper(), int(match[2])))
    outer = [letter for letter, factor in parts if factor is None]
    inner = [letter for letter, factor in parts if factor is not None]
    doubled = len(set(outer)) < len(outer) or len(set(inner)) < len(inner)
    return None if at < len(layout) or doubled or not set(inner) <= set(outer) else tuple(parts)


def is_blocked(layout: Any) -> bool:
    """Return True if a layout string splits axes, as `NCHW16c` does."""
    return isinstance(layout, str) and any(c.isdigit() for c in layout)


def outer_letters(layout: str) -> str:
    """The letters of a layout without its inner parts."""
    return "".join(c for c in layout if c.isupper())


@dataclass(frozen=True)
class InnerAxis:
    """The inner part of a split axis, of extent `factor`."""

    axis: int
    factor: int


Entries = tuple[Any, ...]  # int or Inner


def is_split(layout: Any) -> bool:
    """Return True if a layout has inner parts of split axes."""
    return isinstance(layout, tuple) and any(isinstance(entry, InnerAxis) for entry in layout)


def num_outer_axes(layout: Entries) -> int:
    """The number of axes of the original tensor."""
    return sum(isinstance(entry, int) for entry in layout)


def layout_entries(name: str, letters: str) -> Entries:
    """The layout that a name such as `NHWC4c` means for a tensor in the layout `letters`."""
    parts = parse_layout(name) or ()
    return tuple(letters.index(a) if factor is None else InnerAxis(letters.index(a), factor) for a, factor in parts)


def shift_entry(entry: Any, by: int) -> Any:
    """Renumber an entry for `by` additional leading axes."""
    return InnerAxis(entry.axis + by, entry.factor) if isinstance(entry, InnerAxis) else entry + by


def entry_axis(entry: Any) -> int:
    """The axis of the original tensor that an entry is, or is part of."""
    return entry.axis if isinstance(entry, InnerAxis) else entry


def can_split(info: relax.StructInfo | None, layout: Entries) -> bool:
    """Return True if the extents of a tensor are provably multiples of the factors by which a layout splits them."""
    dims = info.dims if isinstance(info, relax.TensorStructInfo) else None
    if dims is None or num_outer_axes(layout) != len(dims):
        return not is_split(layout)
    return all(_divides(dims[e.axis], e.factor) for e in layout if isinstance(e, InnerAxis))


def _divides(dim: tir.Expr, factor: int) -> bool:
    rest = Analyzer().simplify(c.floormod(dim, c.const(factor, INT64)))
    return tir.const_int(rest) == 0


def index_map(have: Entries, to: Entries) -> tir.IndexMap:
    """Return the map from an element's index in layout `have` to its index in layout `to`."""
    names = tuple(tir.Var(f"i{at}", INT32) for at in range(len(have)))
    at = dict(zip(have, names, strict=True))
    inner = {e.axis: e for e in have if isinstance(e, InnerAxis)}

    def whole(axis: int) -> tir.Expr:
        """The index along an axis of the original tensor."""
        part = inner.get(axis)
        return at[axis] if part is None else c.add(c.mul(at[axis], c.const(part.factor, INT32)), at[part])

    split = {e.axis: e for e in to if isinstance(e, InnerAxis)}

    def index(entry: Any) -> Any:
        axis = entry_axis(entry)
        wanted = split.get(axis)
        if wanted == inner.get(axis):
            return at[entry]
        if wanted is None:
            return whole(axis)
        factor = c.const(wanted.factor, INT32)
        return c.floormod(whole(axis), factor) if isinstance(entry, InnerAxis) else c.floordiv(whole(axis), factor)

    return tir.IndexMap(names, tuple(map(index, to)))
