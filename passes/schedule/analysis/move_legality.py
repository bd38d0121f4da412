"""Legality of moving a block, beyond its regions: execution order, iterations left out or repeated."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import IterSum, detect_iter_map
from mlcc.arith.proofs import is_one
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import IterKind
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.analysis.bindings import analyzer_of, bound_vars, domain_above, vars_of
from mlcc.passes.schedule.analysis.neutral_conditions import unimplied_condition
from mlcc.passes.schedule.analysis.new_nest import NewNest
from mlcc.passes.schedule.analysis.scope import escaping_write
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Tree


def check_order(
    tree: Tree, block: tir.Block, loop: tir.For, producers: Sequence[tir.Block], consumers: Sequence[tir.Block]
) -> None:
    """Refuse (E0650) a loop that has consumers before it, or producers after it, that are not under it."""
    places = {id(r.block): at for at, r in enumerate(tree.realizes)}
    inside = [places[id(r.block)] for r in tree.child_realizes(loop)]
    if not inside:
        return
    for other in consumers:
        if places[id(other)] < inside[0]:
            raise Refusal(
                "E0650",
                f"block `{other.name}`, which reads what `{block.name}` computes, runs before loop `{loop.var.name}`",
                (block, loop, other),
            )
    for other in producers:
        if places[id(other)] > inside[-1]:
            raise Refusal(
                "E0650",
                f"block `{other.name}` computes what `{block.name}` reads only after loop `{loop.var.name}`",
                (block, loop, other),
            )


def check_same_iterations(
    tree: Tree, block: tir.Block, scope: tir.Block, nest: NewNest, partial: Sequence[tir.Block]
) -> None:
    """Refuse (E0651) a move after which the block would do more work, add a term twice, or read partial sums.

    `partial` are the producers whose results may be unfinished in the loops around `nest`.
    """
    spatial = partial and escaping_write(block, scope) is not None
    kinds = (IterKind.SPATIAL, IterKind.REDUCE) if spatial else (IterKind.REDUCE,)
    partial_axis = partly_covered_axis(tree, tree.realize(block), kinds)
    if partial_axis is not None:
        axis = partial_axis.var.name
        message = (
            f"block `{block.name}` runs for a part of its axis `{axis}` only; the new loops would run for all of it"
        )
        raise Refusal("E0651", message, block)
    unimplied = unimplied_condition(tree, block)
    if unimplied is not None:
        words = (
            f"block `{block.name}` runs only where `{unimplied}`, which does not follow from its axes; the new loops "
            "would run for all of each axis"
        )
        raise Refusal("E0651", words, block)
    outer = {loop.var: loop for loop in nest.around if not is_one(loop.extent)}
    reduce = bound_vars(nest.realize, IterKind.REDUCE)
    if reduce & outer.keys() and not _reaches_each_point_once(tree, nest):
        words = f"block `{block.name}` would add terms more than once: the loops around do not reach each of them once"
        raise Refusal("E0651", words, (block, nest.around[-1]))
    used = bound_vars(nest.realize) & outer.keys()
    for producer in partial:
        unfinished = bound_vars(tree.realize(producer), IterKind.REDUCE) & used
        if unfinished:
            names = ", ".join(f"`{v.name}`" for v in unfinished)
            words = f"block `{block.name}` would read sums of `{producer.name}` before they are finished: loop {names}"
            raise Refusal("E0651", words, (block, producer, *(outer[v] for v in unfinished)))


def _reaches_each_point_once(tree: Tree, nest: NewNest) -> bool:
    """Return True if the loops reach each point of the block's iteration space exactly once."""
    loops = [*nest.around, *nest.loops]
    domain = {loop.var: tir.Range(loop.min, loop.extent) for loop in reversed(loops) if not is_one(loop.extent)}
    realize, analyzer = nest.realize, analyzer_of(tree)
    if detect_iter_map(realize.values, domain, realize.predicate, "bijective", analyzer, simplify_trivial=False):
        return True
    if tir.const_int(realize.predicate) == 1 or not domain.keys() <= set().union(*map(vars_of, realize.values)):
        return False
    return bool(
        detect_iter_map(realize.values, domain, realize.predicate, "surjective", analyzer, simplify_trivial=False)
    )


def partly_covered_axis(tree: Tree, realize: tir.BlockRealize, kinds: tuple[IterKind, ...]) -> tir.IterVar | None:
    """Return an axis that the loops provably cover only in part; None if there is none."""
    if not any(axis.kind in kinds for axis in realize.block.iter_vars):
        return None
    analyzer, domain = analyzer_of(tree), domain_above(tree, realize)
    for axis, value in zip(realize.block.iter_vars, realize.values, strict=True):
        span = domain.get(value) if isinstance(value, tir.Var) else None
        if axis.kind not in kinds or span is None or not any(v in domain for v in used_vars(span.extent)):
            continue
        if not analyzer.prove(
            c.greater_equal(span.extent, axis.dom.extent)
        ):  # a triangular range, bounded by another loop
            return axis
    iter_map = detect_iter_map(realize.values, domain, realize.predicate, "surjective", analyzer)
    for axis, index in zip(realize.block.iter_vars, iter_map.indices, strict=False):
        if axis.kind in kinds and _falls_short(index, axis.dom, analyzer):
            return axis
    return None


def _falls_short(index: IterSum, dom: tir.Range, analyzer: Analyzer) -> bool:
    extent = index.args[0].extent if index.args else c.const(1, dom.extent.dtype)
    return analyzer.prove(c.less(extent, dom.extent))
