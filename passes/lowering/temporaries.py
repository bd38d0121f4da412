"""The lowering step `pad-temporaries`: temporaries of unknown size hold whole vectors.

    A = alloc((n,))                                  A = alloc((n + 7,))
    for j in T.vectorized(8):                        for j in T.vectorized(8):
        if i * 8 + j < n:                   ->           A[i * 8 + j] = exp(if i * 8 + j < n: B[i * 8 + j] else 0)
            A[i * 8 + j] = exp(B[i * 8 + j])

What is stored behind the end is never read. Only loads have a mask: a CPU makes a reader wait for a masked store until
it has reached the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.intset import Interval, eval_set, from_range
from mlcc.arith.structural_keys import same_expr
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import find, replace
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.lowering.accesses import is_pure
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.symbols import symbols_of
from mlcc.passes.lowering.vector_legality import linear_form
from mlcc.passes.manage.stages import FLAT

_IF_THEN_ELSE = tir.Op("tir.if_then_else")


def pad_temporaries(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat code) with vector stores to temporaries that no mask cuts off at an unknown size."""
    if not symbols_of(func):
        return func
    padder = _Padder(_stored_once(func), frozenset(symbols_of(func)), _definitions(func))
    body = padder.body(func.body)
    larger = {
        buffer: replace(buffer, shape=(c.add(buffer.shape[0], excess),)) for buffer, excess in padder.excess.items()
    }
    return replace(func, body=substitute(body, larger)) if larger else func


def _stored_once(func: tir.PrimFunc) -> set[tir.Buffer]:
    """Return the temporaries that a single statement writes, and that have no other name."""
    stores = Counter(store.buffer for store in find(func.body, tir.BufferStore))
    shared = {arg for call in find(func.body, tir.Call) for arg in call.args if isinstance(arg, tir.Var)}
    shared |= {var for view in find(func.body, tir.DeclBuffer) for var in used_vars(view.data)}
    allocated = (alloc.buffer for alloc in find(func.body, tir.AllocBuffer))
    return {buffer for buffer in allocated if stores[buffer] == 1 and buffer.data not in shared}


def _definitions(func: tir.PrimFunc) -> dict[tir.Var, frozenset[tir.Var]]:
    """Return the variables that the values of bound variables use."""
    return {node.var: frozenset(used_vars(node.value)) for node in find(func.body, tir.Bind, tir.Let)}


class _Padder(TirMutator):
    """Drops the masks of stores to `temporaries`; `excess` is by how much each may reach past its end."""

    def __init__(
        self, temporaries: set[tir.Buffer], sizes: frozenset[tir.Var], definitions: Mapping[tir.Var, frozenset[tir.Var]]
    ) -> None:
        self.excess: dict[tir.Buffer, int] = {}
        self._temporaries = temporaries
        self._definitions = definitions
        self._sizes = sizes
        self._analyzer = Analyzer()
        self._domains: dict[tir.Var, Interval] = {}  # of the loops around
        self._vector: tir.For | None = None

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        lanes = tir.const_int(node.extent) if node.kind is ForKind.VECTORIZED and tir.const_int(node.min) == 0 else None
        outer = self._vector
        self._vector = node if lanes is not None else None
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
            self._domains[node.var] = from_range(tir.Range(node.min, node.extent))
        result = super().stmt_for(node)
        self._domains.pop(node.var, None)
        self._vector = outer
        return result

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        match node:
            case tir.IfThenElse(
                condition=tir.LT() as within, then_body=(tir.BufferStore(indices=(index,)) as store,), else_body=None
            ) if (
                store.buffer in self._temporaries
                and _may_run_in_all_lanes(store.value)
                and self._only_cuts(within, index)
            ):
                assert self._vector is not None
                self.excess[store.buffer] = (tir.const_int(self._vector.extent) or 1) - 1
                masked = _LoadMasker(within, self._definitions).expr(store.value)
                return replace(store, value=masked)
        return super().stmt_if(node)

    def _only_cuts(self, within: tir.LT, index: Expr) -> bool:
        """Return True if a condition cuts a vector off at an unknown size, `index < size`, but never all of it."""
        if self._vector is None or not used_vars(within.rhs) <= self._sizes or not same_expr(within.lhs, index):
            return False
        lane = self._vector.var
        form = linear_form(index, {lane}, {})
        if form is None or form.terms.get(lane) != 1 or tir.const_int(within.rhs) is not None:
            return False
        first = substitute(within, {lane: c.const(0, lane.dtype)})
        excess = self._analyzer.simplify(c.add(c.sub(first.lhs, first.rhs), 1))
        high = eval_set(excess, self._domains, self._analyzer).high
        return (
            high is not None and is_pure(high) and self._analyzer.prove(c.less_equal(self._analyzer.simplify(high), 0))
        )


def _may_run_in_all_lanes(value: Expr) -> bool:
    """Return True if a value may be computed from zeros, too: without effects and integer divisions."""
    divisions = find(value, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod)
    return not any(node.dtype.is_int for node in divisions) and not any(
        effect_of(call) > Effect.PURE for call in find(value, tir.Call)
    )


class _LoadMasker(TirMutator):
    """Read 0 where a condition fails, at indices that it concerns."""

    def __init__(self, condition: tir.LT, definitions: Mapping[tir.Var, frozenset[tir.Var]]) -> None:
        self._condition = condition
        self._used = set(used_vars(condition.lhs))
        while more := {var for var, used in definitions.items() if used & self._used} - self._used:
            self._used |= more

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        if not used_vars(node.indices) & self._used:
            return node
        zero = c.const(0, node.dtype)
        return tir.Call(node.dtype, _IF_THEN_ELSE, (self._condition, node, zero), span=node.span)


@dataclass(frozen=True)
class PadTemporaries(LoweringStep):
    """Store whole vectors to temporaries of unknown size, which are allocated as much larger, instead of masked ones.

    Before:  if i * 8 + j < n: A[i * 8 + j] = B[i * 8 + j] + 1      # j in T.vectorized(8), A of n elements
    After:   A[i * 8 + j] = T.if_then_else(i * 8 + j < n, B[i * 8 + j], 0) + 1      # A of n + 7 elements
    """

    name: ClassVar[str] = "pad-temporaries"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return pad_temporaries(func)
