"""Check every index of sanitized code against the dimension that the text declares, before buffers become flat."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import Source, Span
from mlcc.ir import tir
from mlcc.ir.intrinsics import called
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.lowering.accesses import AccessCollector
from mlcc.passes.lowering.allocation_depth import allocation_depth
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS

INDEX = tir.Op("tir.sanitize_index")  # T.sanitize_index(index, extent, text): the index, if it is one of its dimension
PRIVATE_LOOPS = (
    "mlcc.sanitize_own"  # of an allocation: the number of inner parallel loops whose iterations have private memory
)
_AS_LOWERED = " (as lowered)"


@dataclass(frozen=True)
class InsertIndexChecks(LoweringStep):
    """Check every index against its dimension, as the text declares it.

    Before:  B[i] = A[I[i]]
    After:   B[i] = A[T.sanitize_index(I[i], 8, "5:16: index ... is outside dimension 0 of `A`, ...")]
    """

    name: ClassVar[str] = "insert-index-checks"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower_named(
        self, name: str, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions,
        module: IRModule,
    ) -> Mapping[str, tir.PrimFunc]:  # fmt: skip
        return {name: replace(func, body=_IndexChecker(name, _private_loop_counts(func)).body(func.body))}


def _private_loop_counts(func: tir.PrimFunc) -> dict[tir.Var, int]:
    """Return, by data variable of an allocation, the number of parallel loops that it could be sunk into.

    Each iteration of those loops has private memory then.
    """
    collector = AccessCollector()
    collector.body(func.body)
    counts: dict[tir.Var, int] = {}
    for uses in collector.uses.values():
        depth = allocation_depth(uses, collector.jumps, collector.loose)
        if depth > len(uses.path):
            around = [stmt for stmt, _ in uses.accesses[0].path[len(uses.path) : depth]]
            counts[uses.allocation.buffer.data] = sum(
                isinstance(stmt, tir.For) and stmt.kind is ForKind.PARALLEL for stmt in around
            )
    return counts


def location_text(span: Span | None, name: str) -> str:
    """Return a place in words, for texts of errors."""
    if span is None:
        return name
    if span.source.name.endswith(_AS_LOWERED):
        return f"{span.source.name}: `{span.source.text}`"
    places = ((one.source.name, *one.source.line_col(one.start)) for one in span.all)
    return ", ".join(f"{name}:{line}:{column}" for name, line, column in places)


class _IndexChecker(TirMutator):
    def __init__(self, name: str, own: Mapping[tir.Var, int]) -> None:
        self._name = name
        self._private_loops = own
        self._stmt: Stmt | None = None
        self._texts: dict[Stmt, Source] = {}

    def stmt(self, node: Stmt) -> Stmt | list[Stmt]:
        self._stmt = node
        return super().stmt(node)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        own = self._private_loops.get(node.buffer.data)
        return replace(node, annotations=node.annotations.with_item(PRIVATE_LOOPS, own)) if own else node

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        span = node.span or self._printed_span()
        return tir.BufferLoad(node.dtype, node.buffer, self._checked(node, span), span=span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        span = node.span or self._printed_span()
        value = self.expr(node.value)
        return tir.BufferStore(node.buffer, value, self._checked(node, span), span=span)

    def expr_call(self, node: tir.Call) -> Expr:
        if not called(node).place:
            return super().expr_call(node)
        args = tuple(
            replace(a, indices=self.exprs(a.indices)) if isinstance(a, tir.BufferLoad) else self.expr(a)
            for a in node.args
        )
        return replace(node, args=args)

    def _checked(self, node: tir.BufferLoad | tir.BufferStore, span: Span) -> tuple[Expr, ...]:
        if len(node.indices) != len(node.buffer.shape):
            return self.exprs(node.indices)
        pairs = enumerate(zip(node.indices, node.buffer.shape, strict=True))
        return tuple(self._check_dimension(node.buffer, at, index, extent, span) for at, (index, extent) in pairs)

    def _check_dimension(self, buffer: tir.Buffer, at: int, index: Expr, extent: Expr, span: Span) -> Expr:
        known, size = tir.const_int(index), tir.const_int(extent)
        if known is not None and size is not None and 0 <= known < size:
            return index
        place = location_text(span, self._name)
        text = f"{place}: index \x01 is outside dimension {at} of `{buffer.name}`, which has \x02"
        args = (self.expr(index), extent, tir.StringImm(text))
        return tir.Call(index.dtype, INDEX, args, span=index.span)

    def _printed_span(self) -> Span:
        """Return the printed statement, as the place of generated code that has no source text."""
        assert self._stmt is not None
        source = self._texts.get(self._stmt)
        if source is None:
            text = str(self._stmt).splitlines()[0]
            source = self._texts[self._stmt] = Source(f"{self._name}{_AS_LOWERED}", text)
        return Span(source, 0, len(source.text))
