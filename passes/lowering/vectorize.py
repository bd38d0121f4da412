"""Replace loops marked `T.vectorized` by vector code (`vector_code`).

A loop is left serial if its extent is not constant or its iterations depend on one another (`vector_legality`). Long
loops become a loop over vectors, and a rest. What happens in some lanes only is done under a mask. A statement that has
no vector form (a call of a function) runs lane by lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.lowering.aliases import AliasMutator
from mlcc.passes.lowering.folding import copy_body
from mlcc.passes.lowering.mutator import Body
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.reductions import find_reduction, reduce_in_vectors
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.vector_code import LaneVectorizer, NotVectorizable
from mlcc.passes.lowering.vector_legality import REASSOCIATE, is_lockstep_safe
from mlcc.passes.manage.stages import FLAT

_MAX_UNROLLED = 4


def vectorize_loops(func: tir.PrimFunc, options: LowerOptions) -> tir.PrimFunc:
    """Return `func` with marked loops as vector code."""
    return replace(func, body=_Vectorizer(options).body(func.body))


class _Vectorizer(AliasMutator):
    def __init__(self, options: LowerOptions) -> None:
        super().__init__()
        self._options = options
        self._analyzer = Analyzer()

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        if node.kind is not ForKind.VECTORIZED:
            reduced = self._vectorize_reduction(node) if node.annotations.get(REASSOCIATE) else None
            return replace(node, body=self.body(node.body)) if reduced is None else reduced
        serial = replace(node, kind=ForKind.SERIAL)
        extent = tir.const_int(node.extent)
        if extent is None or tir.const_int(node.step) not in (None, 1):
            return replace(serial, body=self.body(node.body))
        for inner in _inner_vectorized(node.body):  # one level of lanes: inner marks give way
            return replace(serial, body=self.body(inner))
        self._bind_views(node.body)
        if extent < 2:
            return serial
        try:
            if is_lockstep_safe(serial, self._aliases):
                return self._vectorize(serial, extent)
        except NotVectorizable:
            return serial
        return self._vectorize_reduction(node) or serial

    def _vectorize_reduction(self, loop: tir.For) -> list[Stmt] | None:
        """Return a vectorized reduction; None if the loop is not a reduction."""
        if tir.const_int(loop.step) not in (None, 1):
            return None
        reduction = find_reduction(loop, self._aliases, self._options.reassociate)
        if reduction is None:
            return None
        try:
            return reduce_in_vectors(loop, reduction, self._analyzer, self._options)
        except NotVectorizable:
            return None

    def _bind_views(self, body: Body) -> None:
        for stmt in body:
            if isinstance(stmt, tir.DeclBuffer):
                self._aliases.bind(stmt.buffer.data, stmt.data)

    def _vectorize(self, loop: tir.For, extent: int) -> list[Stmt]:
        width = min(extent, self._options.lanes_for(loop.body))
        chunks, rest = divmod(extent, width)
        var = loop.var
        statements: list[Stmt] = []
        if chunks == 1:
            statements += LaneVectorizer(var, loop.min, width, self._analyzer, self._options).body(loop.body)
        else:
            chunk = tir.Var(f"{var.name}_v", var.dtype)
            base = c.add(loop.min, c.mul(chunk, width))
            zero = c.const(0, var.dtype)
            self._analyzer.bind(chunk, tir.Range(zero, c.const(chunks, var.dtype)))
            body = LaneVectorizer(var, base, width, self._analyzer, self._options).body(loop.body)
            kind = ForKind.UNROLLED if chunks <= _MAX_UNROLLED else ForKind.SERIAL  # a tile of a few vectors: registers
            statements.append(tir.For(chunk, zero, c.const(chunks, var.dtype), kind, body, span=loop.span))
        if rest:
            rest_var = tir.Var(var.name, var.dtype)
            body = copy_body(loop.body, {var: rest_var})
            start = c.add(loop.min, chunks * width)
            lanes = LaneVectorizer(rest_var, start, rest, self._analyzer, self._options)
            statements += lanes.body(body) if rest > 1 else copy_body(body, {rest_var: start})
        return statements


def _inner_vectorized(body: Body) -> list[Body]:
    """Return [body] if it contains a vectorized loop, else []."""
    stack = list(body)
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, tir.For) and stmt.kind is ForKind.VECTORIZED:
            return [body]
        for name in ("body", "then_body", "else_body"):
            stack.extend(getattr(stmt, name, None) or ())
    return []


@dataclass(frozen=True)
class VectorizeLoops(LoweringStep):
    """Turn `T.vectorized` loops into code on vectors as wide as the target's.

    A loop becomes serial if its extent is not constant, or if two of its iterations access one element and one of them
    writes it. A sum, product, minimum or maximum into one element is exempt for integers, and for floats if the loop is
    annotated with `reassociate`. Statements without a vector form, such as calls of functions, run lane by lane.

    Before:  for i in T.vectorized(8): C[i] = A[i] + 1.0
    After:   C[0:8] = A[0:8] + T.Broadcast(1.0, 8)
    """

    name: ClassVar[str] = "vectorize-loops"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return vectorize_loops(func, options)
