"""Keep temporaries in the output that their last reader overwrites element by element.

A softmax stores its exponentials, adds them up, and stores their quotients. If the exponentials go where the quotients
will be, a row takes one place in the caches instead of two, and its output is fetched while there is much to compute.
TVM's StorageRewrite does the same for allocations (its "inplace" operations).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import detect_iter_map
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import find, replace
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.accesses import Access, AccessCollector, BufferUses, is_pure
from mlcc.passes.lowering.allocation_depth import allocation_depth, store_covers
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS


def reuse_outputs(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (loop code with buffers of any rank) without the temporaries that fit in an output."""
    candidates = _candidates(func)
    if not candidates:
        return func
    collector = AccessCollector(output for _, output in candidates)
    collector.body(func.body)
    places: dict[tir.Buffer, tir.Buffer] = {}
    for temporary, output in candidates:
        free = temporary not in places and output not in places.values()
        if free and _fits(collector.uses[temporary.data], collector.uses[output.data], collector, func):
            places[temporary] = output
    return replace(func, body=_Mover(places).body(func.body)) if places else func


def _candidates(func: tir.PrimFunc) -> list[tuple[tir.Buffer, tir.Buffer]]:
    """Return pairs of a temporary and a parameter of the same type that nothing else overlaps."""
    if not func.attrs.get("tir.noalias"):
        return []
    temporaries = [n.buffer for stmt in func.body for n in find(stmt, tir.AllocBuffer) if not n.annotations]
    params = [b for b in func.buffers if b is not None]
    return [(t, p) for t in temporaries for p in params if t.scope == "global" and _same_layout(t, p)]


def _same_layout(one: tir.Buffer, other: tir.Buffer) -> bool:
    plain = all(not b.strides and (b.elem_offset is None or tir.const_int(b.elem_offset) == 0) for b in (one, other))
    return (
        plain
        and one.dtype is other.dtype
        and len(one.shape) == len(other.shape)
        and all(structural_equal(a, b) for a, b in zip(one.shape, other.shape, strict=True))
    )


def _fits(temporary: BufferUses, output: BufferUses, collector: AccessCollector, func: tir.PrimFunc) -> bool:
    """Return True if each element of the temporary is dead as soon as the same element of the output is stored.

    One statement stores to the output, each element once. It reads the temporary at the same element or not at all,
    all other accesses of the temporary come before it in each execution of the scope that the temporary belongs to,
    and it overwrites whatever these stored.
    """
    if temporary.opaque or output.opaque or collector.jumps or len(output.accesses) != 1:
        return False
    (last,) = output.accesses
    if not last.writes or not all(map(is_pure, last.indices)):
        return False
    depth = allocation_depth(temporary, collector.jumps, collector.loose)
    own = _reads_of(func, last, temporary.allocation.buffer)
    if own is None:
        return False
    reads = [a for a in temporary.accesses if not a.writes and a.path == last.path and a.number < last.number]
    own_reads = reads[len(reads) - own :] if own else []
    if not all(_same_element(a, last) for a in own_reads):
        return False
    before = [a for a in temporary.accesses if a not in own_reads]
    if not before or any(not _is_before(a, last, depth) for a in before):
        return False
    ranges = {loop.var: tir.Range(loop.min, loop.extent) for loop in last.loops()}
    if any(loop.step is not None for loop in last.loops()):
        return False
    if not detect_iter_map(last.indices, ranges, level="bijective"):
        return False
    return all(store_covers(last, a, depth, collector.loose) for a in before if a.writes)


def _reads_of(func: tir.PrimFunc, store: Access, temporary: tir.Buffer) -> int | None:
    """Return how many loads of the temporary the only statement that stores to a buffer has; None if there is none."""
    statements = [n for stmt in func.body for n in find(stmt, tir.BufferStore) if n.buffer is store.buffer]
    if len(statements) != 1:
        return None
    return sum(n.buffer is temporary for n in find(statements[0], tir.BufferLoad))


def _same_element(one: Access, other: Access) -> bool:
    analyzer = Analyzer()
    return all(analyzer.prove_equal(a, b) for a, b in zip(one.indices, other.indices, strict=True))


def _is_before(access: Access, last: Access, depth: int) -> bool:
    """Return True if an access is in an earlier statement of the scope at `depth` than `last`."""
    if access.path[:depth] != last.path[:depth] or access.number >= last.number:
        return False
    return len(last.path) == depth or access.path[depth : depth + 1] != last.path[depth : depth + 1]


class _Mover(TirMutator):
    """Redirect accesses of temporaries to outputs."""

    def __init__(self, places: Mapping[tir.Buffer, tir.Buffer]) -> None:
        super().__init__()
        self._places = places

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        return [] if node.buffer in self._places else node

    def expr_load(self, node: tir.BufferLoad) -> Expr:
        buffer = self._places.get(node.buffer, node.buffer)
        return tir.BufferLoad(node.dtype, buffer, self.exprs(node.indices), span=node.span)

    def stmt_store(self, node: tir.BufferStore) -> Stmt | list[Stmt]:
        buffer = self._places.get(node.buffer, node.buffer)
        return tir.BufferStore(buffer, self.expr(node.value), self.exprs(node.indices), span=node.span)


@dataclass(frozen=True)
class ReuseOutputs(LoweringStep):
    """Store temporaries in the output that their last reader overwrites element by element.

    Before:  for i: (t[i, :] is written, then read); for j: B[i, j] = t[i, j] / s[0]
    After:   for i: (B[i, :] is written, then read); for j: B[i, j] = B[i, j] / s[0]
    """

    name: ClassVar[str] = "reuse-outputs"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return reuse_outputs(func)
