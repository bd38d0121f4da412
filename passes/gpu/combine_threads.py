"""Lower reductions over thread-bound loops: each thread reduces its share, then the threads combine their results.

    for t in T.thread_binding(32, thread="threadIdx.x"):       for t in T.thread_binding(32, thread="threadIdx.x"):
        for k in range(4):                                         own[0] = 0.0
            with T.block("B"):                                     for k in range(4):
                vk = T.axis.reduce(128, k * 32 + t)        ->          own[0] = own[0] + A[k * 32 + t]
                with T.init():                                     (all threads: total[0] = the sum of own[0])
                    B[0] = 0.0                                     if t == 0:
                B[0] = B[0] + A[vk]                                    B[0] = total[0]

The combination is TVM's `tvm_thread_allreduce`; `allreduce` lowers it to shuffles and shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.conditions import conjunct_operands
from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import Expr, ForKind, IterKind, Stmt
from mlcc.ir.visit import Rewriter, used_vars
from mlcc.passes.gpu.device import BLOCK
from mlcc.passes.gpu.thread_axes import loop_label, thread_axis
from mlcc.passes.lowering.folding import Folding
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import BLOCKS
from mlcc.passes.schedule.analysis.reducers import ReductionParts, reduction_parts
from mlcc.passes.schedule.refusal import Refusal

REDUCE_SCOPE = "reduce_scope"  # the key of the attribute with the combiner


def combine_threads(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` (with blocks) without blocks that reduce over threads. Raises CompileError."""
    return replace(func, body=tuple(_ReductionFinder().visit(s) for s in func.body))


class _ReductionFinder(Rewriter):
    """Find loops around a single block that reduce over threads, outermost first. Refuses other reductions over
    threads.
    """

    def __init__(self) -> None:
        super().__init__()
        self._threads: dict[tir.Var, tir.For] = {}  # axis or variable: the thread loop that it depends on

    def visit(self, node: object) -> object:
        if isinstance(node, tir.For):
            chain = _loops_around_block(node)
            if chain is not None:
                loops, realize = chain
                kinds = {a.kind for a in realize.block.iter_vars}
                if IterKind.REDUCE in kinds:
                    reduced = _reduction_loops(loops, realize)
                    if any(_is_thread(loop) for loop in reduced):
                        return _combine_over_threads(loops, reduced, realize)
            if _is_bound(node):
                self._threads[node.var] = node
        if isinstance(node, tir.BlockRealize):
            self._enter(node)
        return super().visit(node)

    def _enter(self, realize: tir.BlockRealize) -> None:
        block = realize.block
        for axis, value in zip(block.iter_vars, realize.values, strict=True):
            loop = next((self._threads[v] for v in used_vars(value) if v in self._threads), None)
            if loop is None:
                continue
            self._threads[axis.var] = loop
            if axis.kind is IterKind.REDUCE and (block.init is not None or _stores_to_shared(block)):
                raise _error(realize, loop, "other statements stand between these loops and the block")


def _stores_to_shared(block: tir.Block) -> bool:
    """Return True if a block stores to memory that threads share (any scope but `local`)."""
    return any(isinstance(n, tir.BufferStore) and n.buffer.scope != "local" for s in block.body for n in walk(s))


def _loops_around_block(loop: tir.For) -> tuple[list[tir.For], tir.BlockRealize] | None:
    loops: list[tir.For] = []
    inner: Stmt = loop
    while isinstance(inner, tir.For) and len(inner.body) == 1:
        loops.append(inner)
        inner = inner.body[0]
    return (loops, inner) if isinstance(inner, tir.BlockRealize) else None


def _is_thread(loop: tir.For) -> bool:
    axis = thread_axis(loop)
    return axis is not None and axis[0] in BLOCK


def _reduction_loops(loops: Sequence[tir.For], realize: tir.BlockRealize) -> list[tir.For]:
    """Return the loops that reduce axes depend on."""
    axes = zip(realize.block.iter_vars, realize.values, strict=True)
    used = {v for axis, value in axes if axis.kind is IterKind.REDUCE for v in used_vars(value)}
    return [loop for loop in loops if loop.var in used]


def _error(realize: tir.BlockRealize, loop: tir.For, why: str) -> CompileError:
    text = f"block `{realize.block.name}` reduces over threads, and {why}"
    return CompileError(error("E0728", text, realize.block.span, related=(loop_label(loop, "over these threads"),)))


def _combine_over_threads(loops: list[tir.For], reduced: list[tir.For], realize: tir.BlockRealize) -> Stmt:
    block = realize.block
    threads = [loop for loop in reduced if loop.kind is ForKind.THREAD_BINDING]
    first = loops.index(reduced[0])
    spatial = {
        v
        for axis, value in zip(block.iter_vars, realize.values, strict=True)
        if axis.kind is not IterKind.REDUCE
        for v in used_vars(value)
    }
    for loop in loops[first:]:
        if loop in reduced and loop.var in spatial:
            raise _error(realize, threads[0], f"a spatial axis also depends on the loop `{loop.var.name}`")
        if loop not in reduced and not _is_bound(loop):
            why = f"the loop `{loop.var.name}` inside them drives no reduce axis: reorder it to the outside"
            raise _error(realize, threads[0], why)
    if any(not _is_thread(loop) for loop in threads):
        raise _error(realize, threads[0], "some of them are in different thread blocks, which cannot synchronize")
    if block.match_buffers or block.alloc_buffers or block.init is None:
        raise _error(realize, threads[0], "it allocates or matches buffers, or has no init")
    try:
        parts = reduction_parts(block)
    except Refusal as refusal:
        raise _error(realize, threads[0], f"its form is not supported: {refusal}") from None
    body = _thread_code(parts, loops[first:], threads, realize)
    outer = [loop for loop in loops[first:] if _is_bound(loop)]
    for loop in reversed([*loops[:first], *outer]):
        body = (replace(loop, body=body),)
    return body[0]


def _is_bound(loop: tir.For) -> bool:
    return thread_axis(loop) is not None


def _thread_code(
    parts: ReductionParts, inner: list[tir.For], threads: list[tir.For], realize: tir.BlockRealize
) -> tuple[Stmt, ...]:
    """Return the code inside the bound loops."""
    block = realize.block
    values = Folding({a.var: v for a, v in zip(block.iter_vars, realize.values, strict=True)})
    dtypes = [b.dtype for b in parts.buffers]
    partial = [c.make_buffer(f"{b.name}_own", (1,), b.dtype, "local") for b in parts.buffers]
    total = [c.make_buffer(f"{b.name}_total", (1,), b.dtype, "local") for b in parts.buffers]
    stmts: list[Stmt] = [tir.AllocBuffer(b) for b in (*partial, *total)]
    stmts += [tir.BufferStore(b, v, (c.const(0),)) for b, v in zip(partial, parts.reducer.identity, strict=True)]
    rhs = [values.expr(v) for v in parts.rhs]
    new = parts.combine([c.load(b, 0) for b in partial], rhs)
    names = [tir.Var(f"v_{b.name}", d) for b, d in zip(parts.buffers, dtypes, strict=True)]
    step: tuple[Stmt, ...] = (
        *(tir.Bind(n, v) for n, v in zip(names, new, strict=True)),
        *(
            tir.BufferStore(b, n, (c.const(0),), span=u.span)
            for b, n, u in zip(partial, names, parts.updates, strict=True)
        ),
    )
    conditions = [part for part in conjunct_operands(realize.predicate) if tir.const_int(part) != 1]
    for loop in reversed([x for x in inner if not _is_bound(x)]):  # innermost loop that a condition depends on
        here = [part for part in conditions if loop.var in used_vars(part)]
        conditions = [part for part in conditions if part not in here]
        step = (replace(loop, body=_under_conditions(here, step, realize), annotations=type(loop.annotations)({})),)
    stmts += _under_conditions(conditions, step, realize)
    loads = tuple(c.load(b, 0) for b in partial)
    args = (c.const(len(partial), "uint32"), *loads, tir.TRUE, *(b.data for b in total), *(x.var for x in threads))
    call = tir.Call(DType.of("void"), tir.Op("tir.tvm_thread_allreduce"), args, span=block.span)
    stmts.append(tir.AttrStmt(parts.reducer, REDUCE_SCOPE, c.const(0), (tir.Evaluate(call, span=block.span),)))
    stmts += _store_result(parts, total, values, inner, threads, realize)
    return tuple(stmts)


def _under_conditions(
    conditions: Sequence[Expr], body: tuple[Stmt, ...], realize: tir.BlockRealize
) -> tuple[Stmt, ...]:
    """Return the statements under the conditions."""
    both: Expr = tir.TRUE
    for condition in conditions:
        both = c.logical_and(both, condition)
    return (tir.IfThenElse(both, body, span=realize.predicate.span),) if conditions else body


def _store_result(
    parts: ReductionParts, total: list[tir.Buffer], values: Folding, inner: list[tir.For], threads: list[tir.For],
    realize: tir.BlockRealize,
) -> tuple[Stmt, ...]:  # fmt: skip
    """Return the stores of the result: by one thread, or by every thread if the buffer is thread-private."""
    indices = tuple(values.expr(i) for i in parts.indices)
    stores: tuple[Stmt, ...] = tuple(
        tir.BufferStore(b, c.load(t, 0), indices, span=u.span)
        for b, t, u in zip(parts.buffers, total, parts.updates, strict=True)
    )
    condition: Expr = tir.TRUE
    inside = {loop.var for loop in inner}
    for part in conjunct_operands(realize.predicate):
        if not used_vars(part) & inside:
            condition = c.logical_and(condition, part)
    if any(b.scope != "local" for b in parts.buffers):
        for loop in threads:
            condition = c.logical_and(condition, c.equal(loop.var, loop.min))
    return stores if tir.const_int(condition) == 1 else (tir.IfThenElse(condition, stores, span=realize.block.span),)


@dataclass(frozen=True)
class CombineThreads(LoweringStep):
    """Split reductions over threads into the reduction of each thread and their combination (`tvm_thread_allreduce`).

    Before:  B[0] = B[0] + A[vk], where the reduce axis vk is bound to threadIdx.x
    After:   each thread reduces its share; then T.tvm_thread_allreduce(...) of all threads
    """

    name: ClassVar[str] = "combine-threads"
    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = BLOCKS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return combine_threads(func)
