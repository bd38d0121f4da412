"""Conditions on the terms of a reduction that change nothing, since the omitted terms equal the identity.

`rfactor` over a loop that runs further than there are terms leaves such a condition: `matmul_rf[lane]` has no term
where `lane >= n`. Once a block has filled all partial results with the identity, each of them may be combined.
"""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import analyzer_of, bindings, bound_vars, vars_of
from mlcc.passes.schedule.analysis.reducers import reduction_parts
from mlcc.passes.schedule.analysis.scope import scope_info
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Tree


def unimplied_condition(tree: Tree, block: tir.Block) -> tir.Expr | None:
    """Return a part of a reduction block's predicate that is not implied by the domains of its axes; None if none.

    Only conditions over reduce axes and symbolic sizes are examined, and neutral ones are left out.
    """
    realize = tree.realize(block)
    reduce = bound_vars(realize, tir.IterKind.REDUCE)
    loops = {at.var for at in tree.loops_above(block)}
    for part in conjunct_operands(realize.predicate):
        names = vars_of(part)
        if (
            names & reduce
            and names - loops
            and not _is_implied_by_axes(realize, part)
            and not _is_neutral(tree, realize, part)
        ):
            return part
    return None


def _is_implied_by_axes(realize: tir.BlockRealize, part: tir.Expr) -> bool:
    analyzer = Analyzer()
    known: tir.Expr = tir.TRUE
    for axis, value in zip(realize.block.iter_vars, realize.values, strict=True):
        end = c.add(axis.dom.min, axis.dom.extent)
        known = c.logical_and(known, c.logical_and(c.greater_equal(value, axis.dom.min), c.less(value, end)))
    with analyzer.constraint(known):
        return analyzer.prove(part)


def _is_neutral(tree: Tree, realize: tir.BlockRealize, part: tir.Expr) -> bool:
    """Return True if all terms of the reduction are loads of buffers that hold the identity where `part` is false."""
    try:
        terms = reduction_parts(realize.block)
    except Refusal:
        return False
    return all(
        isinstance(term, tir.BufferLoad) and _is_filled_elsewhere(tree, realize, term, identity, part)
        for term, identity in zip(terms.rhs, terms.init_values, strict=True)
    )


def _is_filled_elsewhere(
    tree: Tree, realize: tir.BlockRealize, load: tir.BufferLoad, identity: tir.Expr, part: tir.Expr
) -> bool:
    """Return True if a block fills the loaded buffer with `identity`, and all others write only where `part` holds."""
    scope = tree.scope(realize.block)
    assert scope is not None
    writers = dict.fromkeys(scope_info(tree, scope).writers.get(load.buffer, ()))
    fills = [w for w in writers if _fills(tree.realize(w), load.buffer, identity)]
    values = bindings(realize)
    at = [substitute(index, values) for index in load.indices]
    return bool(fills) and all(
        _writes_only_where(tree, tree.realize(w), load.buffer, at, part) for w in writers if w not in fills
    )


def _fills(realize: tir.BlockRealize, buffer: tir.Buffer, value: tir.Expr) -> bool:
    match realize.block:
        case tir.Block(reads=(), init=None, body=(tir.BufferStore() as store,)):
            always = tir.const_int(realize.predicate) == 1
            return always and store.buffer is buffer and not vars_of(value) and same_expr(store.value, value)
    return False


def _writes_only_where(
    tree: Tree, realize: tir.BlockRealize, buffer: tir.Buffer, at: list[tir.Expr], part: tir.Expr
) -> bool:
    """Return True if the predicate of the writer of an element implies `part`, stated over its indices `at`."""
    region = next(w.region for w in realize.block.writes if w.buffer is buffer)
    values = bindings(realize)
    same = {
        index: substitute(span.min, values)
        for index, span in zip(at, region, strict=True)
        if isinstance(index, tir.Var) and tir.const_int(span.extent) == 1
    }
    if not vars_of(part) & {loop.var for loop in tree.loops} <= same.keys():
        return False
    analyzer, condition = analyzer_of(tree), substitute(part, same)
    return any(_implies(known, condition, analyzer) for known in conjunct_operands(realize.predicate))


def _implies(premise: tir.Expr, conclusion: tir.Expr, analyzer: Analyzer) -> bool:
    """Return True if `premise` implies `conclusion`.

    Both are `<` or both `<=`, and `lhs - rhs` of `premise` is provably at least that of `conclusion`.
    """
    match premise, conclusion:
        case (tir.LT(lhs=a, rhs=b), tir.LT(lhs=x, rhs=y)) | (tir.LE(lhs=a, rhs=b), tir.LE(lhs=x, rhs=y)):
            return analyzer.prove_at_least(c.sub(c.sub(a, b), c.sub(x, y)), 0)
    return False
