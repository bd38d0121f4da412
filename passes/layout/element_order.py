"""Canonicalization of copy nests: loops over the elements of the written buffer, in row-major order.

Schedules for different CPUs split and order the loops of one copy differently. Over the axes of the written buffer they
all become the same nest, with strided reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.index_map import IndexMapError, inverse, map_ranges
from mlcc.arith.iter_map import detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.ir.tir import ForKind, IndexMap, IterKind, Range
from mlcc.ir.visit import substitute


def in_element_order(stmt: tir.Stmt) -> tir.Stmt:
    """Rebuild a loop nest over the axes of the buffer that it writes, in row-major order of the elements.

    The statement stays unless it is a nest of loops of known extent around a block that stores one element of a buffer,
    a different one in each iteration, until all are stored.
    """
    nest = _nest(stmt)
    if nest is None:
        return stmt
    domain, values, block = nest
    (store,) = block.body
    assert isinstance(store, tir.BufferStore)
    axes = {iv.var: iv.dom for iv in block.iter_vars}
    steps = _size(domain.values())
    if not steps or steps != _size(axes.values()) or not detect_iter_map(values, domain, level="bijective"):
        return stmt
    stored = IndexMap(tuple(axes), store.indices)
    try:
        spans = map_ranges(stored, tuple(axes.values()))
        if [(0, tir.const_int(n)) for n in store.buffer.shape] != [_bounds(span) for span in spans]:
            return stmt
        inverse_map = inverse(stored, tuple(axes.values()))
    except IndexMapError:
        return stmt
    analyzer = Analyzer()
    for var, extent in zip(inverse_map.indices, store.buffer.shape, strict=True):
        analyzer.bind(var, Range(c.const(0, extent.dtype), extent))
    axis_values = dict(zip(axes, inverse_map.result, strict=True))
    value = analyzer.simplify(substitute(store.value, axis_values))
    rebuilt: tir.Stmt = tir.BufferStore(store.buffer, value, inverse_map.indices)
    for var, extent in reversed([*zip(inverse_map.indices, store.buffer.shape, strict=True)]):
        rebuilt = tir.For(var, c.const(0, extent.dtype), extent, ForKind.SERIAL, (rebuilt,))
    return rebuilt


def _nest(stmt: tir.Stmt) -> tuple[dict[tir.Var, Range], tuple[tir.Expr, ...], tir.Block] | None:
    """Match a nest; return the ranges of its loops, the values of the block's axes, and the block."""
    domain: dict[tir.Var, Range] = {}
    while isinstance(stmt, tir.For):
        if len(stmt.body) != 1 or stmt.step is not None or tir.const_int(stmt.extent) is None:
            return None
        domain[stmt.var] = Range(stmt.min, stmt.extent)
        (stmt,) = stmt.body
    if not isinstance(stmt, tir.BlockRealize) or tir.const_int(stmt.predicate) != 1:
        return None
    block = stmt.block
    plain = block.init is None and not block.alloc_buffers and not block.match_buffers and len(block.body) == 1
    store = block.body[0]
    if (
        not plain
        or not isinstance(store, tir.BufferStore)
        or any(iv.kind is not IterKind.SPATIAL for iv in block.iter_vars)
    ):
        return None
    if any(load.buffer is store.buffer for load in find(store.value, tir.BufferLoad)):
        return None
    return domain, stmt.values, block


def _size(ranges: Iterable[Range]) -> int:
    return math.prod(tir.const_int(span.extent) or 0 for span in ranges)


def _bounds(span: Range) -> tuple[int | None, int | None]:
    return tir.const_int(span.min), tir.const_int(span.extent)
