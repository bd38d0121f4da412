"""Infer the read and write regions of a block from the accesses in its body.

The rules are TVM's, since regions count in structural equality: indices are relaxed over the loops inside the block,
a nested block counts by its own regions at its axis values, conditions narrow loop variables, and a block with an
init does not read what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import Bound
from mlcc.arith.conditions import solve
from mlcc.arith.intset import Interval, eval_range, from_range, meet, to_range, union
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import Node, children
from mlcc.ir.tir import Expr, IntImm
from mlcc.ir.visit import substitute

Region = list[Interval]
POINTER_OPS = frozenset({"tir.tvm_access_ptr", "tir.access_ptr"})


class Accesses:
    """Regions by buffer, in order of first appearance."""

    def __init__(self) -> None:
        self.regions: dict[tir.Buffer, Region] = {}

    def add(self, buffer: tir.Buffer, region: Region, analyzer: Analyzer) -> None:
        old = self.regions.get(buffer)
        if old is None or len(old) != len(region):
            self.regions.setdefault(buffer, region)
        else:
            self.regions[buffer] = [union(a, b, analyzer) for a, b in zip(old, region, strict=True)]

    def as_regions(self, without: Iterable[tir.Buffer] = ()) -> tuple[tir.BufferRegion, ...]:
        skip, regions, analyzer = set(without), [], Analyzer()
        for buffer, region in self.regions.items():
            if buffer not in skip and len(region) == len(buffer.shape):
                ranges = tuple(
                    to_range(part, _whole_dimension(extent), analyzer)
                    for part, extent in zip(region, buffer.shape, strict=True)
                )
                regions.append(tir.BufferRegion(buffer, ranges))
        return tuple(regions)


def _whole_dimension(extent: Expr) -> tir.Range:
    return tir.Range(c.const(0, extent.dtype), extent)


def full_region(buffer: tir.Buffer) -> tir.BufferRegion:
    """Return the region of a whole buffer."""
    return tir.BufferRegion(buffer, tuple(_whole_dimension(n) for n in buffer.shape))


class BlockAccess:
    """Collects `reads`, `writes` and `opaque` (accesses by pointer) of one block; nested blocks state their regions."""

    def __init__(self, visible: Mapping[tir.Var, tir.Buffer]) -> None:
        self.reads, self.writes, self.opaque = Accesses(), Accesses(), Accesses()
        self.opaque_at: Node | None = None
        self._visible = dict(visible)
        self._matched: dict[tir.Var, tir.MatchBufferRegion] = {}
        self._domains: dict[tir.Var, Interval] = {}
        self._values: dict[tir.Var, Expr] = {}
        self._analyzer = Analyzer()

    def collect(self, block: tir.Block) -> BlockAccess:
        for match in block.match_buffers:
            if match.source.buffer.data in self._visible:
                self._matched[match.buffer.data] = match
                self._visible[match.buffer.data] = match.buffer
        for axis in block.iter_vars:
            self._expr(axis.dom.min)
            self._expr(axis.dom.extent)
        for region in (*(block.reads or ()), *(block.writes or ()), *(m.source for m in block.match_buffers)):
            for span in region.region:
                self._expr(span.min)
                self._expr(span.extent)
        self._body(block.init or ())
        self._body(block.body)
        return self

    def read_regions(self, block: tir.Block) -> tuple[tir.BufferRegion, ...]:
        """Return the reads of a block. With an init it accumulates into its writes, which do not count as reads."""
        return self.reads.as_regions(self.writes.regions if block.init is not None else ())

    # ------------------------------------------------------------ statements

    def _body(self, body: tuple[tir.Stmt, ...]) -> None:
        for stmt in body:
            self._stmt(stmt)

    def _stmt(self, stmt: tir.Stmt) -> None:
        match stmt:
            case tir.For():
                self._for(stmt)
            case tir.IfThenElse(condition=condition, then_body=then, else_body=other):
                self._expr(condition)
                self._under(condition, lambda: self._body(then))
                if other is not None:
                    self._under(c.logical_not(condition), lambda: self._body(other))
            case tir.BlockRealize():
                self._nested(stmt)
            case tir.BufferStore(buffer=buffer, value=value, indices=indices):
                self._record_access(self.writes, buffer, [self._relax_index(i) for i in indices])
                self._expr(value)
                for index in indices:
                    self._expr(index)
            case tir.Bind(var=var, value=value):
                self._values[var] = value
                self._expr(value)
            case tir.While(condition=condition, body=body):
                self._expr(condition)
                self._body(body)
            case tir.AttrStmt(subject=subject, value=value, body=body):
                for part in (value, subject):
                    if isinstance(part, Expr):
                        self._expr(part)
                self._body(body)
            case tir.Evaluate(value=value):
                self._expr(value)
            case tir.AssertStmt(condition=condition):
                self._expr(condition)
            case tir.AllocBuffer(buffer=buffer):
                for extent in buffer.shape:
                    self._expr(extent)

    def _for(self, loop: tir.For) -> None:
        self._expr(loop.min)
        self._expr(loop.extent)
        self._domains[loop.var] = from_range(tir.Range(loop.min, loop.extent))
        self._body(loop.body)
        del self._domains[loop.var]

    def _nested(self, realize: tir.BlockRealize) -> None:
        block = realize.block
        values = {axis.var: value for axis, value in zip(block.iter_vars, realize.values, strict=True)}
        for accesses, regions in ((self.reads, block.reads), (self.writes, block.writes)):
            for region in regions or ():
                intervals = []
                for span in region.region:
                    ends = from_range(tir.Range(substitute(span.min, values), substitute(span.extent, values)))
                    assert ends.low is not None and ends.high is not None
                    intervals.append(self._relax_range(ends.low, ends.high))
                self._record_access(accesses, region.buffer, intervals)

    def _relax_range(self, low: Expr, high: Expr) -> Interval:
        """Return the interval from the least `low` to the greatest `high` over the loops inside the block."""
        return eval_range(low, high, self._domains, self._analyzer)

    def _under(self, condition: Expr, visit: Callable[[], None]) -> None:
        """Visit with the ranges of loop variables narrowed by `condition`, if constant ranges can express it."""
        bounds = {v: b for v, d in self._domains.items() if (b := _constant_bound(d)) is not None}
        solved = solve(condition, bounds)
        old = dict(self._domains)
        for var, bound in (solved or {}).items():
            if var in self._domains:
                low, high = c.const(bound.min, var.dtype), c.const(bound.max, var.dtype)
                narrow = Interval(low, low if bound.min == bound.max else high)
                self._domains[var] = meet(self._domains[var], narrow, self._analyzer)
        visit()
        self._domains = old

    # ------------------------------------------------------------ expressions

    def _expr(self, expr: Expr) -> None:
        match expr:
            case tir.Var():
                if expr in self._visible:
                    self._pointer_access(expr, 3, expr)
            case tir.BufferLoad(buffer=buffer, indices=indices):
                self._record_access(self.reads, buffer, [self._relax_index(i) for i in indices])
                for index in indices:
                    self._expr(index)
            case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, yes, no)):
                self._expr(condition)
                self._under(condition, lambda: self._expr(yes))
                self._under(c.logical_not(condition), lambda: self._expr(no))
            case tir.Call(op=tir.Op(name=name), args=(_, tir.Var() as data, _, _, IntImm(value=mask))) if (
                name in POINTER_OPS
            ):
                if data in self._visible:
                    self._pointer_access(data, mask, expr)
            case tir.IntImm() | tir.FloatImm() | tir.StringImm():
                pass
            case _:
                for child in children(expr):
                    if isinstance(child, Expr):
                        self._expr(child)

    def _pointer_access(self, data: tir.Var, mask: int, at: Node) -> None:
        """Record an access of a whole buffer by pointer: read (mask 1), write (2) or unknown (3)."""
        buffer = self._visible[data]
        region = []
        for span in full_region(buffer).region:
            high = self._analyzer.simplify(c.sub(c.add(span.min, span.extent), 1))
            region.append(eval_range(span.min, high, self._domains, self._analyzer))
        if mask & 3 == 3:
            self.opaque_at = self.opaque_at or at
            self._record_access(self.opaque, buffer, region)
        elif mask & 3:
            self._record_access(self.reads if mask & 1 else self.writes, buffer, region)

    def _relax_index(self, index: Expr) -> Interval:
        if self._values:
            for _ in range(len(self._values)):  # a bound value may mention earlier ones
                expanded = substitute(index, self._values)
                if expanded is index:
                    break
                index = expanded
        return self._relax_range(index, index)

    def _record_access(self, accesses: Accesses, buffer: tir.Buffer, region: Region) -> None:
        if buffer.data not in self._visible:
            return
        match = self._matched.get(buffer.data)
        if match is not None:
            region = self._to_source_region(match, region)
            buffer = match.source.buffer
        accesses.add(buffer, region, self._analyzer)

    def _to_source_region(self, match: tir.MatchBufferRegion, region: Region) -> Region:
        """Return a region of a matched buffer as a region of its source."""
        source = match.source.region
        if len(region) != len(match.buffer.shape) or len(source) < len(region):
            return [from_range(s) for s in source]
        lead = len(source) - len(region)
        spans = list(source[:lead])
        for outer, part, extent in zip(source[lead:], region, match.buffer.shape, strict=True):
            inner = to_range(part, _whole_dimension(extent), self._analyzer)
            low = self._analyzer.simplify(c.add(outer.min, inner.min))
            spans.append(tir.Range(low, self._analyzer.simplify(inner.extent)))
        intervals = []
        for span in spans:
            high = self._analyzer.simplify(c.sub(c.add(span.min, span.extent), 1))
            intervals.append(eval_range(span.min, high, self._domains, self._analyzer))
        return intervals


def _constant_bound(domain: Interval) -> Bound | None:
    if isinstance(domain.low, IntImm) and isinstance(domain.high, IntImm):
        return Bound(domain.low.value, domain.high.value)
    return None
