"""Simplify the updates of argmax and argmin reductions whose indices ascend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.conditions import linear_parts
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import find, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.ir.visit import used_vars
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import BLOCKS
from mlcc.passes.schedule.analysis.reducers import ArgUpdate, arg_update


@dataclass(frozen=True)
class SimplifyArgUpdates(LoweringStep):
    """Compare no indices in argmax and argmin reductions whose indices ascend: the kept element is the first of equals.

    Before:  v0 = T.Select(I[i] >= 0 and (k < 0 or V[i] > A[k] or V[i] == A[k] and I[i] < k), I[i], k)
             v1 = T.Select(V[i] > A[k], V[i], A[k])
    After:   v0 = T.Select(not V[i] >= A[k] or I[i] < 0, k, I[i])
             v1 = T.Select(not V[i] >= A[k] or I[i] < 0, A[k], V[i])

    The value that is kept may be another zero, so values that a caller sees stay as they are.
    """

    name: ClassVar[str] = "simplify-arg-updates"
    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = BLOCKS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        if not any(_may_update(b) for b in find(func, tir.Block)):
            return func
        simplified = _UpdateSimplifier(func).body(func.body)
        return func if simplified is func.body else replace(func, body=simplified)


def _may_update(block: tir.Block) -> bool:
    """Return True for a block that binds two values and stores two."""
    return len(block.body) == 4 and all(isinstance(s, tir.Bind) for s in block.body[:2])


class _UpdateSimplifier(TirMutator):
    def __init__(self, func: tir.PrimFunc) -> None:
        self._visible = {b for b in func.buffers if b is not None}
        self._stores: dict[tir.Buffer, list[tir.BufferStore]] = {}
        for store in find(func, tir.BufferStore):
            self._stores.setdefault(store.buffer, []).append(store)
        self._loops: list[tir.For] = []

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
        binds = [
            tir.Bind(bind.var, value, span=bind.span)
            for bind, value in zip(node.block.body[:2], _in_order(update), strict=True)
            if isinstance(bind, tir.Bind)
        ]
        return replace(node, block=replace(node.block, body=(*binds, *node.block.body[2:])))

    def _starts_from_none(self, node: tir.BlockRealize, update: ArgUpdate) -> bool:
        """Return True if all indices that are kept come from this block, after a negative one."""
        own = node.block.body[2:]
        others = [s for s in self._stores[update.buffers[0]] if not any(s is one for one in own)]
        starts = [tir.const_int(s.value) for s in others]
        return bool(starts) and all(start is not None and start < 0 for start in starts)

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
        if any(at.var not in steps and at.var not in spatial for at in self._loops):
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


def _in_order(update: ArgUpdate) -> tuple[Expr, ...]:
    """Return the kept index and value after an update whose index is larger than the kept one."""
    return tuple(tir.Select(new.dtype, update.taken, new, old) for old, new in zip(update.lhs, update.rhs, strict=True))
