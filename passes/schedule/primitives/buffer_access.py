"""`unsafe_hide_buffer_access` and `annotate_buffer_access`: the regions that blocks declare to read and write."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.buffers import list_buffers
from mlcc.passes.schedule.maps import call_map
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import describe, primitive
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def unsafe_hide_buffer_access(state: State, block: BlockRef, buf_type: str, buf_index_array: list[int]) -> None:
    """Leave buffers out of what a block says that it reads (`buf_type` "read") or writes ("write").

    Steps after it know nothing of these accesses. Refused for numbers that the block does not have (E0614).
    """
    old = block.block
    _check_kind(buf_type)
    regions = old.reads if buf_type == "read" else old.writes
    for index in buf_index_array:
        _check_index(old, buf_type, index)
    kept = tuple(region for n, region in enumerate(regions) if n not in buf_index_array)
    _replace_block(state, block, replace(old, **{f"{buf_type}s": kept}))


@primitive()
def annotate_buffer_access(
    state: State, block: BlockRef, buffer_index: int, buf_type: str, gen_new_ranges: Any
) -> None:
    """Say which region of a buffer a block reads or writes, where it cannot be inferred.

    `gen_new_ranges` maps the axes of the block to one entry for each dimension: an index, or a pair (start, end). The
    block is marked with `explicit_read_region` or `explicit_write_region`. Refused for a number that the block does not
    have (E0614), and for other results (E0692).
    """
    old = block.block
    _check_kind(buf_type)
    _check_index(old, buf_type, buffer_index)
    ranges = gen_new_ranges if isinstance(gen_new_ranges, RangesMap) else _make_ranges_map(old, gen_new_ranges)
    state.recorded["gen_new_ranges"] = ranges
    regions = old.reads if buf_type == "read" else old.writes
    buffer = regions[buffer_index].buffer
    axes = [axis.var for axis in old.iter_vars]
    if len(ranges.indices) != len(axes):
        message = f"the map takes {len(ranges.indices)} axes, but block `{old.name}` has {len(axes)}"
        raise Refusal("E0692", message, old)
    if len(ranges.pairs) != len(buffer.shape):
        raise Refusal(
            "E0692",
            f"the map gives {len(ranges.pairs)} ranges, but `{buffer.name}` has {len(buffer.shape)} dimensions",
            old,
        )
    analyzer = Analyzer()
    spans = []
    for start, end in ranges.on(axes):
        low, high = analyzer.simplify(start), analyzer.simplify(end)
        spans.append(tir.Range(low, analyzer.simplify(c.sub(high, low))))
    new = (*regions[:buffer_index], tir.BufferRegion(buffer, tuple(spans)), *regions[buffer_index + 1 :])
    key = f"explicit_{buf_type}_region"
    marked = old.annotations.get(key, ())
    if buffer_index not in marked:
        marked = (*marked, buffer_index)
    _replace_block(
        state, block, replace(old, **{f"{buf_type}s": new, "annotations": old.annotations.with_item(key, marked)})
    )


class RangesMap:
    """From axes to ranges, as a trace keeps and prints it."""

    def __init__(self, indices: tuple[tir.Var, ...], pairs: tuple[tuple[Expr, Expr], ...]) -> None:
        self.indices, self.pairs = indices, pairs

    def on(self, axes: list[tir.Var]) -> Iterable[tuple[Expr, Expr]]:
        """The ranges for these axes."""
        values = {old: c.cast(old.dtype, new) for old, new in zip(self.indices, axes, strict=True)}
        return [(substitute(a, values), substitute(b, values)) for a, b in self.pairs]

    def __repr__(self) -> str:
        pairs = ", ".join(f"({a}, {b})" for a, b in self.pairs)
        return f"lambda {', '.join(v.name for v in self.indices)}: [{pairs}]"


def _make_ranges_map(block: tir.Block, given: Callable[..., Any]) -> RangesMap:
    """Return the ranges that a function of the axes gives. Raises Refusal E0692."""
    axes = tuple(axis.var for axis in block.iter_vars)
    pairs = []
    for n, entry in enumerate(call_map(given, axes, "gen_new_ranges")):
        ends = tuple(entry) if isinstance(entry, (tuple, list)) else (entry, c.add(entry, 1))
        if len(ends) != 2:
            raise Refusal("E0692", f"range {n} is {describe(entry)}, not an index or a pair (start, end)", block)
        pairs.append((c.as_expr(ends[0]), c.as_expr(ends[1])))
    return RangesMap(axes, tuple(pairs))


def _check_kind(kind: str) -> None:
    if kind not in ("read", "write"):
        raise Refusal(
            "E0614", f"a buffer is read or written, not {kind!r}", help='`buf_type` must be "read" or "write"'
        )


def _check_index(block: tir.Block, kind: str, index: int) -> None:
    regions = block.reads if kind == "read" else block.writes
    if not 0 <= index < len(regions):
        raise Refusal("E0614", f"block `{block.name}` has no {kind} buffer {index}", block, list_buffers(block))


def _replace_block(state: State, place: BlockRef, new: tir.Block) -> None:
    edit = Rebuild(place.tree)
    edit.put_block(place.block, new)
    state.update(place.func_name, edit)
