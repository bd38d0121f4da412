"""Detecting quasi-affine maps: which loops, split and fused how, the indices of a block are.

`detect_iter_map` writes every index as one digit of an iterator (a loop, or loops fused) plus a base, and checks that
the digits of all indices are independent. The analysis and its levels are TVM's; so are the expressions that
`iter_map_simplify` makes of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_check import map_violation
from mlcc.arith.iter_constraints import constraints_of, uses_any
from mlcc.arith.iter_fuse import Level
from mlcc.arith.iter_nodes import IterMark, IterSplit, IterSum, IterToExpr, normalize_to_expr
from mlcc.arith.iter_rewrite import IterMapRewriter, NotAffine
from mlcc.arith.proofs import Proofs, factors, is_zero
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import TRUE, Expr

Iters = Mapping[tir.Var, tir.Range]
FALSE: Expr = c.const(False)


@dataclass(frozen=True, slots=True)
class IterMap:
    """The result of `detect_iter_map`. If detection failed it is false, `indices` is empty and `reason` says why.

    `padding_predicate`, over the loop variables, holds at the padding that was added to an iterator.
    """

    indices: tuple[IterSum, ...] = ()
    padding_predicate: Expr = FALSE
    failure: NotAffine | None = field(default=None, repr=False)

    def __bool__(self) -> bool:
        return self.failure is None

    @property
    def reason(self) -> str:
        """The reason why there is no map; empty if there is one."""
        return "" if self.failure is None else str(self.failure)


def detect_iter_map(
    bindings: Sequence[Expr], iters: Iters, predicate: Expr = TRUE, level: Level = "surjective",
    analyzer: Analyzer | None = None, simplify_trivial: bool = True,
) -> IterMap:  # fmt: skip
    """Detect the bindings as sums of digits of `iters`, under `predicate`.

    "bijective": each iteration has different values and every value an iteration. "surjective": every value has one.
    "none": the digits are independent; iterators may be padded to a multiple of their divisors.
    """
    return _attempt(bindings, iters, predicate, level, Proofs(analyzer or Analyzer()), simplify_trivial)


def _attempt(
    bindings: Sequence[Expr], iters: Iters, predicate: Expr, level: Level, proofs: Proofs, simplify_trivial: bool,
    lenient: bool = False,
) -> IterMap:  # fmt: skip
    try:
        return _detect(bindings, iters, predicate, level, proofs, simplify_trivial, lenient)
    except NotAffine as failure:
        return IterMap(failure=failure.with_traceback(None))  # whose frames would refer to the result
    except ValueError as failure:  # division by zero, while folding constants
        return IterMap(failure=NotAffine("{}", failure))


def _detect(
    bindings: Sequence[Expr], iters: Iters, predicate: Expr, level: Level, proofs: Proofs, simplify_trivial: bool,
    lenient: bool,
) -> IterMap:  # fmt: skip
    _check_ranges(iters)
    ranges: Iters = iters
    rewriter = None
    if not (isinstance(predicate, tir.IntImm) and predicate.value == 1):
        narrowed = constraints_of(predicate, iters)
        if narrowed is None:
            raise NotAffine("the predicate `{}` is not a conjunction of bounds", predicate)
        ranges, constraints = narrowed
        rewriter = IterMapRewriter(proofs, ranges, level, simplify_trivial, lenient)
        for constraint in constraints:
            if not rewriter.fuser.constrain(rewriter.digits(constraint.value), constraint.low, constraint.high):
                raise NotAffine("`{}`, which the predicate bounds, is not a fusion of loops", constraint.value)
        if not rewriter.fuser.consistent():
            raise NotAffine("the bounds of the predicate `{}` overlap without one containing the other", predicate)
    rewriter = rewriter or IterMapRewriter(proofs, ranges, level, simplify_trivial, lenient)
    indices: list[IterSum] = []
    if level != "bijective":
        rewriter.collecting = True
        indices = [rewriter.rewrite(value) for value in bindings]
        rewriter.collecting = False
    if level == "bijective" or rewriter.needs_padding:
        indices = [rewriter.rewrite(value) for value in bindings]
    wrong = map_violation(indices, rewriter, level)
    if wrong is not None:
        raise NotAffine(*wrong)
    return IterMap(tuple(indices), rewriter.padding)


def _check_ranges(iters: Iters) -> None:
    for span in iters.values():
        if uses_any(span.min, iters) or uses_any(span.extent, iters):
            raise NotAffine(
                "the range {} to {} of a loop depends on another loop", span.min, c.add(span.min, span.extent)
            )


def iter_map_simplify(
    bindings: Sequence[Expr], iters: Iters, predicate: Expr = TRUE, level: Level = "surjective",
    analyzer: Analyzer | None = None, simplify_trivial: bool = True,
) -> tuple[Expr, ...]:  # fmt: skip
    """Return the bindings respelled by the iterator map that they form; unchanged if they form none."""
    proofs = Proofs(analyzer or Analyzer())
    iter_map = _attempt(bindings, iters, predicate, level, proofs, simplify_trivial, lenient=True)
    if not iter_map and level != "bijective" and predicate is not TRUE:
        # an identity over all iterations holds under the predicate too; but padding would be lost
        iter_map = _attempt(bindings, iters, TRUE, level, proofs, simplify_trivial, lenient=True)
        if not is_zero(iter_map.padding_predicate):
            return tuple(bindings)
    if not iter_map:
        return tuple(bindings)
    speller = IterToExpr(proofs)
    return tuple(speller.expr(value) for value in iter_map.indices)


def is_affine(bindings: Sequence[Expr], iters: Iters, predicate: Expr = TRUE, analyzer: Analyzer | None = None) -> bool:
    """Return True if the bindings are proved to take every value of a box (a surjective map)."""
    return bool(detect_iter_map(bindings, iters, predicate, "surjective", analyzer))


def normalize_to_iter_sum(index: Expr, iters: Iters, analyzer: Analyzer | None = None) -> IterSum:
    """Return an index as a sum of digits in descending order of constant scale, then of the number of symbols.

    Raises NotAffine.
    """
    rewriter = IterMapRewriter(Proofs(analyzer or Analyzer()), iters, "none", True)
    flat = rewriter.digits(index)
    flat = rewriter.fuser.join(flat) or flat

    def rank(split: IterSplit) -> tuple[int, int]:
        constant, symbols = 1, 0
        for factor in factors(split.scale):
            if isinstance(factor, tir.IntImm):
                constant *= factor.value
            else:
                symbols += 1
        return -constant, -symbols

    return IterSum(tuple(sorted(flat.args, key=rank)), flat.base)


__all__ = [
    "IterMap", "IterMark", "IterSplit", "IterSum", "Level", "NotAffine", "detect_iter_map", "is_affine",
    "iter_map_simplify", "normalize_to_expr", "normalize_to_iter_sum",
]  # fmt: skip
