"""Simplify the updates of argmax and argmin reductions whose indices ascend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import linear_parts
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import find, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.accesses import Access, AccessCollector
from mlcc.passes.lowering.allocation_depth import shared_depth, store_covers
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import BLOCKS
from mlcc.passes.schedule.analysis.reducers import ArgUpdate, arg_update


@dataclass(frozen=True)
class SimplifyArgUpdates(LoweringStep):
    """Compare no indices in argmax and argmin reductions whose indices ascend: the kept element is the first of equals.

    Before:  I[i] = -1                                                  # the start
             v0 = T.Select(I[i] >= 0 and (k < 0 or V[i] > A[k] or V[i] == A[k] and I[i] < k), I[i], k)
             v1 = T.Select(V[i] > A[k], V[i], A[k])
    After:   I[i] = 0                                                   # the first index, if known at compile time
             v0 = T.Select(not V[i] >= A[k], k, I[i])                   # else: not V[i] >= A[k] or I[i] < 0
             v1 = T.Select(not V[i] >= A[k], A[k], V[i])

    The first index may stand for none where nothing is worse than the start value, an infinity or the extreme integer.
    The value that is kept may be another zero, so values that a caller sees stay as they are.
    """

    name: ClassVar[str] = "simplify-arg-updates"
    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = BLOCKS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        if not any(_may_update(b) for b in find(func, tir.Block)):
            return func
        simplifier = _UpdateSimplifier(func)
        simplified = simplifier.body(func.body)
        if simplified is func.body:
            return func
        return replace(func, body=_StartChanger(simplifier.first_indices).body(simplified))


def _may_update(block: tir.Block) -> bool:
    """Return True for a block that binds two values and stores two."""
    return len(block.body) == 4 and all(isinstance(s, tir.Bind) for s in block.body[:2])


class _StartChanger(TirMutator):
    """Replaces stores of start values."""

    def __init__(self, changed: Mapping[tir.BufferStore, tir.BufferStore]) -> None:
        self._changed = changed

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        return self._changed.get(node, node)

    def stmt_realize(self, node: tir.BlockRealize) -> Stmt | list[Stmt]:
        block = node.block
        init = None if block.init is None else self.body(block.init)
        return replace(node, block=replace(block, init=init, body=self.body(block.body)))


class _UpdateSimplifier(TirMutator):
    def __init__(self, func: tir.PrimFunc) -> None:
        self.first_indices: dict[tir.BufferStore, tir.BufferStore] = {}  # for stores of -1 that start indices
        self._visible = {b for b in func.buffers if b is not None}
        self._stores: dict[tir.Buffer, list[tir.BufferStore]] = {}
        for store in find(func, tir.BufferStore):
            self._stores.setdefault(store.buffer, []).append(store)
        self._loops: list[tir.For] = []
        self._func = func
        self._collected: AccessCollector | None = None

    def stmt_while(self, node: tir.While) -> Stmt | list[Stmt]:
        return node  # a block in it may run again for the same elements

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        self._loops.append(node)
        try:
            return super().stmt_for(node)
        finally:
            self._loops.pop()

    def stmt_realize(self, node: tir.BlockRealize) -> Stmt | list[Stmt]:
        update = arg_update(node.block) if _may_update(node.block) else None
        index = None if update is None else _index_of(update)
        if (
            update is None
            or index is None
            or update.buffers[1] in self._visible
            or not self._starts_from_none(node, update)
            or not self._ascends(node, index)
        ):
            return replace(node, block=replace(node.block, body=self.body(node.block.body)))
        starts = self._from_first(node, update, index)
        taken = update.taken if starts is None else _where_better(update) or update.taken
        self.first_indices |= starts or {}
        binds = [
            tir.Bind(bind.var, tir.Select(new.dtype, taken, new, old), span=bind.span)
            for bind, old, new in zip(node.block.body[:2], update.lhs, update.rhs, strict=True)
            if isinstance(bind, tir.Bind)
        ]
        return replace(node, block=replace(node.block, body=(*binds, *node.block.body[2:])))

    def _starts_from_none(self, node: tir.BlockRealize, update: ArgUpdate) -> bool:
        """Return True if all indices that are kept come from this block, after a negative one, and an element that is
        taken for that alone is no worse than the start value.
        """
        indices, values = self._starts(node, update)
        starts = [tir.const_int(s.value) for s in indices]
        neutral = all(_nothing_is_worse(s.value, update.reducer.identity[1]) for s in values)
        none = all(start is not None and start < 0 for start in starts)
        return bool(starts) and none and (neutral or _where_better(update) is None)

    def _starts(self, node: tir.BlockRealize, update: ArgUpdate) -> tuple[list[tir.BufferStore], ...]:
        """Return the stores of a block's indices and of its values that are not its updates."""
        own = node.block.body[2:]
        return tuple([s for s in self._stores[b] if not any(s is one for one in own)] for b in update.buffers)

    def _from_first(
        self, node: tir.BlockRealize, update: ArgUpdate, index: Expr
    ) -> dict[tir.BufferStore, tir.BufferStore] | None:
        """Return the stores that start the kept indices from the first one of each element instead of none.

        None if that is not known: with conditions some elements, or all, may be left out, as may be where the loops
        are smaller than the domains of the block's axes.
        """
        block = node.block
        own = [s for s in block.body[2:] if isinstance(s, tir.BufferStore)]
        places = next(s.indices for s in own if s.buffer is update.buffers[0])
        spatial = {a.var for a in block.iter_vars if a.kind is tir.IterKind.SPATIAL}
        reduced = {a.var: a.dom.min for a in block.iter_vars if a.kind is not tir.IterKind.SPATIAL}
        known = {v for v in places if isinstance(v, tir.Var)}
        if (
            _where_better(update) is None
            or index is not update.rhs[0]
            or len(known) != len(places)
            or not used_vars(index) <= known & spatial | reduced.keys()
            or not self._begins_at_minimum(node)
            or not self._updates_all_starts(node, update)
        ):
            return None
        first = substitute(index, reduced)
        return {
            s: replace(s, value=substitute(first, dict(zip(places, s.indices, strict=True))))
            for s in self._starts(node, update)[0]
        }

    def _begins_at_minimum(self, node: tir.BlockRealize) -> bool:
        """Prove that the first iteration of the loops around a block has the least of each reduce axis."""
        firsts = {loop.var: loop.min for loop in self._loops}
        analyzer = Analyzer()
        return all(
            analyzer.prove_equal(substitute(value, firsts), axis.dom.min)
            for axis, value in zip(node.block.iter_vars, node.values, strict=True)
            if axis.kind is not tir.IterKind.SPATIAL
        )

    def _updates_all_starts(self, node: tir.BlockRealize, update: ArgUpdate) -> bool:
        """Prove that the block updates each index that a start is stored to, before any other statement reads it.

        In each iteration of the loops that a start and the update share, the whole reduction follows the start.
        """
        collector = self._collector()
        uses = collector.uses[update.buffers[0].data]
        if uses.opaque or collector.jumps:
            return False
        own = [a for a in uses.accesses if a.path and a.path[-1][0] is node]
        last = own[-1]  # the store: the init comes before the body
        if any(tir.const_int(guard) != 1 for guard, _ in last.guards):
            return False
        if not all(same_expr(i, j) for a in own for i, j in zip(a.indices, last.indices, strict=True)):
            return False
        reduced = {var for axis, value in zip(node.block.iter_vars, node.values, strict=True)
                   if axis.kind is not tir.IterKind.SPATIAL for var in used_vars(value)}  # fmt: skip
        for start in (a for a in uses.accesses if a.writes and a is not last and a not in own):
            shared = shared_depth(start, last)
            around = (s for s, _ in last.path[:shared] if isinstance(s, tir.For) and tir.const_int(s.extent) != 1)
            if any(loop.var in reduced for loop in around) or start.number > last.number:
                return False
            if any(self._may_read_start(a, start, last) for a in uses.accesses if not a.writes and a not in own):
                return False
            if not store_covers(last, start, 0, collector.loose):
                return False
        return True

    def _may_read_start(self, load: Access, start: Access, update: Access) -> bool:
        """Return True unless a load is proved to read no index between its start and its first update."""
        shared = shared_depth(start, update)
        if load.path[:shared] != update.path[:shared]:
            return False
        if start.number < load.number < update.number:
            return True
        if load.path[: shared + 1] not in (start.path[: shared + 1], update.path[: shared + 1]):
            return False
        return load.number < start.number or not store_covers(update, load, 0, self._collector().loose)

    def _collector(self) -> AccessCollector:
        """Return the accesses of all buffers that the function stores to."""
        if self._collected is None:
            self._collected = AccessCollector(self._stores)
            self._collected.body(self._func.body)
        return self._collected

    def _ascends(self, node: tir.BlockRealize, index: Expr) -> bool:
        """Prove that an index is at least 0, and grows from one update of an element to the next.

        It must be a sum of axes with positive factors, and in the loops of its reduce axes each step must be larger
        than what all inner loops add.
        """
        narrow = isinstance(index, tir.Cast) and index.dtype.is_int and not index.dtype.is_uint
        parts = linear_parts(index.value if isinstance(index, tir.Cast) and narrow else index, casts=True)
        axes = dict(zip((a.var for a in node.block.iter_vars), node.values, strict=True))
        if parts is None or parts[1] < 0 or not all(v in axes and factor > 0 for v, factor in parts[0].items()):
            return False
        mins = (tir.const_int(a.dom.min) for a in node.block.iter_vars)
        if not all(least is not None and least >= 0 for least in mins):
            return False
        if narrow and not _fits(parts, node.block.iter_vars, index.dtype):
            return False
        steps: dict[tir.Var, int] = {}
        spatial: set[tir.Var] = set()
        for axis in node.block.iter_vars:
            if axis.kind is tir.IterKind.SPATIAL:
                spatial |= used_vars(axes[axis.var])
                continue
            inside = linear_parts(axes[axis.var], casts=True)
            if inside is None:
                return False
            for var, factor in inside[0].items():
                steps[var] = steps.get(var, 0) + factor * parts[0].get(axis.var, 0)
        repeated = [at for at in self._loops if tir.const_int(at.extent) != 1]
        if any(at.var not in steps and at.var not in spatial for at in repeated):
            return False  # the block runs again for the same element
        reach = 0
        for loop in reversed([at for at in self._loops if at.var in steps]):
            if loop.var in spatial or loop.kind not in (tir.ForKind.SERIAL, tir.ForKind.UNROLLED):
                return False
            step, extent = steps.pop(loop.var), tir.const_int(loop.extent)
            if step <= reach or (extent is None and steps):
                return False
            reach += step * max((extent or 1) - 1, 0)
        return not steps


def _fits(parts: tuple[dict[tir.Var, int], int], axes: Sequence[tir.IterVar], dtype: DType) -> bool:
    """Return True if a sum of axes with positive factors is a number of the dtype."""
    largest = parts[1]
    for axis in axes:
        factor, least, extent = parts[0].get(axis.var, 0), tir.const_int(axis.dom.min), tir.const_int(axis.dom.extent)
        if factor and (least is None or extent is None):
            return False
        largest += factor * ((least or 0) + max((extent or 0) - 1, 0))
    return largest < 1 << (dtype.bits - 1)


def _index_of(update: ArgUpdate) -> Expr | None:
    """Return the index of the elements of an update, None if it may have none that would be taken.

    Where a condition does not hold, as in padded loops, an update may have the identity for its element. It is not
    taken where `taken` compares numbers only: nothing is worse than an infinity, or than the extreme integer.
    """
    match update.rhs:
        case (
            tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, index, tir.IntImm(value=-1))),
            tir.Call(op=tir.Op(name="tir.if_then_else"), args=(other, _, none)),
        ):
            compares_numbers = none.dtype.is_int or _checks_nan(update.taken)
            neutral = isinstance(none, tir.IntImm) or (isinstance(none, tir.FloatImm) and math.isinf(none.value))
            same = same_expr(condition, other) and same_expr(none, update.reducer.identity[1])
            return index if same and neutral and compares_numbers else None
    return update.rhs[0]


def _checks_nan(condition: Expr) -> bool:
    """Return True if a condition says that some value equals itself."""
    return any(same_expr(node.lhs, node.rhs) for node in find(condition, tir.EQ))


def _nothing_is_worse(start: Expr, identity: Expr) -> bool:
    """Return True for the start value of a minimum or maximum that is an infinity or the extreme integer."""
    if isinstance(start, tir.FloatImm) and isinstance(identity, tir.FloatImm):
        return math.isinf(start.value) and (start.value < 0) == (identity.value < 0)
    return isinstance(start, tir.IntImm) and same_expr(start, identity)


def _where_better(update: ArgUpdate) -> Expr | None:
    """Return the condition of an update without the term that the kept index is negative; None if it has none."""
    match update.taken:
        case tir.Or(lhs=better, rhs=tir.LT(lhs=kept, rhs=tir.IntImm(value=0))) if same_expr(kept, update.lhs[0]):
            return better
    return None
