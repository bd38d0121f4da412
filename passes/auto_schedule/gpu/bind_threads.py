"""The pass `bind-threads`: put GPU code that is not bound to threads into kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.arith.empty_reduction import insert_empty_reduction_inits
from mlcc.backends import gpu_facts
from mlcc.errors import CompileError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.module import IRModule
from mlcc.ir.node import replace, walk
from mlcc.ir.tir import ForKind, Stmt
from mlcc.ir.visit import used_vars
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.gpu.nests import bind_to_grid
from mlcc.passes.auto_schedule.kernel import AnyKernel, GpuKernel
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.manage.manager import Pass, PassContext


@dataclass(frozen=True)
class BindThreads(Pass):
    """Bind the loops of TIR functions that are not bound yet to the threads of a GPU.

    The outer loops of a nest whose iterations write distinct results are fused and distributed over blocks of threads.
    Anything else runs in a single thread. Loops that are bound already stay. Lowering for a GPU begins with this pass.

    Before:  for i in range(1000): ...
    After:   for i_0 in T.thread_binding(4, thread="blockIdx.x"): for i_1 in T.thread_binding(256, ...): ...
    """

    name: ClassVar[str] = "bind-threads"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        return bind_module(module, gpu_facts(ctx.target))


def bind_module(module: IRModule, facts: GpuFacts) -> IRModule:
    """Bind all TIR functions of a module; return the same module if all are bound already."""
    functions = {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    called = _called_functions(functions)
    bound = {n: bind_function(f, n, facts) for n, f in functions.items() if n not in called}
    if all(bound[n] is functions[n] for n in bound):
        return module
    new = module.copy()
    for name, func in bound.items():
        new.update_func(name, func)
    return new


def bind_function(func: tir.PrimFunc, name: str, facts: GpuFacts) -> tir.PrimFunc:
    """Return a function whose statements all run in kernels."""
    root = func.root
    if root is None:
        return func if _is_bound(func.body) else replace(func, body=_wrap_in_kernels(func.body))
    if all(_is_bound((stmt,)) for stmt in root.body):
        return func
    func = insert_empty_reduction_inits(func)  # before binding, since reductions in bound loops cannot be changed
    kernel = AnyKernel.of(replace(func, body=_ParallelToSerial().body(func.body)), name, facts)
    assert func.root is not None
    for number in range(len(func.root.body)):
        _bind_outer_loops(kernel, number)
    bound_func = kernel.func
    bound = bound_func.root
    assert bound is not None
    body = _wrap_in_kernels(bound.body)
    (realize,) = bound_func.body
    assert isinstance(realize, tir.BlockRealize)
    return replace(bound_func, body=(replace(realize, block=replace(bound, body=body)),))


def _called_functions(functions: Mapping[str, tir.PrimFunc]) -> set[str]:
    """Return the functions that others call from their kernels."""
    names = {getattr(n.op, "name", "") for f in functions.values() for n in walk(f) if isinstance(n, tir.Call)}
    return {n for n in names if n in functions}


def _is_bound(body: tuple[Stmt, ...]) -> bool:
    for node in (n for stmt in body for n in walk(stmt)):
        match node:
            case tir.For(kind=ForKind.THREAD_BINDING) | tir.AttrStmt(key="thread_extent"):
                return True
    return False


def _has_work(stmt: Stmt) -> bool:
    """Return True if a statement loads, stores or evaluates a call, and so belongs in a GPU kernel."""
    return any(isinstance(n, (tir.BufferStore, tir.BufferLoad, tir.Evaluate)) for n in walk(stmt))


def _is_plain(condition: tir.Expr) -> bool:
    return not any(isinstance(n, (tir.BufferLoad, tir.Call)) for n in walk(condition))


def _wrap_in_kernels(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Put each unbound statement into a kernel of one thread.

    A variable bound to a loaded value is visible only to its own thread, so that this thread runs all statements after
    it.
    """
    stmts: list[Stmt] = []
    for at, stmt in enumerate(body):
        if isinstance(stmt, tir.Bind) and _has_work(stmt):
            return (*stmts, *body[at:]) if _is_bound(body[at:]) else (*stmts, _one_thread(body[at:]))
        if _is_bound((stmt,)) or not _has_work(stmt):
            stmts.append(stmt)
        elif isinstance(stmt, tir.IfThenElse) and stmt.else_body is None and _is_plain(stmt.condition):
            stmts.append(replace(stmt, then_body=_wrap_in_kernels(stmt.then_body)))  # the host evaluates the condition
        else:
            stmts.append(_one_thread((stmt,)))
    return tuple(stmts)


def _one_thread(body: tuple[Stmt, ...]) -> Stmt:
    zero, one = c.const(0, INT32), c.const(1, INT32)
    return tir.For(
        tir.Var("u", INT32), zero, one, ForKind.THREAD_BINDING, body, thread="threadIdx.x", span=body[0].span
    )


class _ParallelToSerial(TirMutator):
    """Turn parallel loops into serial ones, since threads take their place."""

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = replace(node, body=self.body(node.body))
        return replace(loop, kind=ForKind.SERIAL) if node.kind is ForKind.PARALLEL else loop

    def stmt_realize(self, node: tir.BlockRealize) -> Stmt | list[Stmt]:
        body = self.body(node.block.body)
        return node if body is node.block.body else replace(node, block=replace(node.block, body=body))


def _bind_outer_loops(kernel: GpuKernel, number: int) -> None:
    """Bind as many outer loops as possible of the nest that is statement `number` of the root block."""
    root = kernel.func.root
    assert root is not None
    stmt = root.body[number]
    if _is_bound((stmt,)) or not isinstance(stmt, tir.For):
        return
    scope = kernel.sch.get_block("root", func_name=kernel.name)
    inside = [b for b in kernel.sch.get_child_blocks(scope) if kernel.stage(b).loops[:1] == (stmt,)]
    if not inside:
        return
    nest = kernel.stage(inside[0]).loops
    count = 1
    while count < len(nest) and nest[count - 1].body == (nest[count],):
        count += 1
    while count and not _stores_are_independent(stmt, nest[:count]):
        count -= 1
    for loop_count in range(count, 0, -1):
        saved_schedule = kernel.sch.copy()
        try:
            iterations = 1
            for loop in nest[:loop_count]:
                extent = tir.const_int(loop.extent)
                iterations = 0 if extent is None else iterations * extent
            bind_to_grid(kernel, kernel.loops(inside[0])[:loop_count], iterations or None)
            return
        except CompileError:
            kernel.sch = saved_schedule


def _stores_are_independent(stmt: Stmt, loops: tuple[tir.For, ...]) -> bool:
    """Return True if the indices of every store to global memory depend on all the loops.

    Otherwise threads would race on a temporary, as they would on a buffer in shared memory allocated inside.
    """
    needed_vars = {loop.var for loop in loops if tir.const_int(loop.extent) != 1}
    axes: dict[tir.Var, set[tir.Var]] = {}  # the loop variables that each block axis depends on
    for node in walk(stmt):
        if isinstance(node, tir.BlockRealize):
            # threads would share a single buffer
            if any(b.scope.startswith("shared") for b in node.block.alloc_buffers):
                return False
            for axis, value in zip(node.block.iter_vars, node.values, strict=True):
                axes[axis.var] = {inner for v in used_vars(value) for inner in axes.get(v, {v})}
    stores = (n for n in walk(stmt) if isinstance(n, tir.BufferStore) and n.buffer.scope == "global")
    return all(needed_vars <= {inner for v in used_vars(s.indices) for inner in axes.get(v, {v})} for s in stores)
