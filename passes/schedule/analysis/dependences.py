"""Dependence analysis of loop nests: distances between accesses to one element, and orders that preserve them.

A distance vector holds, for each loop, how many iterations after the first access the second one reaches the same
element: a number, or None if it may be any. Accesses are the regions that blocks declare.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.tir import Expr, const_int
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import bindings, vars_of
from mlcc.passes.schedule.analysis.conditions import is_complete_block, is_reduction_block
from mlcc.passes.schedule.analysis.region_cover import region_cover
from mlcc.passes.schedule.tree import Body, Stmt, Tree, child_realizes

Distance = list[int | None]
Violation = tuple[str, tuple[tir.Block, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """A block's access to a buffer. An index is None if it is not a single element or depends on further loops."""

    block: tir.Block
    buffer: tir.Buffer
    indices: tuple[Expr | None, ...]
    is_write: bool


def accesses(tree: Tree, body: Body | Stmt, above: Sequence[tir.For]) -> list[Access]:
    """Return the accesses of the outermost blocks below `body`, in terms of the loops `above` and those around them."""
    collected: list[Access] = []
    for realize in _leaves(body):
        block, values = realize.block, bindings(realize)
        inner: set[tir.Var] = set()
        for loop in tree.ancestors(realize):
            if loop is above[-1]:
                break
            if isinstance(loop, tir.For):
                inner.add(loop.var)
        for regions, is_write in ((block.reads, False), (block.writes, True)):
            for region in regions:
                indices = tuple(_index(span, values, inner) for span in region.region)
                collected.append(Access(block, region.buffer, indices, is_write))
    return collected


def _leaves(body: Body | Stmt) -> Iterator[tir.BlockRealize]:
    """Yield the outermost blocks; a block without axes is replaced by the blocks inside it, if there are any."""
    for realize in child_realizes(body):
        inside = [] if realize.block.iter_vars else list(_leaves(realize.block.body))
        yield from inside or [realize]


def _index(span: tir.Range, values: Mapping[tir.Var, Expr], inner: set[tir.Var]) -> Expr | None:
    if const_int(span.extent) != 1:
        return None
    index: Expr = substitute(span.min, values)
    return None if vars_of(index) & inner else index


# ---------------------------------------------------------------- distances


def distance(a: Access, b: Access, loops: Sequence[tir.For], analyzer: Analyzer) -> Distance | None:
    """Return how many iterations after `a` access `b` reaches the same element; None if it never does.

    Both are in terms of the variables of `loops`.
    """
    variables = {loop.var for loop in loops}
    distances: dict[tir.Var, int] = {loop.var: 0 for loop in loops if const_int(loop.extent) == 1}
    same: list[Expr] = []
    for one, other in zip(a.indices, b.indices, strict=True):
        if one is None or other is None:
            continue
        difference = const_int(analyzer.simplify(c.sub(one, other)))
        used = vars_of(one) & variables
        if difference is None:
            continue
        if not used:
            if difference:
                return None
        elif not difference:
            same.append(one)
        elif len(used) == 1:
            (var,) = used
            step = const_int(analyzer.simplify(c.sub(substitute(one, {var: c.add(var, 1)}), one)))
            if step is not None and step:
                if difference % step or distances.get(var, difference // step) != difference // step:
                    return None
                distances[var] = difference // step
    for var in _determined(same, loops, analyzer):
        if distances.get(var, 0):
            return None
        distances[var] = 0
    return [distances.get(loop.var) for loop in loops]


def _determined(indices: list[Expr], loops: Sequence[tir.For], analyzer: Analyzer) -> set[tir.Var]:
    """Return the loop variables that the values of the indices determine uniquely."""

    def injective(values: list[Expr]) -> set[tir.Var]:
        used = set().union(*map(vars_of, values))
        ranges = {loop.var: tir.Range(loop.min, loop.extent) for loop in loops if loop.var in used}
        return set(ranges) if detect_iter_map(values, ranges, level="bijective", analyzer=analyzer) else set()

    if all(isinstance(index, tir.Var) for index in indices):
        return {index for index in indices if isinstance(index, tir.Var)}
    return injective(indices) or set().union(*(injective([index]) for index in indices))


# ---------------------------------------------------------------- orders


def reorder_violation(tree: Tree, chain: Sequence[tir.For], moved: Sequence[tir.For]) -> Violation | None:
    """Return two blocks with a dependence that the order `moved` of the loops `chain` would reverse, None if none."""
    return next(
        (_violation(a, b) for a, b, steps in _dependent_pairs(tree, chain) if _may_be_reversed(steps, chain, moved)),
        None,
    )


def carried_dependence(tree: Tree, chain: Sequence[tir.For]) -> Violation | None:
    """Return two blocks with a dependence carried by the loops `chain`, None if there are none."""
    return next(
        (_violation(a, b) for a, b, steps in _dependent_pairs(tree, chain) if any(step != 0 for step in steps)), None
    )


def _dependent_pairs(tree: Tree, chain: Sequence[tir.For]) -> Iterator[tuple[Access, Access, Distance]]:
    """Yield dependent pairs of accesses, with the distance vector over `chain` between them."""
    all_accesses = accesses(tree, chain[-1].body, chain)
    analyzer = Analyzer()
    for a, b in combinations_with_replacement(all_accesses, 2):
        if a.buffer is not b.buffer or not (a.is_write or b.is_write):
            continue
        if a.block is b.block and _same(a, b, analyzer):
            continue  # an instance of the block meets itself, or a reduction adds up in any order
        if a.block is not b.block and _produces_all_reads(tree, a, b):
            continue
        if a is not b and a.block is b.block and a.is_write and b.is_write:
            continue
        steps = distance(a, b, chain, analyzer)
        if steps is not None:
            yield a, b, steps


def _violation(a: Access, b: Access) -> Violation:
    return _phrase(a, b), (a.block,) if a.block is b.block else (a.block, b.block)


def _same(a: Access, b: Access, analyzer: Analyzer) -> bool:
    return a is b or all(
        (x is None and y is None) or (x is not None and y is not None and analyzer.same(x, y))
        for x, y in zip(a.indices, b.indices, strict=True)
    )


def _produces_all_reads(tree: Tree, a: Access, b: Access) -> bool:
    """Return True if the writer computes in each iteration all that the reader needs: nothing is carried over."""
    if a.is_write and not b.is_write:
        scope = tree.scope(a.block)
        if scope is None or tree.scope(b.block) is not scope or not region_cover(tree, b.block):
            return False
        return is_complete_block(tree, a.block, scope) or is_reduction_block(tree, a.block, scope)
    return False


def _may_be_reversed(steps: Distance, old: Sequence[tir.For], new: Sequence[tir.For]) -> bool:
    """Return True if a dependence of these distances may be reversed by ordering the loops `old` as `new`."""
    at = dict(zip(old, steps, strict=True))
    for p, first in enumerate(old):
        if at[first] != 0:
            for lead in new[: new.index(first)]:
                zeros = [*old[:p], *new[: new.index(lead)]]
                if (
                    lead in old[p + 1 :]
                    and _may_have_opposite_signs(at[first], at[lead])
                    and all(not at[loop] for loop in zeros)
                ):
                    return True
        if at[first]:
            break
    return False


def _may_have_opposite_signs(a: int | None, b: int | None) -> bool:
    """Return True if the distances may have opposite signs; None may be any."""
    return b != 0 and (a is None or b is None or (a < 0) != (b < 0))


def _phrase(a: Access, b: Access) -> str:
    verbs = ["writes" if x.is_write else "reads" for x in (a, b)]
    one, other, name = a.block.name, b.block.name, a.buffer.name
    if a.block is b.block:
        return f"block `{one}` writes elements of `{name}` that it reads in other iterations"
    return f"block `{one}` {verbs[0]} elements of `{name}` that block `{other}` {verbs[1]} in other iterations"


def merge_violation(tree: Tree, nests: Sequence[Sequence[tir.For]]) -> Violation | None:
    """Return two blocks with a dependence that fusing the nests, bodies in the given order, would reverse, or None."""
    loops, analyzer = nests[0], Analyzer()
    nest_accesses = []
    for nest in nests:
        renamed = {x.var: c.cast(x.var.dtype, y.var) for x, y in zip(nest, loops, strict=True)}
        nest_accesses.append([
            Access(a.block, a.buffer, tuple(i and substitute(i, renamed) for i in a.indices), a.is_write)
            for a in accesses(tree, nest[-1].body, nest)
        ])  # fmt: skip
    place = {loop: n for n, loop in enumerate(tree.loops)}
    for p, ours in enumerate(nest_accesses):
        for q in range(p + 1, len(nests)):
            is_before = place[nests[p][0]] < place[nests[q][0]]
            for a in ours:
                for b in nest_accesses[q]:
                    if a.buffer is not b.buffer or not (a.is_write or b.is_write):
                        continue
                    steps = distance(a, b, loops, analyzer)
                    if steps is not None and not _is_preserved(steps, is_before):
                        return _phrase(a, b), (a.block, b.block)
    return None


def _is_preserved(steps: Distance, is_before: bool) -> bool:
    """Return True if fusing two nests, bodies in order, preserves a dependence between them.

    `is_before`: all iterations of the first nest ran before those of the second; otherwise after.
    """
    for step in steps:
        if step is None:
            return False
        if step:
            return (step > 0) == is_before
    return is_before


def accessed_buffers(body: Body | Stmt) -> tuple[set[tir.Buffer], set[tir.Buffer]]:
    """Return the buffers that the blocks below read, and those that they write."""
    reads: set[tir.Buffer] = set()
    writes: set[tir.Buffer] = set()
    for realize in _leaves(body):
        reads |= {region.buffer for region in realize.block.reads}
        writes |= {region.buffer for region in realize.block.writes}
    return reads, writes


def conflicting_buffers(one: Body | Stmt, other: Body | Stmt) -> Iterable[tir.Buffer]:
    """Return the buffers that one side writes and the other accesses."""
    reads, writes = accessed_buffers(one)
    others, written = accessed_buffers(other)
    return [*(writes & (others | written)), *(reads & written)]
