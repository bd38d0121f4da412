"""Check that the values bound to a block's axes cover exactly the axes' domains.

Only proven faults are reported. Bounds of a value over its loops are never too narrow, so a domain that they do not
reach is certainly not covered. A value certainly leaves the domain only if its bounds are attained. They are where each
variable occurs once, in sums of scaled variables, quotients, and remainders of single variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import Bound
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.arith.proofs import is_one
from mlcc.errors import Label
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, IntImm
from mlcc.verify.format_expr import format_expr
from mlcc.verify.read_bounds import ReadBounds, read_bounds
from mlcc.verify.report import Report


@dataclass(eq=False)
class Domains:
    """The ranges of the loop variables and axes around a place, and the values of bound variables."""

    ranges: dict[tir.Var, tir.Range]
    loops: dict[tir.Var, tir.For]

    def __init__(self) -> None:
        self.ranges = {}
        self.loops = {}


PartitionKey = tuple[object, ...]


def partition_key(block: tir.Block) -> PartitionKey:
    """Return a key that is equal for the parts of one block in a partitioned loop: writes and axes, in any order."""
    axes = [(a.kind.name, tir.const_int(a.dom.min), tir.const_int(a.dom.extent)) for a in block.iter_vars]
    known = all(low is not None and extent is not None for _, low, extent in axes)
    return (*(r.buffer for r in block.writes or ()), *sorted(axes)) if known else (block,)


class LocalBuffers:
    """The buffers that a function allocates, and the regions of them that it reads."""

    def __init__(self) -> None:
        self.allocated: set[tir.Var] = set()
        self.func: tir.PrimFunc | None = None
        self._read_bounds: ReadBounds | None = None

    def misses(self, block: tir.Block, axis: tir.Var, value: Expr, analyzer: Analyzer) -> bool:
        """Return True if some block reads elements that `block` leaves unwritten when `axis` is bound to `value`."""
        if self._read_bounds is None:
            self._read_bounds = read_bounds(self.func) if self.func is not None else {}
        written = analyzer.bound(value)
        for region in block.writes:
            spans = self._read_bounds.get(region.buffer.data, [])
            for span, read in zip(region.region, spans, strict=False):
                if span.min is axis and tir.const_int(span.extent) == 1:
                    return read.min < written.min or read.max > written.max
        return False


def check_axes(
    realize: tir.BlockRealize, domains: Domains, guarded: bool, report: Report, is_part: bool, local: LocalBuffers
) -> None:
    """Report axes whose bindings do not cover their domain, or leave it.

    `guarded`: an enclosing condition may exclude values. `is_part`: other blocks may cover the missing values.
    `local` are the buffers that the function allocates; it may need only a part of them.
    """
    block = realize.block
    free = guarded or not is_one(realize.predicate)
    partial_ok = not _may_write_caller_memory(block, local.allocated)
    for axis, value in zip(block.iter_vars, realize.values, strict=True):
        if axis.var.dtype.is_int and value.dtype.is_int:
            if value.dtype.bits > axis.var.dtype.bits and not isinstance(value, IntImm):
                message = (
                    f"axis `{axis.var.name}` of block `{block.name}` is {axis.var.dtype}, but bound to {value.dtype}"
                )
                help = f'`T.Cast("{axis.var.dtype}", ...)` narrows the value; or give the axis an {value.dtype} extent'
                report.add("E0337", message, value, help=help)
            _check_axis(block, axis, value, domains, free, partial_ok, report, is_part, local)


def _may_write_caller_memory(block: tir.Block, allocated: set[tir.Var]) -> bool:
    """True if the block may write memory of the caller."""
    written = [r.buffer for r in block.writes or ()]
    return not written or any(b.data not in allocated and b.scope in ("", "global") for b in written)


def _check_axis(
    block: tir.Block, axis: tir.IterVar, value: Expr, domains: Domains, guarded: bool, partial_ok: bool, report: Report,
    is_part: bool, local: LocalBuffers,
) -> None:  # fmt: skip
    if isinstance(value, tir.Var) and _same_range(domains.ranges.get(value), axis.dom):
        return
    analyzer = Analyzer()
    used = [v for v in _vars(value) if v in domains.ranges]
    for var in used:
        analyzer.bind(var, domains.ranges[var])
    if any(analyzer.bound(domains.ranges[var].extent).max <= 0 for var in used):
        return  # the block never runs
    value = analyzer.simplify(value)
    used = [v for v in _vars(value) if v in domains.ranges]
    if not _is_affine(value):
        return
    covered_set = eval_set(value, {v: from_range(domains.ranges[v]) for v in used}, analyzer)
    want = Interval(axis.dom.min, c.sub(c.add(axis.dom.extent, axis.dom.min), 1))
    empty = analyzer.bound(axis.dom.extent).max <= 0
    below, above = (
        _difference_bounds(covered_set.low, want.low, analyzer),
        _difference_bounds(want.high, covered_set.high, analyzer),
    )
    if below is None or above is None or empty:
        return
    reduce = axis.kind is tir.IterKind.REDUCE
    related = _loop_labels(used, domains)
    name = f"axis `{axis.var.name}` of block `{block.name}`"
    covered, domain = _interval_text(covered_set, analyzer), _interval_text(want, analyzer)
    if is_part and (below.min > 0 or above.min > 0):
        return
    if (below.min > 0 or above.min > 0) and (
        reduce or not partial_ok or local.misses(block, axis.var, value, analyzer)
    ):
        message = f"{name} runs over {domain}, but its binding covers only {covered}"
        report.add("E0334", message, axis, f"{_extent_text(want, analyzer)} values are needed", related=related)
    elif (below.max < 0 or above.max < 0) and not guarded and _attained(value, used, domains.ranges):
        message = f"{name} runs over {domain}, but its binding goes over {covered}"
        help = "make the domains equal, or guard the block with `T.where(...)`"
        report.add("E0335", message, axis, f"only {_extent_text(want, analyzer)} values", related=related, help=help)


def _same_range(a: tir.Range | None, b: tir.Range) -> bool:
    """Return True for ranges with equal constant minimum and equal extent: same constant or same expression."""
    if a is None or tir.const_int(a.min) != tir.const_int(b.min) or tir.const_int(a.min) is None:
        return False
    size = tir.const_int(a.extent)
    return a.extent is b.extent or (size is not None and size == tir.const_int(b.extent))


def _difference_bounds(low: Expr | None, high: Expr | None, analyzer: Analyzer) -> Bound | None:
    """Bounds of low - high; None where an end is missing."""
    return None if low is None or high is None else analyzer.compare(analyzer.simplify(low), analyzer.simplify(high))


def _loop_labels(used: list[tir.Var], domains: Domains) -> tuple[Label, ...]:
    labels = []
    for var in used:
        loop = domains.loops.get(var)
        if loop is not None:
            labels.append(Label(loop.span, f"loop `{var.name}` runs over {_extent(loop)} values"))
    return tuple(labels)


def _extent(loop: tir.For) -> str:
    value = tir.const_int(loop.extent)
    return str(value) if value is not None else format_expr(loop.extent)


def _interval_text(interval: Interval, analyzer: Analyzer) -> str:
    low, high = (analyzer.simplify(e) for e in (interval.low, interval.high))  # type: ignore[arg-type]
    return f"{format_expr(low)}..{format_expr(high)}"


def _extent_text(interval: Interval, analyzer: Analyzer) -> str:
    return format_expr(analyzer.simplify(c.add(c.sub(interval.high, interval.low), 1)))  # type: ignore[arg-type]


def _vars(expr: Expr) -> list[tir.Var]:
    variables: dict[tir.Var, None] = {}
    stack: list[Expr] = [expr]
    while stack:
        top = stack.pop()
        if isinstance(top, tir.Var):
            variables[top] = None
        elif isinstance(top, tir.BinaryOp):
            stack += [top.rhs, top.lhs]
        elif isinstance(top, (tir.Cast, tir.Broadcast)):
            stack.append(top.value)
    return list(variables)


def _is_affine(expr: Expr) -> bool:
    """True for sums, differences, and products, quotients and remainders by positive constants."""
    stack: list[Expr] = [expr]
    while stack:
        top = stack.pop()
        match top:
            case tir.Var() | IntImm():
                pass
            case tir.Add(lhs=a, rhs=b) | tir.Sub(lhs=a, rhs=b):
                stack += [a, b]
            case tir.Mul(lhs=a, rhs=b):
                stack += [a, b]
            case tir.FloorDiv(lhs=a, rhs=IntImm(value=k)) | tir.FloorMod(lhs=a, rhs=IntImm(value=k)) if k > 0:
                stack.append(a)
            case _:
                return False
    return True


def _attained(expr: Expr, used: list[tir.Var], ranges: Mapping[tir.Var, tir.Range]) -> bool:
    """Return True if `expr` attains both ends of its interval.

    This holds if each variable occurs once, no variable's range depends on another variable, and remainders are of
    single variables only.
    """
    if any(v in used for var in used for e in (ranges[var].min, ranges[var].extent) for v in _vars(e)):
        return False
    seen: set[tir.Var] = set()
    stack: list[Expr] = [expr]
    while stack:
        top = stack.pop()
        match top:
            case tir.Var():
                if top in seen and top in used:
                    return False
                seen.add(top)
            case tir.FloorMod(lhs=a) if not isinstance(a, tir.Var):
                return False
            case tir.BinaryOp(lhs=a, rhs=b):
                stack += [a, b]
    return True
