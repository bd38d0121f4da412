"""Insert the fences, commits and waits of asynchronous warpgroup products (`wgmma`).

A fence precedes a run of products, which orders them after earlier accesses of their registers; after it the run is
committed as a group and waited for. Products read shared memory through the async proxy, so that a proxy fence stands
between writes of threads to shared memory and the barrier after which products read it.

A run is waited for where it ends. In a pipelined loop (`pipeline`) it may stay in flight while the next part begins, if
that touches none of its operands. Kernels with fences or waits of their own are left alone. Source: PTX ISA,
"Asynchronous Multiply-and-Accumulate".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32, DType
from mlcc.ir.node import find, replace, walk
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.passes.gpu.wgmma_layout import is_product
from mlcc.passes.lowering.aliases import Aliases
from mlcc.passes.lowering.effects import memory_accesses
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import FLAT

PENDING = "wgmma_pending"  # around products: how many groups may be in flight afterwards
_MANUAL_SYNC = frozenset(
    tir.Op(f"tir.{n}") for n in ("ptx_wgmma_fence", "ptx_wgmma_commit_group", "ptx_wgmma_wait_group")
)
_VOID = DType.of("void")


def has_products(body: Body) -> bool:
    """Return True if code calls warpgroup products."""
    return any(is_product(n) for s in body for n in walk(s))


def group_products(func: tir.PrimFunc) -> tir.PrimFunc:
    """Insert fences, commits and waits around the warpgroup products of `func`, flat loop code with barriers."""
    if not has_products(func.body):
        return func
    return replace(func, body=_Grouper(func.body).body(func.body))


class _Grouper(TirMutator):
    def __init__(self, body: Body) -> None:
        calls = {n.op for s in body for n in find(s, tir.Call)}
        self._has_manual_sync = bool(calls & _MANUAL_SYNC)
        self._fenced = not self._has_manual_sync and _writes_operands(body)
        self._pending = 0

    def expr(self, node: Expr) -> Expr:
        return node

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        if node.key != PENDING:
            return super().stmt_attr(node)
        outer, self._pending = self._pending, tir.const_int(c.as_expr(node.value)) or 0
        body = list(self.body(node.body)) if node.body else [_call("wait_group", c.const(0, INT32))]
        self._pending = outer
        return body

    def body(self, statements: Body) -> Body:
        if self._has_manual_sync:
            return super().body(statements)
        stmts: list[Stmt] = []
        run: list[Stmt] = []
        for stmt in statements:
            if _has_products_only(stmt):
                run.append(stmt)
                continue
            stmts += self._commit_run(run)
            run = []
            stmts += super().body((stmt,))
        return (*stmts, *self._commit_run(run))

    def _commit_run(self, run: list[Stmt]) -> list[Stmt]:
        if not run:
            return []
        return [_call("fence"), *run, _call("commit_group"), _call("wait_group", c.const(self._pending, INT32))]

    def stmt_evaluate(self, node: tir.Evaluate) -> Stmt | list[Stmt]:
        if self._fenced and _is_barrier(node.value):
            return [tir.Evaluate(tir.Call(_VOID, tir.Op("tir.ptx_fence_proxy_async"), ())), node]
        return node


def _has_products_only(stmt: Stmt) -> bool:
    """Return True if a statement consists of products only, possibly in loops."""
    match stmt:
        case tir.Evaluate(value=value):
            return is_product(value)
        case tir.For(kind=kind, body=body):
            return kind is not ForKind.THREAD_BINDING and bool(body) and all(map(_has_products_only, body))
    return False


def _is_barrier(value: Expr) -> bool:
    return (
        isinstance(value, tir.Call)
        and value.op == tir.Op("tir.tvm_storage_sync")
        and isinstance(value.args[0], tir.StringImm)
        and value.args[0].value.startswith("shared")
    )


def _writes_operands(body: Body) -> bool:
    """Return True if threads write operands of products through the generic proxy: by stores or by `cp.async`."""
    aliases = Aliases()
    read: set[tir.Var | None] = set()
    for stmt in body:
        for node in walk(stmt):
            if isinstance(node, tir.DeclBuffer):
                aliases.bind(node.buffer.data, node.data)
            if is_product(node):
                read |= {aliases.of(t.data).root for t in memory_accesses(node) if not t.writes}
    writers = (tir.BufferStore, tir.Call)
    written = {
        aliases.of(t.data).root
        for s in body
        for n in find(s, *writers)
        if not _is_bulk(n)
        for t in memory_accesses(n)
        if t.writes
    }
    return bool(read & written)


def _is_bulk(node: object) -> bool:
    return isinstance(node, tir.Call) and isinstance(node.op, tir.Op) and "cp_async_bulk" in node.op.name


def _call(name: str, *args: Expr) -> Stmt:
    return tir.Evaluate(tir.Call(_VOID, tir.Op(f"tir.ptx_wgmma_{name}"), args))


@dataclass(frozen=True)
class GroupProducts(LoweringStep):
    """Insert fences before runs of warpgroup products, and commits and waits after them.

    Before:  T.ptx_wgmma_ss(...)
    After:   T.ptx_wgmma_fence(); T.ptx_wgmma_ss(...); T.ptx_wgmma_commit_group(); T.ptx_wgmma_wait_group(0)
    """

    name: ClassVar[str] = "group-products"
    takes: ClassVar[str] = FLAT
    gives: ClassVar[str] = FLAT

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return group_products(func)
