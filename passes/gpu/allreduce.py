"""Lower `tvm_thread_allreduce`: the threads of a group combine their values, and all of them get the result.

A group of consecutive lanes of a warp is reduced by shuffles: each lane combines its value with that of the lane half a
group further on, then a quarter, and so on; the first lane then broadcasts the result. Groups of several warps combine
the results of their warps in shared memory; groups of other sizes are reduced in a tree there. The value of the thread
with the lower index is always the left operand of the combiner. `insert_barriers` adds the barriers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from mlcc.errors import CompileError, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.gpu.combine_threads import REDUCE_SCOPE
from mlcc.passes.gpu.device import BLOCK
from mlcc.passes.gpu.divergence import DivergenceAnalysis, is_thread_mask, sink_condition
from mlcc.passes.gpu.form_kernels import map_kernels
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS
from mlcc.passes.schedule.analysis.reducers import apply_reducer

WARP = 32
Values = list[Expr]


def lower_allreduce(func: tir.PrimFunc) -> tir.PrimFunc:
    """Lower the calls of `tvm_thread_allreduce` in `func`, whose kernels are formed. Raises CompileError."""
    if not any(_is_allreduce(n) for n in walk(func.body)):
        return func
    return map_kernels(func, lambda loops, body: _AllreduceLowering(loops).body(body))


def _is_allreduce(node: object) -> bool:
    return isinstance(node, tir.Call) and node.op == tir.Op("tir.tvm_thread_allreduce")


class _AllreduceLowering(TirMutator):
    def __init__(self, loops: Sequence[tir.For]) -> None:
        self._loops = {loop.thread: loop for loop in loops if loop.thread in BLOCK}
        self._divergence = DivergenceAnalysis()
        for loop in self._loops.values():
            self._divergence.thread(loop)
        self._buffers: dict[tir.Var, tir.Buffer] = {}

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        self._buffers[node.buffer.data] = node.buffer
        return node

    def stmt_decl(self, node: tir.DeclBuffer) -> Stmt | list[Stmt]:
        self._buffers[node.buffer.data] = node.buffer
        return node

    def stmt_if(self, node: tir.IfThenElse) -> Stmt | list[Stmt]:
        """Let the threads that a mask (`T.likely`) excludes take part with the identity value."""
        if is_thread_mask(node.condition) and any(_is_allreduce(n) for n in walk(node)):
            parts = sink_condition(node.condition, node.then_body, self._divergence)
            if parts is not None:
                return list(self.body(tuple(parts)))
        return super().stmt_if(node)

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        if node.key != REDUCE_SCOPE or not isinstance(node.subject, tir.CommReducer):
            return super().stmt_attr(node)
        guard: Expr = tir.TRUE
        body = node.body
        while len(body) == 1 and isinstance(body[0], tir.IfThenElse) and body[0].else_body is None:
            guard, body = c.logical_and(guard, body[0].condition), body[0].then_body
        match body:
            case (tir.Evaluate(value=tir.Call() as call),) if _is_allreduce(call):
                return self._lower_call(node.subject, call, guard)
        return super().stmt_attr(node)

    def _lower_call(self, reducer: tir.CommReducer, call: tir.Call, guard: Expr) -> list[Stmt]:
        count = tir.const_int(call.args[0]) or 0
        values, rest = call.args[1 : 1 + count], call.args[1 + count :]
        condition, places, axes = rest[0], rest[1 : 1 + count], rest[1 + count :]
        condition = c.logical_and(guard, c.cast("bool", condition))
        group = [loop for loop in self._loops.values() if any(loop.var in set(walk(axis)) for axis in axes)]
        sizes = {loop.thread: tir.const_int(loop.extent) for loop in self._loops.values()}
        if None in sizes.values():
            text = "a reduction across threads needs a thread block of constant size"
            raise CompileError(error("E0728", text, call.span, help="bind loops of constant extent to `threadIdx.*`"))
        work = _Combination(reducer, group, list(self._loops.values()), call)
        if tir.const_int(condition) != 1:
            values = tuple(
                tir.Call(v.dtype, tir.Op("tir.if_then_else"), (condition, v, i))
                for v, i in zip(values, reducer.identity, strict=True)
            )
        result = work.run(list(values))
        for place, value in zip(places, result, strict=True):
            data = place if isinstance(place, tir.Var) else next(n for n in walk(place) if isinstance(n, tir.Var))
            buffer = self._buffers[data]
            at = tuple(c.const(0) for _ in buffer.shape)
            work.stmts.append(tir.BufferStore(buffer, value, at, span=call.span))
        return work.stmts


class _Combination:
    """The lowering of one call; `stmts` collects the statements."""

    def __init__(self, reducer: tir.CommReducer, group: list[tir.For], block: list[tir.For], call: tir.Call) -> None:
        self._reducer, self._call = reducer, call
        block = [x for x in block if tir.const_int(x.extent) != 1]
        group = [x for x in group if tir.const_int(x.extent) != 1]
        block.sort(key=lambda x: BLOCK.index(x.thread or ""))
        group.sort(key=lambda x: BLOCK.index(x.thread or ""))
        self._size = prod(tir.const_int(x.extent) or 1 for x in group)
        self._threads = prod(tir.const_int(x.extent) or 1 for x in block)
        self._contiguous = block[: len(group)] == group  # neighbours in the block are neighbours in the group
        self._member = _linear_index(group)
        self._group = _linear_index([x for x in block if x not in group])
        self._lane = c.floormod(_linear_index(block), WARP)
        self.stmts: list[Stmt] = []

    def run(self, values: Values) -> Values:
        """Emit the combination; return the values that all threads have afterwards."""
        if self._size == 1:
            return values
        scalar = all(v.dtype.lanes == 1 and not v.dtype.is_handle for v in values)
        if not scalar or not self._contiguous or self._threads % WARP:
            return self._by_shared_memory(values)
        size = self._size
        if size <= WARP and size & (size - 1) == 0:
            return self._by_shuffles(values, size)
        return self._by_warps(values) if size % WARP == 0 else self._by_shared_memory(values)

    def _bind_values(self, values: Sequence[Expr]) -> Values:
        names: Values = []
        for value in values:
            var = tir.Var("part", value.dtype)
            self.stmts.append(tir.Bind(var, value, span=self._call.span))
            names.append(var)
        return names

    def _combine(self, left: Values, right: Values) -> Values:
        return self._bind_values(apply_reducer(self._reducer, left, right))

    def _by_shuffles(self, values: Values, size: int) -> Values:
        """Reduce within groups of `size` lanes, a power of two."""
        values = self._bind_values(values)
        half = size // 2
        while half:
            values = self._combine(values, self._bind_values([_shuffle("_down", v, c.const(half)) for v in values]))
            half //= 2
        first = c.mul(c.floordiv(self._lane, size), size)
        return self._bind_values([_shuffle("", v, first) for v in values])

    def _by_warps(self, values: Values) -> Values:
        """Reduce each warp, then the results of the warps."""
        warps = self._size // WARP
        values = self._by_shuffles(values, WARP)
        store = self._allocate_shared(values, self._threads // WARP)
        at = c.add(c.mul(self._group, warps), c.floordiv(self._member, WARP))
        self._store_where(store, values, at, c.equal(self._lane, 0))
        if warps & (warps - 1) == 0 and warps > 4:
            mine = c.add(c.mul(self._group, warps), c.floormod(self._lane, warps))
            return self._by_shuffles([c.load(b, mine) for b in store], warps)
        result = self._bind_values([c.load(b, c.mul(self._group, warps)) for b in store])
        for warp in range(1, warps):
            more = self._bind_values([c.load(b, c.add(c.mul(self._group, warps), warp)) for b in store])
            result = self._combine(result, more)
        return result

    def _by_shared_memory(self, values: Values) -> Values:
        store = self._allocate_shared(values, self._threads)
        # neighbouring lanes access neighbouring elements, be they of one group or of several
        unit = 1 if self._contiguous else self._threads // self._size
        base = c.mul(self._group, self._size) if self._contiguous else self._group
        at = c.add(base, c.mul(self._member, unit))
        self._store_where(store, values, at, tir.TRUE)
        step = 1 << (self._size - 1).bit_length() - 1
        while step:
            takes = c.logical_and(c.less(self._member, step), c.less(c.add(self._member, step), self._size))
            inner = _Combination.__new__(_Combination)
            inner._reducer, inner._call, inner.stmts = self._reducer, self._call, []
            left = inner._bind_values([c.load(b, at) for b in store])
            right = inner._bind_values([c.load(b, c.add(at, step * unit)) for b in store])
            both = inner._combine(left, right)
            inner.stmts += [tir.BufferStore(b, v, (at,)) for b, v in zip(store, both, strict=True)]
            self.stmts.append(tir.IfThenElse(takes, tuple(inner.stmts), span=self._call.span))
            step //= 2
        return self._bind_values([c.load(b, base) for b in store])

    def _allocate_shared(self, values: Values, count: int) -> list[tir.Buffer]:
        buffers = [c.make_buffer("parts", (count,), v.dtype, "shared") for v in values]
        self.stmts += [tir.AllocBuffer(b, span=self._call.span) for b in buffers]
        return buffers

    def _store_where(self, store: list[tir.Buffer], values: Values, at: Expr, condition: Expr) -> None:
        stores: tuple[Stmt, ...] = tuple(
            tir.BufferStore(b, v, (at,), span=self._call.span) for b, v in zip(store, values, strict=True)
        )
        if tir.const_int(condition) == 1:
            self.stmts += stores
        else:
            self.stmts.append(tir.IfThenElse(condition, stores, span=self._call.span))


def _linear_index(loops: list[tir.For]) -> Expr:
    index: Expr = c.const(0)
    step = 1
    for loop in loops:
        index = c.add(index, c.mul(c.cast(INT32, loop.var), step))
        step *= tir.const_int(loop.extent) or 1
    return index


def _shuffle(kind: str, value: Expr, lane_or_distance: Expr) -> Expr:
    """Return a shuffle; values of narrow types are widened to 32 bits, which keeps them exact."""
    dtype = value.dtype
    if dtype.bits < 32:
        value = c.cast("float32" if dtype.is_float else "uint32" if dtype.is_uint else "int32", value)
    mask = c.const(0xFFFFFFFF, "uint32")
    args = (mask, value, c.cast(INT32, lane_or_distance), c.const(WARP), c.const(WARP))
    return c.cast(dtype, tir.Call(value.dtype, tir.Op(f"tir.tvm_warp_shuffle{kind}"), args))


@dataclass(frozen=True)
class LowerAllreduce(LoweringStep):
    """Combine the values of threads by shuffles within warps and through shared memory between warps.

    Before:  T.tvm_thread_allreduce(...)
    After:   T.tvm_warp_shuffle_down(...), a step for each halving
    """

    name: ClassVar[str] = "lower-allreduce"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return lower_allreduce(func)
