"""Elements and regions of buffers: `A[i, 0:4]` as indices, and as a region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mlcc.grammar.syntax import tree
from mlcc.grammar.tir.evaluation_results import Scalar
from mlcc.grammar.tir.evaluator_base import EvaluatorBase
from mlcc.ir import calls, construct, tir
from mlcc.ir.dtypes import INT32

Expr = tir.Expr


@dataclass(slots=True, eq=False, repr=False)
class _Spread(tree.Expr):
    """An element of a tuple that is unpacked into indices by `*name`."""

    value: Expr


def indices(ev: EvaluatorBase, buffer: tir.Buffer, cst: tree.Index) -> list[Expr]:
    """The indices of an access to an element; a slice in the last place means a vector."""
    items = _spread(ev, cst.indices)
    if len(items) != len(buffer.shape):
        rank = _dimensions(len(buffer.shape))
        ev.walk.fail("E0303", f"`{buffer.name}` has {rank}, but {len(items)} indices are given", cst)
    index_list: list[Expr] = []
    for at, (item, extent) in enumerate(zip(items, buffer.shape, strict=True)):
        if isinstance(item, tree.Slice):
            index = _ramp(ev, item, extent)
        else:
            index = item.value if isinstance(item, _Spread) else ev.expr(item)
        if not (index.dtype.is_int or index.dtype.is_bool):
            ev.walk.fail("E0303", f"an index must be an integer, not {index.dtype}", item)
        if index.dtype.lanes > 1 and at + 1 < len(items):
            ev.walk.fail("E0303", "only the last index may be a vector", item)
        index_list.append(index)
    return index_list


def _spread(ev: EvaluatorBase, items: tuple[tree.Expr, ...]) -> tuple[tree.Expr, ...]:
    """Indices with `*name` replaced by the elements of the tuple."""
    if all(not isinstance(item, tree.Star) for item in items):
        return items
    spread: list[tree.Expr] = []
    for item in items:
        if not isinstance(item, tree.Star):
            spread.append(item)
            continue
        value = ev.value(item.value)
        parts = value if isinstance(value, (tuple, list)) else (value,)
        spread.extend(_Spread(item.start, item.end, ev.as_expr(p, item)) for p in parts)
    return tuple(spread)


def _ramp(ev: EvaluatorBase, cst: tree.Slice, extent: Expr) -> Expr:
    """`low:high:step` as a vector of indices."""
    low, high = bounds(ev, cst, extent)
    step = 1 if cst.step is None else ev.operand(cst.step)
    lanes = ev.simplify(ev.build(cst, _lanes, low, high, step))
    count = tir.const_int(lanes)
    if count is None or not 1 <= count <= 1024:
        ev.walk.fail("E0303", "the length of a slice must be a constant from 1 to 1024", cst)
    return low if count == 1 else ev.build(cst, calls.ramp, low, step, count)


def bounds(ev: EvaluatorBase, cst: tree.Slice, extent: Expr) -> tuple[Expr, Expr]:
    """The ends of a slice, with those left out filled in."""
    high = ev.operand(cst.high) if cst.high is not None else extent
    low = ev.operand(cst.low) if cst.low is not None else 0
    if isinstance(low, Expr) or isinstance(high, Expr):
        return ev.build(cst, construct.match_types, low, high)  # type: ignore[no-any-return]
    return ev.as_expr(low, cst), ev.as_expr(high, cst)


def region(ev: EvaluatorBase, cst: tree.Expr) -> tir.BufferRegion:
    """`A[i, 0:4]`, or a whole buffer `A`, as a region; dimensions left out are whole."""
    base = ev.value(cst.base if isinstance(cst, tree.Index) else cst)
    if isinstance(base, Scalar):
        base = base.buffer
    if not isinstance(base, tir.Buffer):
        ev.walk.fail("E0302", "a region must be a buffer, or a part of one such as `A[0:4, i]`", cst)
    items = cst.indices if isinstance(cst, tree.Index) else ()
    if len(items) > len(base.shape):
        ev.walk.fail("E0303", f"`{base.name}` has {_dimensions(len(base.shape))}, not {len(items)}", cst)
    dims = [_range(ev, item, extent) for item, extent in zip(items, base.shape, strict=False)]
    span = ev.walk.span(cst)
    for extent in base.shape[len(items) :]:
        dims.append(tir.Range(tir.IntImm(extent.dtype, 0, span=span), extent, span=span))
    return tir.BufferRegion(base, tuple(dims), span=span)


def _range(ev: EvaluatorBase, item: tree.Expr, extent: Expr) -> tir.Range:
    span = ev.walk.span(item)
    if isinstance(item, tree.Slice):
        if item.step is not None and ev.value(item.step) != 1:
            ev.walk.fail("E0303", "a region cannot have a step", item)
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
