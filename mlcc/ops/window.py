"""Helpers of operators with sliding windows: layouts and result extents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc import te
from mlcc.ir import relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ops.lazy import np
from mlcc.ops.shapes import (
    Tensor,
    fail,
    int64,
    result,
    tensor,
)
from mlcc.ops.split_layouts import parse_layout

SPATIAL = "WHD"  # the letters of a layout that are spatial dimensions


def plain_layout(call: relax.Call, attribute: str, letters: str) -> str:
    """A layout that is a permutation of `letters`."""
    layout: str = call.attrs[attribute]
    if sorted(layout) != sorted(letters):
        fail(call, "E0442", f"`{attribute}` must be a permutation of {letters}, not `{layout}`")
    return layout


def spatial_positions(layout: str) -> list[int]:
    """The positions of the spatial dimensions in the layout, without inner parts of split axes."""
    parts = parse_layout(layout) or ()
    return [i for i, (letter, factor) in enumerate(parts) if letter in SPATIAL and factor is None]


def extents_by_letter(call: relax.Call, index: int, info: Tensor, layout: str) -> dict[str, tir.Expr] | None:
    """Return the extents by layout letter."""
    if info.ndim not in (-1, len(layout)):
        fail(call, "E0445", f"layout {layout} needs {len(layout)} dimensions, argument {index + 1} has {info.ndim}")
    return None if info.dims is None else dict(zip(layout, info.dims, strict=True))


def spatial_letters(ndim: int) -> str:
    return {1: "W", 2: "HW", 3: "DHW"}[ndim]


@dataclass(frozen=True)
class SpatialData:
    """The data of an operator with spatial dimensions `space`: extents by layout letter, and the result's layout."""

    data: Tensor
    space: str
    layout: str
    out: str
    extents: dict[str, tir.Expr] | None

    def result(self, extents: Mapping[str, tir.Expr] | None, dtype: DType | None) -> Tensor:
        """The result of the extents `extents`, by letter; None if they are not known."""
        dims = None if extents is None else [extents[letter] for letter in self.out]
        return result(dims, dtype, len(self.out), self.data.vdevice)


def spatial_data(call: relax.Call, ndim: int, attribute: str, out: str = "out_layout", index: int = 0) -> SpatialData:
    """The data (argument `index`) of `ndim` spatial dimensions in the layout that an attribute names."""
    data, space = tensor(call, index), spatial_letters(ndim)
    layout = plain_layout(call, attribute, "NC" + space)
    to = plain_layout(call, out, "NC" + space)
    return SpatialData(data, space, layout, to, extents_by_letter(call, index, data, layout))


def require_positive(call: relax.Call, *names: str) -> None:
    for name in names:
        if min(call.attrs[name]) <= 0:
            fail(call, "E0442", f"`{name}` must be positive, not {list(call.attrs[name])}")


def clamp_to_zero(extent: tir.Expr) -> tir.Expr:
    return int64(0) if isinstance(extent, tir.IntImm) and extent.value < 0 else extent


def zero(dtype: DType) -> te.Scalar:
    return te.const(0, dtype)


def np_to_layout(x: Any, layout: str, wanted: str) -> Any:
    """Transpose an array from one layout to another."""
    return np.transpose(x, [layout.index(c) for c in wanted])


def window_slices(call: relax.Call, place: Sequence[int], out: Sequence[int]) -> list[slice]:
    slices = []
    for i, (offset, count) in enumerate(zip(place, out, strict=True)):
        begin, stride = offset * call.attrs["dilation"][i], call.attrs["strides"][i]
        slices.append(slice(begin, begin + stride * (count - 1) + 1 if count else begin, stride))
    return slices
