"""Elements and regions of buffers: `A[i, 0:4]` as indices, and as a region."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlcc.grammar.syntax.tree import Cst
from mlcc.grammar.tir.evaluated import Scalar
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import INT32

if TYPE_CHECKING:
    from mlcc.grammar.tir.operators import Operators

Expr = tir.Expr


def indices(ev: Operators, buffer: tir.Buffer, cst: Cst) -> list[Expr]:
    """The indices of an access to an element; a slice in the last place means a vector."""
    items = cst[4]
    if len(items) == 1 and items[0][0] == "tuple":
        items = items[0][3]
    items = _spread(ev, items)
    if len(items) != len(buffer.shape):
        rank = _dimensions(len(buffer.shape))
        ev.walk.fail("E0303", f"`{buffer.name}` has {rank}, and {len(items)} indices are given", cst)
    made: list[Expr] = []
    for at, (item, extent) in enumerate(zip(items, buffer.shape, strict=True)):
        if item[0] == "slice":
            index = _ramp(ev, item, extent)
        else:
            index = item[3] if item[0] == "value" else ev.expr(item)
        if not (index.dtype.is_int or index.dtype.is_bool):
            ev.walk.fail("E0303", f"an index is an integer, not {index.dtype}", item)
        if index.dtype.lanes > 1 and at + 1 < len(items):
            ev.walk.fail("E0303", "only the last index may be a vector", item)
        made.append(index)
    return made


def _spread(ev: Operators, items: tuple[Cst, ...]) -> tuple[Cst, ...]:
    """Indices with `*name` replaced by the elements of the tuple."""
    if all(item[0] != "star" for item in items):
        return items
    made: list[Cst] = []
    for item in items:
        if item[0] != "star":
            made.append(item)
            continue
        value = ev.value(item[3])
        parts = value if isinstance(value, (tuple, list)) else (value,)
        made.extend(("value", item[1], item[2], ev.as_expr(p, item)) for p in parts)
    return tuple(made)


def _ramp(ev: Operators, cst: Cst, extent: Expr) -> Expr:
    """`low:high:step` as a vector of indices."""
    low, high = bounds(ev, cst, extent)
    step = 1 if cst[5] is None else ev.operand(cst[5])
    lanes = ev.simplify(ev.build(cst, _lanes, low, high, step))
    count = tir.const_int(lanes)
    if count is None or not 1 <= count <= 1024:
        ev.walk.fail("E0303", "the length of a slice has to be a constant, 1 to 1024", cst)
    return low if count == 1 else ev.build(cst, calls.ramp, low, step, count)


def bounds(ev: Operators, cst: Cst, extent: Expr) -> tuple[Expr, Expr]:
    """The ends of a slice, with those left out filled in."""
    high = ev.operand(cst[4]) if cst[4] is not None else extent
    low = ev.operand(cst[3]) if cst[3] is not None else 0
    if isinstance(low, Expr) or isinstance(high, Expr):
        return ev.build(cst, construct.match_types, low, high)  # type: ignore[no-any-return]
    return ev.as_expr(low, cst), ev.as_expr(high, cst)


def region(ev: Operators, cst: Cst) -> tir.BufferRegion:
    """`A[i, 0:4]`, or a whole buffer `A`, as a region; dimensions left out are whole."""
    base = ev.value(cst[3] if cst[0] == "index" else cst)
    if isinstance(base, Scalar):
        base = base.buffer
    if not isinstance(base, tir.Buffer):
        ev.walk.fail("E0302", "a region is a buffer, or a part of one such as `A[0:4, i]`", cst)
    items: tuple[Cst, ...] = cst[4] if cst[0] == "index" else ()
    if len(items) == 1 and items[0][0] == "tuple":
        items = items[0][3]
    if len(items) > len(base.shape):
        ev.walk.fail("E0303", f"`{base.name}` has {_dimensions(len(base.shape))}, not {len(items)}", cst)
    dims = [_range(ev, item, extent) for item, extent in zip(items, base.shape, strict=False)]
    span = ev.walk.span(cst)
    for extent in base.shape[len(items) :]:
        dims.append(tir.Range(tir.IntImm(extent.dtype, 0, span=span), extent, span=span))
    return tir.BufferRegion(base, tuple(dims), span=span)


def _range(ev: Operators, item: Cst, extent: Expr) -> tir.Range:
    span = ev.walk.span(item)
    if item[0] == "slice":
        if item[5] is not None and ev.value(item[5]) != 1:
            ev.walk.fail("E0303", "a region has no steps", item)
        low, high = bounds(ev, item, extent)
        return tir.Range(low, ev.extent(low, high, item), span=span)
    index = ev.expr(item)
    if isinstance(index, tir.Ramp) and tir.const_int(index.stride) == 1:
        return tir.Range(index.base, tir.IntImm(index.base.dtype, index.lanes, span=span), span=span)
    return tir.Range(index, tir.IntImm(index.dtype.element if index.dtype.is_int else INT32, 1, span=span), span=span)


def _lanes(low: Expr, high: Expr, step: Any) -> Expr:
    count = construct.sub(high, low)
    if isinstance(step, int) and step == 1:
        return count
    return construct.floordiv(construct.sub(construct.add(count, step), 1), step)


def _dimensions(count: int) -> str:
    return "1 dimension" if count == 1 else f"{count} dimensions"
