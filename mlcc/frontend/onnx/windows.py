"""The attributes shared by convolutions and pools: windows, strides, dilations, pads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.frontend.onnx.helpers import one_of
from mlcc.frontend.problems import Unsupported
from mlcc.ir import relax, tir

if TYPE_CHECKING:
    from mlcc.frontend.onnx.node import OnnxNode
    from mlcc.frontend.onnx.translate import OnnxTranslator

AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


@dataclass(frozen=True)
class Window:
    """A sliding window over spatial dimensions."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @property
    def pads(self) -> list[int]:
        """The padding in relax's order: all axes before, then all after."""
        return [*self.before, *self.after]

    @property
    def spans(self) -> list[int]:
        """The number of elements that the window spans along each dimension."""
        return [d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True)]

    @property
    def spatial(self) -> int:
        """The number of spatial dimensions."""
        return len(self.kernel)


def spatial_attribute(node: OnnxNode, name: str, count: int, default: int, least: int = 1) -> list[int]:
    """An attribute with a number for each spatial dimension."""
    given = node.attribute(name) or [default] * count
    if len(given) != count or any(n < least for n in given):
        raise Unsupported(f"`{name}` of {list(given)} does not fit {count} spatial dimensions")
    return list(given)


def spatial_rank(t: OnnxTranslator, x: relax.Expr) -> int:
    """The number of spatial dimensions, which is 1, 2 or 3."""
    rank = t.ndim(x) - 2
    if rank not in (1, 2, 3):
        raise Unsupported(f"{rank} spatial dimensions are not supported, only 1, 2 and 3")
    return rank


def window(t: OnnxTranslator, node: OnnxNode, x: relax.Expr, kernel: Sequence[int]) -> Window:
    """Return the sliding window of a node."""
    count = t.ndim(x) - 2
    if len(kernel) != count or any(k < 1 for k in kernel):
        raise Unsupported(f"a window of {list(kernel)} does not fit {count} spatial dimensions")
    strides, dilations = spatial_attribute(node, "strides", count, 1), spatial_attribute(node, "dilations", count, 1)
    auto = one_of(node.attribute("auto_pad", "NOTSET"), AUTO, "auto_pad")
    pads = node.attribute("pads") or [0] * (2 * count)
    if len(pads) != 2 * count:
        raise Unsupported(f"{len(pads)} pads do not fit {count} spatial dimensions")
    geometry = Window(list(kernel), strides, dilations, list(pads[:count]), list(pads[count:]))
    if auto == "NOTSET":
        return geometry
    if auto == "VALID":
        return Window(geometry.kernel, strides, dilations, [0] * count, [0] * count)
    totals = [
        _same_padding(tir.const_int(n), s, r) for n, s, r in zip(t.shape(x)[2:], strides, geometry.spans, strict=True)
    ]
    less, more = [n // 2 for n in totals], [n - n // 2 for n in totals]
    before, after = (less, more) if auto == "SAME_UPPER" else (more, less)
    return Window(geometry.kernel, strides, dilations, before, after)


def _same_padding(extent: int | None, stride: int, reach: int) -> int:
    """Return the total padding for which every stride inside the data starts a window."""
    if stride == 1:
        return reach - 1
    if extent is None:
        raise Unsupported(
            "`auto_pad` with a stride is not supported for a symbolic extent", "state the pads, or the extent"
        )
    return max((-(-extent // stride) - 1) * stride + reach - extent, 0)
