"""Upper bounds of the region that a function's blocks read of each buffer: constant bounds per dimension."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import Bound
from mlcc.ir import construct as c
from mlcc.ir import tir

ReadBounds = dict[tir.Var, list[Bound]]


def read_bounds(func: tir.PrimFunc) -> ReadBounds:
    """Return the bounds by the buffer's data variable.

    Blocks that run under a condition are left out: they may read less than their region.
    """
    bounds: ReadBounds = {}
    _body(func.body, Analyzer(), bounds)
    return bounds


def _body(body: tuple[tir.Stmt, ...], analyzer: Analyzer, bounds: ReadBounds) -> None:
    for stmt in body:
        match stmt:
            case tir.For():
                analyzer.bind(stmt.var, tir.Range(stmt.min, stmt.extent))
                _body(stmt.body, analyzer, bounds)
            case tir.BlockRealize(block=block) if tir.const_int(stmt.predicate) == 1:
                for axis, value in zip(block.iter_vars, stmt.values, strict=False):
                    bound = analyzer.bound(value)
                    analyzer.bind_bound(axis.var, bound.min, bound.max)
                for region in block.reads or ():
                    _add(region, analyzer, bounds)
                _body(block.body, analyzer, bounds)
            case tir.While(body=inner) | tir.AttrStmt(body=inner):
                _body(inner, analyzer, bounds)


def _add(region: tir.BufferRegion, analyzer: Analyzer, bounds: ReadBounds) -> None:
    spans = []
    for span, size in zip(region.region, region.buffer.shape, strict=False):
        low, high = analyzer.bound(span.min).min, analyzer.bound(c.sub(c.add(span.min, span.extent), 1)).max
        end = analyzer.bound(size).max - 1
        spans.append(Bound(max(low, 0), min(high, end)))
    known = bounds.get(region.buffer.data)
    if known is not None:
        spans = [Bound(min(a.min, b.min), max(a.max, b.max)) for a, b in zip(known, spans, strict=False)]
    bounds[region.buffer.data] = spans
