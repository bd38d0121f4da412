"""Turn copies from global to shared memory in the asynchronous stages of a pipeline into `ptx_cp_async`.

Such a copy moves 4, 8 or 16 bytes without passing through registers and completes later; the pipeline (`pipeline`)
commits and awaits groups of them. A copy under a condition, with zero otherwise, becomes a predicated copy that fills
with zeros. Copies of other sizes, or with addresses that are not aligned to their size, stay ordinary loads and stores,
which are complete when the wait ends in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.pipeline import ASYNC
from mlcc.passes.gpu.zero_guards import split_zero_guard
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

SIZES = (4, 8, 16)


def inject_async_copies(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (flat loop code with vectors) with asynchronous copies where pipelines ask for them."""
    return replace(func, body=_AsyncCopyInjector().body(func.body))


class _AsyncCopyInjector(TirMutator):
    def __init__(self) -> None:
        self._in_async = False
        self._analyzer = Analyzer()

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if tir.const_int(node.step) in (None, 1):
            self._analyzer.bind(node.var, tir.Range(node.min, node.extent))
        return super().stmt_for(node)

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        if node.key != ASYNC:
            return super().stmt_attr(node)
        outer, self._in_async = self._in_async, True
        body = self.body(node.body)
        self._in_async = outer
        return list(body)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        if not self._in_async or not node.buffer.scope.startswith("shared"):
            return node
        condition, value = split_zero_guard(node.value)
        if (
            not isinstance(value, tir.BufferLoad)
            or value.buffer.scope != "global"
            or value.dtype is not node.value.dtype
        ):
            return node
        if value.buffer.dtype is not node.buffer.dtype or value.buffer.dtype.is_bool:
            return node
        size = value.dtype.lanes * value.buffer.dtype.bytes
        starts = [_first_element(access.indices[0]) for access in (node, value)]
        if size not in SIZES or starts[0] is None or starts[1] is None:
            return node
        if not all(self._is_aligned(start, value.dtype.lanes) for start in starts if start is not None):
            return node
        args = [node.buffer.data, starts[0], value.buffer.data, starts[1], c.const(size, INT32)]
        if condition is not None:
            args.append(condition)
        copy = tir.Call(node.buffer.dtype.element, tir.Op("tir.ptx_cp_async"), tuple(args), span=node.span)
        return tir.Evaluate(copy, span=node.span)

    def _is_aligned(self, start: Expr, lanes: int) -> bool:
        """Return True if an index is a multiple of `lanes`. Allocations and parameters are aligned to 16 bytes."""
        return lanes == 1 or self._analyzer.prove(c.equal(c.floormod(start, lanes), 0))


def _first_element(index: Expr) -> Expr | None:
    """Return the first of consecutive elements; None if the elements are not consecutive."""
    if isinstance(index, tir.Ramp):
        return index.base if tir.const_int(index.stride) == 1 else None
    return index if index.dtype.lanes == 1 else None


@dataclass(frozen=True)
class InjectAsyncCopies(LoweringStep):
    """Make copies to shared memory asynchronous in the pipeline stages that ask for it (TVM: InjectPTXAsyncCopy).

    Before:  S[i : i + 4] = A[j : j + 4]
    After:   T.ptx_cp_async(...)
    """

    name: ClassVar[str] = "inject-async-copies"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return inject_async_copies(func)
