"""Report accesses that are certainly out of bounds (E0355).

Intervals of the loop variables tell in one walk which indices cannot leave their dimension: nearly all of them. For the
others a witness is searched (`witness`): an iteration in which the access is certainly made, and outside. With symbolic
sizes the function is looked at with sample sizes first; what is found there is reported if it is proved for all arrays
that are not empty.
"""

from __future__ import annotations

import contextlib

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.bounds import INF
from mlcc.errors import Label
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr
from mlcc.ir.visit import substitute
from mlcc.verify.format_expr import format_expr
from mlcc.verify.paths import Guard, Let, Loop, MaybeExecuted, PathStep, PathVisitor
from mlcc.verify.report import Report
from mlcc.verify.witness import BudgetExceeded, Env, IntEvaluator, Search, ValueRange

WORK = 200_000  # nodes that the analysis of one function may look at
_MAX_FINDINGS = 20  # findings of one function
_PROOFS = 20  # attempts to prove a finding for all sizes
_SCOPES = ("", "global", "local", "shared")


def check_bounds(func: tir.PrimFunc, report: Report) -> None:
    """Report accesses of a well-formed function that are out of bounds for all arguments."""
    symbols = shape_symbols(func)
    walk = _BoundsChecker(report, symbols)
    with contextlib.suppress(BudgetExceeded):  # after that, the rest is not checked
        walk.function(func)


def shape_symbols(func: tir.PrimFunc) -> list[tir.Var]:
    """The variables that the shapes of parameters bind, in order."""
    symbols = dict.fromkeys(d for b in func.buffers if b is not None for d in b.shape if isinstance(d, tir.Var))
    return [v for v in symbols if v not in func.params]


class _BoundsChecker(PathVisitor):
    def __init__(self, report: Report, symbols: list[tir.Var]) -> None:
        self._report = report
        self._numbers = IntEvaluator(WORK)
        self._symbols = symbols
        self._samples: list[Env] = [{v: 64 * at for at, v in enumerate(symbols, 1)}]
        if symbols:
            self._samples.append(dict.fromkeys(symbols, 1))
        self._spans: dict[tir.Var, ValueRange] = {v: (n, n) for v, n in self._samples[0].items()}
        self._findings = 0
        self._proofs = _PROOFS
        self._reported: set[tuple[object, int]] = set()
        self._search: tuple[PathStep, Search] | None = None  # of the path that was searched last

    def step(self, step: PathStep) -> None:
        span: ValueRange | None = None
        if isinstance(step, Loop):
            low, size = self._numbers.span(step.low, self._spans), self._numbers.span(step.extent, self._spans)
            span = None if low is None or size is None else (low[0], max(low[1] + size[1] - 1, low[0]))
        elif isinstance(step, Let):
            span = self._numbers.span(step.value, self._spans)
        else:
            return
        if span is None:
            self._spans.pop(step.var, None)
        else:
            self._spans[step.var] = span

    def access(self, node: tir.BufferLoad | tir.BufferStore, path: PathStep) -> None:
        buffer = node.buffer
        if self._findings >= _MAX_FINDINGS or buffer.scope.partition(".")[0] not in _SCOPES:
            return
        for at, (index, size) in enumerate(zip(node.indices, buffer.shape, strict=False)):
            span = self._numbers.span(index, self._spans)
            extent = self._numbers.span(size, self._spans)
            if span is None or extent is None or (span[0] >= 0 and span[1] < extent[0]):
                continue
            place = (node.span or node, at)
            if place not in self._reported and self._check_index(node, at, index, path):
                self._reported.add(place)
                self._findings += 1
                return

    def _check_index(self, node: tir.BufferLoad | tir.BufferStore, at: int, index: Expr, path: PathStep) -> bool:
        size = node.buffer.shape[at]
        if self._search is None or self._search[0] is not path:
            self._search = path, Search(self._numbers, path.steps(), self._samples[0])
        search = self._search[1]
        steps = search.path
        for greatest in (True, False):
            end = _extreme_lane(index, greatest)
            violation = self._outside(search, end, size, greatest)
            if violation is None:
                continue
            value, chosen, extent = violation
            if not self._symbols:
                self._report_access(node, at, str(value), str(extent), steps, end, greatest)
                return True
            known = self._prove_outside(steps, end, size, chosen, greatest)
            if known is not None:
                self._report_access(node, at, known, format_expr(size), steps, end, greatest)
                return True
        return False

    def _outside(
        self, search: Search, index: Expr, size: Expr, greatest: bool
    ) -> tuple[int, dict[Loop, int], int] | None:
        """Find a value of the index beyond one end; return it with its iterations and the extent."""
        extreme = search.extreme(index, greatest)
        if extreme is None:
            return None
        value, chosen, env = extreme
        extent = self._numbers.value(size, env)
        if extent is None or (value < extent if greatest else value >= 0):
            return None
        return value, chosen, extent

    # ------------------------------------------------------------ symbolic sizes

    def _prove_outside(
        self, steps: list[PathStep], index: Expr, size: Expr, chosen: dict[Loop, int], greatest: bool
    ) -> str | None:
        """The index as text, if it is out of bounds in the first or last iterations for all sizes."""
        self._proofs -= 1
        smallest = Search(self._numbers, steps, self._samples[1])
        if self._proofs < 0 or self._outside(smallest, index, size, greatest) is None:
            return None
        analyzer = Analyzer()
        for symbol in self._symbols:
            analyzer.bind_bound(symbol, 1, INF)
        known: dict[tir.Var, Expr] = {}
        for step in steps:
            if isinstance(step, Let):
                known[step.var] = analyzer.simplify(substitute(step.value, known))
            elif isinstance(step, Guard):
                condition = substitute(step.condition, known)
                if not analyzer.prove(condition if step.holds else c.logical_not(condition)):
                    return None
            elif isinstance(step, Loop):
                value = _first_or_last(step, chosen.get(step, 0), known, analyzer)
                if value is None:
                    return None
                known[step.var] = value
            elif isinstance(step, MaybeExecuted):
                return None
        value = analyzer.simplify(substitute(index, known))
        gap = analyzer.compare(value, analyzer.simplify(c.cast(value.dtype, substitute(size, known))))
        outside = gap.min >= 0 if greatest else analyzer.bound(value).max < 0
        return format_expr(value) if outside else None

    # ------------------------------------------------------------ the report

    def _report_access(
        self, node: tir.BufferLoad | tir.BufferStore, at: int, value: str, extent: str, steps: list[PathStep],
        index: Expr,
        greatest: bool,
    ) -> None:  # fmt: skip
        buffer = node.buffer
        loops = [s for s in Search(self._numbers, steps, {}).loops_of(index) if isinstance(s.node, tir.For)]
        related = tuple(
            Label(s.node.span, f"loop `{s.var.name}` runs over {format_expr(s.extent)} values") for s in loops
        )  # fmt: skip
        verb = "written" if isinstance(node, tir.BufferStore) else "read"
        message = f"`{buffer.name}` is {verb} out of bounds: index {value} in dimension {at} of extent {extent}"
        other = Search(self._numbers, steps, self._samples[0]).extreme(
            _extreme_lane(node.indices[at], not greatest), not greatest
        )
        text = ""
        if not self._symbols and other is not None:
            low, high = sorted((other[0], int(value)))
            text = f"`{format_expr(node.indices[at])}` is {low}" + (f"..{high}" if high > low else "")
        help = f"indices of this dimension are 0..{_last_index(extent)}: "
        help += "shorten the loop, or guard the access by `if`" if loops else "change the index, or the buffer's shape"
        self._report.add("E0355", message, node, text, related=related, help=help)


def _last_index(extent: str) -> str:
    return str(int(extent) - 1) if extent.lstrip("-").isdigit() else f"{extent} - 1"


def _extreme_lane(index: Expr, greatest: bool) -> Expr:
    """The lane of a vector index that is at one end."""
    match index:
        case tir.Ramp(base=base, stride=tir.IntImm(value=stride), lanes=lanes):
            return c.add(base, stride * (lanes - 1)) if (stride > 0) is greatest else base
        case tir.Broadcast(value=value):
            return value
    return index


def _first_or_last(loop: Loop, at: int, known: dict[tir.Var, Expr], analyzer: Analyzer) -> Expr | None:
    """The loop variable's value in the first or last iteration, if the loop surely runs; the last if not the first."""
    low, extent = (analyzer.simplify(substitute(e, known)) for e in (loop.low, loop.extent))
    if analyzer.bound(extent).min < 1 or (loop.step is not None and at):
        return None
    return low if at == 0 else analyzer.simplify(c.sub(c.add(low, extent), 1))
