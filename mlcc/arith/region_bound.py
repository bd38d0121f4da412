"""Regions relaxed over loops: boxes that are surely inside, or surely around, what the iterations touch together.

A strict bound is exact: the ranges start at independent quasi-affine indices, so the union of all iterations is a box.
It serves as a lower bound; where there is none, an upper bound comes dimension by dimension, by iteration maps or by
interval arithmetic. Spelled as TVM does, since such regions end up in programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjuncts
from mlcc.arith.intset import NOTHING, Interval, eval_range, eval_set, from_range, union
from mlcc.arith.iter_map import IterMap, IterMark, IterSum, detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import TRUE, Expr, IntImm, Range

Domain = Mapping[tir.Var, Range]
Box = list[Interval]


def strict_bound(
    region: Sequence[Range], domain: Domain, predicate: Expr = TRUE, analyzer: Analyzer | None = None
) -> Box | None:
    """Return the union of the ranges over `domain` as a box spelled as TVM does, or None; see `lower_bound`."""
    starts = _starts(region, domain, predicate, analyzer := analyzer or Analyzer())
    return None if starts is None else _box(starts, region, analyzer)


def lower_bound(
    region: Sequence[Range], domain: Domain, predicate: Expr = TRUE, analyzer: Analyzer | None = None
) -> Box | None:
    """Return a box that the iterations of `domain` under `predicate` cover in full; None if none is known.

    It is the strict bound, unless that may be too large: iterators were padded, negative strides leave gaps, or the
    predicate restricts an iterator in a way that its digits do not show.
    """
    starts = _starts(region, domain, predicate, analyzer := analyzer or _analyzer_of(domain))
    if starts is None or tir.const_int(starts.padding_predicate) != 0:
        return None
    for sum, span in zip(starts.indices, region, strict=True):
        if any(not analyzer.prove(c.less_equal(c.negate(a.scale), span.extent)) for a in sum.args):
            return None
    if not all(_accounts_for(part, starts, region, domain, analyzer) for part in conjuncts(predicate)):
        return None
    return _box(starts, region, analyzer)


def upper_bound(
    region: Sequence[Range], domain: Domain, predicate: Expr = TRUE, analyzer: Analyzer | None = None
) -> Box:
    """Return a box that contains every access (an over-approximation)."""
    analyzer = analyzer or Analyzer()
    exact = strict_bound(region, domain, predicate, analyzer)
    return [_dimension_upper_bound(span, domain, predicate, analyzer) for span in region] if exact is None else exact


def _analyzer_of(domain: Domain) -> Analyzer:
    analyzer = Analyzer()
    for var, span in domain.items():
        analyzer.bind(var, span)
    return analyzer


def _starts(region: Sequence[Range], domain: Domain, predicate: Expr, analyzer: Analyzer) -> IterMap | None:
    """Return the surjective iterator map of the starts of the ranges; None if none, or if an extent is symbolic."""
    if not region or not all(isinstance(span.extent, IntImm) for span in region):
        return None
    return detect_iter_map([span.min for span in region], domain, predicate, "surjective", analyzer) or None


def _box(iter_map: IterMap, region: Sequence[Range], analyzer: Analyzer) -> Box | None:
    box = []
    for sum, span in zip(iter_map.indices, region, strict=True):
        interval = _covered_interval(sum, span.extent, analyzer)
        if interval is None:
            return None
        box.append(interval)
    return box


def _accounts_for(part: Expr, iter_map: IterMap, region: Sequence[Range], domain: Domain, analyzer: Analyzer) -> bool:
    """Return True if the map accounts for one conjunct of the predicate.

    It does if the conjunct always holds, if it bounds an iterator that has all its variables and that the indices are
    digits of, or if the compared expression is independent of the indices and holds for some iteration.
    """
    if analyzer.prove(part):
        return True
    if analyzer.prove(c.logical_not(part)):
        return False
    named = {v for v in walk(part) if isinstance(v, tir.Var) and v in domain and tir.const_int(domain[v].extent) != 1}
    for mark in _marks(iter_map):
        if named <= {v for v in walk(mark.source) if isinstance(v, tir.Var)}:
            full_range = isinstance(mark.source, tir.Var) and analyzer.prove_equal(
                mark.extent, domain[mark.source].extent
            )
            if not full_range:
                return True
    if not isinstance(part, tir.CompareOp):
        return False
    values = [*(span.min for span in region), c.sub(part.lhs, part.rhs)]
    return bool(detect_iter_map(values, domain, TRUE, "none", analyzer))


def _marks(iter_map: IterMap) -> list[IterMark]:
    return [n for sum in iter_map.indices for n in walk(sum) if isinstance(n, IterMark)]


def _dimension_upper_bound(span: Range, domain: Domain, predicate: Expr, analyzer: Analyzer) -> Interval:
    start = detect_iter_map([span.min], domain, predicate, "surjective", analyzer)
    if start:
        swept = _covered_interval(start.indices[0], span.extent, analyzer)
        if swept is not None:
            return swept
    intervals = {v: from_range(r) for v, r in domain.items()}
    if isinstance(span.extent, IntImm) and span.extent.value == 1:
        return eval_set(span.min, intervals)
    last = Analyzer().simplify(c.sub(c.add(span.min, span.extent), 1))
    return eval_range(span.min, last, intervals)


def _covered_interval(sum: IterSum, extent: Expr, analyzer: Analyzer) -> Interval | None:
    """Return the interval covered by `extent` elements from each value of `sum` on; None if there may be gaps."""
    if _is_zero(extent, analyzer):
        return NOTHING
    if not sum.args:
        return from_range(Range(sum.base, extent))
    (digit,) = sum.args
    if _is_zero(digit.extent, analyzer):
        return NOTHING
    size, count = tir.const_int(digit.extent), tir.const_int(digit.source.extent)
    if size is not None and count is not None and size < 0 <= count:
        return None  # a quotient or remainder of steps downward, which the map has wrong
    if not analyzer.prove(c.greater_equal(extent, digit.scale)):
        return None
    reach = c.mul(c.sub(digit.extent, 1), digit.scale)
    if analyzer.prove(c.less(digit.scale, 0)):
        return from_range(Range(c.add(sum.base, reach), c.sub(extent, reach)))
    return from_range(Range(sum.base, c.add(extent, reach)))


def _is_zero(extent: Expr, analyzer: Analyzer) -> bool:
    if isinstance(extent, IntImm):
        return extent.value == 0
    return analyzer.prove(c.equal(extent, 0))


# ---------------------------------------------------------------- unions


def union_lower_bound(boxes: Sequence[Box]) -> Box:
    """Return a box that the boxes cover together in each dimension; intervals with a gap to the first are left out."""
    return [_joined(intervals) for intervals in zip(*boxes, strict=True)]


def union_upper_bound(boxes: Sequence[Box]) -> Box:
    """Return the bounding box of all."""
    return [_hull(intervals) for intervals in zip(*boxes, strict=True)]


def _hull(intervals: Sequence[Interval]) -> Interval:
    hull, analyzer = intervals[0], Analyzer()
    for interval in intervals[1:]:
        hull = union(hull, interval, analyzer)
    return hull


def _joined(intervals: Iterable[Interval]) -> Interval:
    left = [i for i in intervals if not i.empty]
    if not left:
        return NOTHING
    joined, analyzer = left[0], Analyzer()
    for interval in left[1:]:
        if _reaches(joined, interval, analyzer) and _reaches(interval, joined, analyzer):
            low = None if joined.low is None or interval.low is None else c.minimum(joined.low, interval.low)
            high = None if joined.high is None or interval.high is None else c.maximum(joined.high, interval.high)
            joined = Interval(low, high)
    return joined


def _reaches(a: Interval, b: Interval, analyzer: Analyzer) -> bool:
    """Return True if b starts at most one element after the end of a, so that there is no gap between them."""
    if b.low is None or a.high is None:
        return True
    return analyzer.prove(c.less_equal(b.low, c.add(a.high, 1)))
