"""Check that the regions that a block declares cover the accesses in its body.

Only certain faults are reported: a buffer missing from the list, or an index that leaves the declared range in every
iteration of the loops, found by the same relaxation that infers regions. Conditional accesses are not checked.
"""

from __future__ import annotations

from collections.abc import Callable

from mlcc.arith.intset import EVERYTHING, Interval
from mlcc.arith.regions import Accesses, BlockAccess, Region
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import children
from mlcc.ir.tir import Expr
from mlcc.verify.report import Report


def check_regions(block: tir.Block, report: Report) -> None:
    """Report accesses of `block` outside its reads and writes."""
    if block.reads is None or block.writes is None:
        return
    if not block.iter_vars and not block.reads and not block.writes:
        return  # a plain scope says nothing
    check = _Check(block, report)
    check.collect(block)


class _Check(BlockAccess):
    """Compares each access with the declared regions instead of collecting it."""

    def __init__(self, block: tir.Block, report: Report) -> None:
        own = {b.data for b in block.alloc_buffers}
        declared = [*block.reads, *block.writes]
        super().__init__({r.buffer.data: r.buffer for r in declared})
        self._allocated = own
        self._block = block
        self._report = report
        self._conditional = 0
        self._reported: set[tuple[tir.Buffer, bool]] = set()
        self._declared = {
            True: _by_data(block.writes),
            # a block may read what it writes: reductions do, and blocks that fill their output in steps
            False: _by_data((*block.reads, *block.writes)),
        }
        self._local = own | {m.buffer.data for m in block.match_buffers}

    def _under(self, condition: Expr, visit: Callable[[], None]) -> None:
        self._conditional += 1
        super()._under(condition, visit)
        self._conditional -= 1

    def _stmt(self, stmt: tir.Stmt) -> None:
        if isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)):
            self._local = self._local | {stmt.buffer.data}
        guarded = isinstance(stmt, tir.While) or (isinstance(stmt, tir.BlockRealize) and not _is_true(stmt.predicate))
        self._conditional += guarded
        super()._stmt(stmt)
        self._conditional -= guarded

    def _relax_range(self, low: Expr, high: Expr) -> Interval:
        """Exact bounds of an index, or no bounds if a variable occurs twice (intervals treat both as independent)."""
        first = self._analyzer.simplify(low)
        last = first if high is low else self._analyzer.simplify(high)
        if not (self._uses_variables_once(first) and self._uses_variables_once(last)):
            return EVERYTHING
        return super()._relax_range(first, last)

    def _uses_variables_once(self, expr: Expr) -> bool:
        """Return True if each loop variable occurs at most once in an expression."""
        used = [v for v in occurrences(expr) if v in self._domains]
        return len(used) == len(set(used))

    def _pointer_access(self, data: tir.Var, mask: int, at: object) -> None:
        """Ignore accesses by pointer: they may use any part of the buffer, so no fault is certain."""

    def _record_access(self, accesses: Accesses, buffer: tir.Buffer, region: Region) -> None:
        match = self._matched.get(buffer.data)
        if match is not None:
            region = self._to_source_region(match, region)
            buffer = match.source.buffer
        if buffer.data in self._local or buffer.data in self._allocated:
            return
        writes = accesses is self.writes
        declared = self._declared[writes].get(buffer.data)
        if (buffer, writes) in self._reported:
            return
        if declared is None:
            self._report_access(buffer, writes, f"is not among its T.{'writes' if writes else 'reads'}")
        elif not self._conditional and len(declared) == 1 and len(declared[0].region) == len(region):
            for at, (part, span, size) in enumerate(zip(region, declared[0].region, buffer.shape, strict=True)):
                if self._exceeds(part, span, size):
                    self._report_access(buffer, writes, f"leaves its declared region in dimension {at}")
                    return

    def _exceeds(self, part: Interval, span: tir.Range, size: Expr) -> bool:
        """A region that covers the whole buffer is never left: an inner block may declare more than the buffer, where
        its code makes no access (padding)."""
        if part.low is None or part.high is None or part.empty:
            return False
        if part.low is span.min and part.is_point:
            return False
        if not (
            _is_polynomial(part.low)
            and _is_polynomial(part.high)
            and _is_polynomial(span.min)
            and _is_polynomial(span.extent)
        ):
            return False
        last = c.sub(c.add(span.min, span.extent), 1)
        below = self._analyzer.compare(self._analyzer.simplify(span.min), self._analyzer.simplify(part.low))
        above = self._analyzer.compare(self._analyzer.simplify(part.high), self._analyzer.simplify(last))
        is_first = tir.const_int(span.min) == 0
        is_last = self._analyzer.prove_equal(c.add(last, 1), c.cast(last.dtype, size))
        return (below.min > 0 and not is_first) or (above.min > 0 and not is_last)

    def _report_access(self, buffer: tir.Buffer, writes: bool, what: str) -> None:
        self._reported.add((buffer, writes))
        verb = "writes" if writes else "reads"
        self._report.add("E0341", f"block `{self._block.name}` {verb} `{buffer.name}`, which {what}", self._block)


def occurrences(expr: Expr) -> list[tir.Var]:
    """Return the variables of an expression, once for each occurrence."""
    variables, stack = [], [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Var):
            variables.append(top)
        else:
            stack += [child for child in children(top) if isinstance(child, Expr)]
    return variables


def _by_data(regions: tuple[tir.BufferRegion, ...]) -> dict[tir.Var, list[tir.BufferRegion]]:
    by_data: dict[tir.Var, list[tir.BufferRegion]] = {}
    for region in regions:
        by_data.setdefault(region.buffer.data, []).append(region)
    return by_data


def _is_true(predicate: Expr) -> bool:
    return isinstance(predicate, tir.IntImm) and predicate.value != 0


def _is_polynomial(expr: Expr) -> bool:
    """True for sums and products of variables and constants, whose intervals are exact."""
    stack: list[Expr] = [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, (tir.Add, tir.Sub, tir.Mul)):
            stack += [top.lhs, top.rhs]
        elif not isinstance(top, (tir.Var, tir.IntImm)):
            return False
    return True
