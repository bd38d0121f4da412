"""Domains of a block's axes that produce a required region of a buffer.

Given the region that one iteration of the block accesses, as a function of its axes, and the region to cover,
whose bounds may be symbolic. A one-to-one map from axes to indices is inverted; otherwise each dimension determines
the domain of the single axis in it. The expressions are TVM's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import NOTHING, Interval, from_range, meet, union
from mlcc.arith.iter_inverse import inverse_affine_iter_map
from mlcc.arith.iter_map import IterSum, NotAffine, detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, IntImm
from mlcc.passes.schedule.refusal import Refusal

Box = list[Interval]


@dataclass(slots=True, eq=False)
class AxisDomain:
    """The domain of an axis: `dom`, clipped to `bound`. Empty intervals: nothing is known yet."""

    dom: Interval = NOTHING
    bound: Interval = NOTHING

    def add(self, dom: Interval, bound: Interval) -> None:
        """Extend both intervals by the requirement of another buffer."""
        self.dom, self.bound = hull([self.dom, dom]), hull([self.bound, bound])

    def finish(self, whole: Interval, analyzer: Analyzer, plain: Analyzer) -> None:
        """Simplify the domain, and clip its bound to `whole`.

        Without a domain the bound becomes the domain; a bound that changes nothing is dropped. `plain` is an analyzer
        without ranges of variables.
        """
        self.bound = whole if self.bound.empty else _intersect(self.bound, whole, plain)
        if self.dom.empty:
            if self.bound.low is not None and self.bound.high is not None:
                self.dom, self.bound = _simplified(self.bound, analyzer), NOTHING
            return
        self.dom, self.bound = _simplified(self.dom, analyzer), _simplified(self.bound, analyzer)
        both = _simplified(_intersect(self.dom, self.bound, plain), analyzer)
        if _same(self.dom, both, analyzer):
            self.bound = NOTHING
        elif _same(self.bound, both, analyzer):
            self.dom, self.bound = self.bound, NOTHING
        elif isinstance(both.low, IntImm) and isinstance(both.high, IntImm):
            self.dom, self.bound = both, NOTHING
        elif _contains(self.dom, self.bound, analyzer):
            self.dom, self.bound = self.bound, NOTHING


def _simplified(interval: Interval, analyzer: Analyzer) -> Interval:
    if interval.empty:
        return interval
    low = None if interval.low is None else analyzer.simplify(interval.low)
    high = None if interval.high is None else low if interval.is_point else analyzer.simplify(interval.high)
    return Interval(low, high)


def _same(a: Interval, b: Interval, analyzer: Analyzer) -> bool:
    if a.empty or b.empty:
        return a.empty and b.empty
    for one, other in ((a.low, b.low), (a.high, b.high)):
        if one is None or other is None:
            if one is not other:
                return False
        elif not analyzer.prove_equal(one, other):
            return False
    return True


def _contains(outer: Interval, inner: Interval, analyzer: Analyzer) -> bool:
    """Return True if an interval provably contains another, as a padded one contains that of an unknown size."""
    if outer.low is None or outer.high is None or inner.low is None or inner.high is None:
        return False
    return _at_most(outer.low, inner.low, analyzer) and _at_most(inner.high, outer.high, analyzer)


def _at_most(a: Expr, b: Expr, analyzer: Analyzer) -> bool:
    """Prove a <= b: of a minimum `a` or a maximum `b` one operand suffices."""
    if isinstance(a, tir.Min):
        return _at_most(a.lhs, b, analyzer) or _at_most(a.rhs, b, analyzer)
    if isinstance(b, tir.Max):
        return _at_most(a, b.lhs, analyzer) or _at_most(a, b.rhs, analyzer)
    return analyzer.prove(c.less_equal(a, b))


def _intersect(a: Interval, b: Interval, plain: Analyzer) -> Interval:
    return _simplified(meet(a, b, plain), plain)


def hull(intervals: Sequence[Interval]) -> Interval:
    """Return the smallest interval that contains all intervals; the ends are simplified unless there is only one."""
    if len(intervals) == 1:
        return intervals[0]
    merged, analyzer = intervals[0], Analyzer()
    for interval in intervals[1:]:
        merged = union(merged, interval, analyzer)
    return _simplified(merged, analyzer)


def axis_domains(
    block: tir.Block,
    accessed: Mapping[tir.Buffer, Sequence[Box]],
    required: Mapping[tir.Buffer, Sequence[Box]],
    analyzer: Analyzer,
    exact: bool = False,
) -> list[AxisDomain]:
    """Return the domains of the axes of `block` for which the regions `accessed` together cover those `required`.

    With `exact` they may not cover more. Refuses (E0651) regions that determine no domain.
    """
    axes = {a.var: AxisDomain() for a in block.iter_vars}
    for buffer, boxes in accessed.items():
        if not required.get(buffer):
            continue
        access_box = [hull(part) for part in zip(*boxes, strict=True)]
        required_box = [hull(part) for part in zip(*required[buffer], strict=True)]
        if not _by_inverse(block, buffer, access_box, required_box, axes, analyzer, exact):
            _by_dimension(block, buffer, access_box, required_box, axes, analyzer, exact)
    plain = Analyzer()
    for axis in block.iter_vars:
        domain = axes[axis.var]
        domain.finish(from_range(axis.dom), analyzer, plain)
        if domain.dom.empty:
            raise Refusal("E0651", f"the domain of axis `{axis.var.name}` of block `{block.name}` is empty", block)
    return list(axes.values())


def _is_point(interval: Interval, analyzer: Analyzer) -> bool:
    if interval.low is None or interval.high is None:
        return False
    return interval.is_point or analyzer.prove_equal(interval.low, interval.high)


# ---------------------------------------------------------------- all dimensions at once


def _by_inverse(
    block: tir.Block, buffer: tir.Buffer, access_box: Box, required_box: Box, axes: dict[tir.Var, AxisDomain],
    analyzer: Analyzer, exact: bool,
) -> bool:  # fmt: skip
    """Set the domains by inverting the map from axes to indices. Return False if it is not one-to-one."""
    if not all(_is_point(part, analyzer) for part in access_box):
        return False
    domain = {a.var: a.dom for a in block.iter_vars}
    indices = [part.low for part in access_box if part.low is not None]
    iter_map = detect_iter_map(indices, domain, tir.TRUE, "bijective", analyzer, simplify_trivial=False)
    if not iter_map or not iter_map.indices:
        return False
    whole = [Interval(c.const(0, n.dtype), c.maximum(c.sub(n, 1), 0)) for n in buffer.shape]
    if any(part.low is None or part.high is None for part in required_box):
        raise Refusal("E0651", f"the required region of `{buffer.name}` is unbounded", block)
    try:
        doms = _inverse_box(iter_map.indices, required_box, domain, analyzer)
        bounds = _inverse_box(iter_map.indices, whole, domain, analyzer)
        narrow = _inverse_ends(iter_map.indices, required_box, analyzer) if exact else doms
    except NotAffine as failure:
        shown = ", ".join(map(str, indices))
        raise Refusal(
            "E0651", f"the indices `{buffer.name}[{shown}]` of block `{block.name}` have no inverse: {failure}", block
        ) from None
    for var, dom in doms.items():
        if not _same(narrow[var], dom, analyzer):
            words = f"the part of `{buffer.name}` that there is does not end with axis `{var.name}`"
            raise Refusal("E0651", f"{words} of block `{block.name}`", block)
        axes[var].add(dom, bounds[var])
    return True


def _inverse_box(
    indices: Sequence[IterSum], box: Box, domain: Mapping[tir.Var, tir.Range], analyzer: Analyzer
) -> dict[tir.Var, Interval]:
    """Return the domain of each axis that a box of indices maps back to.

    In an index `a * 64 + b` of which more than one `a` is reached, `b` takes its whole domain, unless its interval is
    that already: every `b` lies between the ends.
    """
    intervals = _inverse_ends(indices, box, analyzer)
    for index in (node for node in walk(tuple(indices)) if isinstance(node, IterSum)):
        several = False
        for term in sorted(index.args, key=lambda t: -(tir.const_int(t.scale) or 0)):
            var = term.source.source
            if not isinstance(var, tir.Var) or tir.const_int(term.scale) is None:
                break
            whole = from_range(domain[var])
            if several and not _same(intervals[var], whole, analyzer):
                intervals[var] = whole
            several = several or not _is_point(intervals[var], analyzer)
    return intervals


def _inverse_ends(indices: Sequence[IterSum], box: Box, analyzer: Analyzer) -> dict[tir.Var, Interval]:
    """Return for each axis the interval between the preimages of a box's first and last element."""
    lows = inverse_affine_iter_map(indices, [part.low for part in box])  # type: ignore[misc]
    highs = inverse_affine_iter_map(indices, [part.high for part in box])  # type: ignore[misc]
    intervals = {}
    for var, low in lows.items():
        first = analyzer.simplify(c.minimum(low, highs[var]))
        intervals[var] = Interval(first, analyzer.simplify(c.maximum(low, highs[var])))
    return intervals


# ---------------------------------------------------------------- one dimension after the other


def _by_dimension(
    block: tir.Block, buffer: tir.Buffer, access_box: Box, required_box: Box, axes: dict[tir.Var, AxisDomain],
    analyzer: Analyzer, exact: bool,
) -> None:  # fmt: skip
    for at, (accessed, required, extent) in enumerate(zip(access_box, required_box, buffer.shape, strict=True)):
        if _is_point(accessed, analyzer) and isinstance(accessed.low, IntImm):
            if not (
                _is_point(required, analyzer) and required.low and analyzer.prove_equal(accessed.low, required.low)
            ):
                raise Refusal(
                    "E0651",
                    f"block `{block.name}` touches only index {accessed.low} in dimension {at} of `{buffer.name}`, and "
                    f"more of it is needed",
                    block,
                )
            continue
        solver = _Dimension(block, buffer, at, c.maximum(c.sub(extent, 1), 0), analyzer, exact)
        var, dom, bound = solver.solve(accessed, required)
        if var in axes:
            axes[var].add(dom, bound)
        elif not _same(accessed, required, analyzer):
            raise solver.refusal(accessed)


class _Dimension:
    """The equation of one dimension, solved for the axis in it."""

    def __init__(
        self, block: tir.Block, buffer: tir.Buffer, at: int, last: Expr, analyzer: Analyzer, exact: bool
    ) -> None:
        self._block, self._buffer, self._at, self._last = block, buffer, at, last
        self._analyzer, self._exact = analyzer, exact

    def refusal(self, accessed: Interval) -> Refusal:
        index = str(accessed.low)
        if accessed.high is not None and not _is_point(accessed, self._analyzer):
            index += f" to {self._analyzer.simplify(accessed.high)}"
        return Refusal(
            "E0651",
            f"which iterations of block `{self._block.name}` are needed cannot be told from what it uses in "
            f"dimension {self._at} of `{self._buffer.name}`: index {index}",
            self._block,
        )

    def solve(self, accessed: Interval, required: Interval) -> tuple[tir.Var, Interval, Interval]:
        """Return the axis, its domain to reach `required`, and the bound of that domain."""
        analyzer = self._analyzer
        if accessed.low is None or accessed.high is None or required.low is None:
            raise self.refusal(accessed)
        index, low = analyzer.simplify(accessed.low), analyzer.simplify(required.low)
        high = None if required.high is None else analyzer.simplify(required.high)
        zero = c.const(0)
        match index:
            case tir.Mul(lhs=tir.Var() as var, rhs=by) | tir.Mul(lhs=by, rhs=tir.Var() as var):
                if high is None:
                    raise self.refusal(accessed)
                if self._exact and not _is_point(accessed, analyzer):
                    self._check_whole_tiles(index, by, low, high)
                dom = Interval(c.floordiv(low, by), c.floordiv(high, by))
                return var, dom, Interval(zero, c.floordiv(self._last, by))
        if not analyzer.prove_equal(index, analyzer.simplify(accessed.high)):
            raise self.refusal(accessed)
        match index:
            case tir.Var():
                return index, Interval(low, high), Interval(zero, self._last)
            case tir.FloorDiv(lhs=inner, rhs=by) if analyzer.prove(c.greater_equal(by, 1)):

                def top(value: Expr) -> Expr:
                    return analyzer.simplify(c.sub(c.add(c.mul(value, by), by), 1))

                reach = Interval(c.mul(low, by), None if high is None else top(high))
                if isinstance(inner, tir.Var):
                    return inner, reach, Interval(zero, top(self._last))
                return self.solve(Interval(inner, inner), reach)
            case tir.FloorMod(lhs=tir.Var() as inner):
                return inner, NOTHING, NOTHING  # any range of the axis may be needed
            case tir.FloorMod(lhs=inner, rhs=by) if (
                analyzer.prove(c.greater_equal(inner, 1))
                and analyzer.prove(c.greater_equal(by, 1))
                and analyzer.prove(c.greater_equal(low, 0))
            ):
                return self.solve(Interval(inner, inner), Interval(low, None))
        raise self.refusal(accessed)

    def _check_whole_tiles(self, index: Expr, by: Expr, low: Expr, high: Expr) -> None:
        for end in (low, c.add(high, 1)):
            if not self._analyzer.prove(c.equal(c.floormod(end, by), 0)):
                raise Refusal(
                    "E0651",
                    f"block `{self._block.name}` takes `{self._buffer.name}` from `{index}` on in pieces of {by}, but "
                    f"dimension {self._at} runs from {low} to {high}, which is not a multiple of them",
                    self._block,
                )
