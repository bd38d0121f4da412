"""Thread-bound loops on a CPU: they run serially if that gives the same result, and are refused otherwise.

A loop bound to a thread axis is a loop over independent iterations, so its serial form is right, unless the code inside
depends on other threads (barriers, shuffles, reductions across threads). A launch scope (`T.launch_thread`) contains
the code of one thread: there, memory shared between threads is refused too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.errors import CompileError, Label, error
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import called, name_of
from mlcc.ir.node import find, replace, walk
from mlcc.ir.tir import ForKind, Stmt
from mlcc.passes.lowering.mutator import TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.manage.stages import LOOPS


def serialize_threads(func: tir.PrimFunc) -> tir.PrimFunc:
    """Return `func` with thread-bound loops and launch scopes as serial loops.

    Raises CompileError if threads interact.
    """
    bound = next(_thread_code(func.body), None)
    if bound is None:
        return func
    for node in walk(func):
        if called(node).collective:
            message = f"`T.{name_of(node)}` needs threads that run concurrently"
            raise CompileError(
                error("E0707", message, node.span, "a CPU runs thread-bound loops serially",
                      related=(Label(bound.span, "the thread-bound code"),))
            )  # fmt: skip
    return replace(func, body=_Serializer().body(func.body))


def _thread_code(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    for node in find(body, tir.For, tir.AttrStmt):
        match node:
            case tir.For(kind=ForKind.THREAD_BINDING):
                yield node
            case tir.AttrStmt(key="thread_extent" | "virtual_thread"):
                yield node


class _Serializer(TirMutator):
    def __init__(self) -> None:
        self._axes: dict[str, tir.Var] = {}  # the launch scopes around, by axis

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        loop = super().stmt_for(node)
        if isinstance(loop, tir.For) and loop.kind is ForKind.THREAD_BINDING:
            return replace(loop, kind=ForKind.SERIAL, thread=None)
        return loop

    def stmt_attr(self, node: tir.AttrStmt) -> Stmt | list[Stmt]:
        axis = node.subject
        if node.key not in ("thread_extent", "virtual_thread") or not isinstance(axis, tir.IterVar):
            return super().stmt_attr(node)
        outer = self._axes.get(axis.thread_tag)
        if outer is not None:  # the same thread again, by another name
            return [tir.Bind(axis.var, c.cast(axis.var.dtype, outer)), *self.body(node.body)]
        self._axes[axis.thread_tag] = axis.var
        body = self.body(node.body)
        del self._axes[axis.thread_tag]
        extent = c.cast(axis.var.dtype, c.as_expr(node.value))
        return tir.For(axis.var, c.const(0, axis.var.dtype), extent, ForKind.SERIAL, body, span=node.span)

    def stmt_alloc(self, node: tir.AllocBuffer) -> Stmt | list[Stmt]:
        scope = node.buffer.scope
        if self._axes and scope.startswith(("shared", "warp", "wmma", "m16n8k8")):
            message = f"`{node.buffer.name}` is shared between threads (scope `{scope}`)"
            raise CompileError(error("E0707", message, node.span, "a CPU runs launched threads serially"))
        return node


@dataclass(frozen=True)
class SerializeThreads(LoweringStep):
    """Make thread-bound loops serial, as a CPU runs them; refuse threads that interact.

    Before:  for i in T.thread_binding(8, thread="blockIdx.x"): ...
    After:   for i in range(8): ...
    """

    name: ClassVar[str] = "serialize-threads"
    takes: ClassVar[str] = LOOPS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return serialize_threads(func)
