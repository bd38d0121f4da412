"""Bind the loops of blocks that have no thread binding yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.ir import tir
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.schedulable import functions_with_blocks, root_block
from mlcc.tune.schedule_rule.thread_bind import bind_block_thread_idx

if TYPE_CHECKING:
    from mlcc.tune.tune_context import TuneContext


class RewriteUnboundBlock(Postproc):
    """Binds every block that lacks a thread block or thread loop, to at most `max_threadblocks` thread blocks. TVM:
    `RewriteUnboundBlock`."""

    def __init__(self, max_threadblocks: int = 256) -> None:
        self.max_threadblocks = max_threadblocks
        self._most_threads = 0

    def _initialize_with_tune_context(self, context: TuneContext) -> None:
        if not context.facts.max_threads_per_block:
            raise ValueError(f"RewriteUnboundBlock is for targets with threads, not for `{context.target}`")
        self._most_threads = context.facts.max_threads_per_block

    def apply(self, sch: Schedule) -> bool:
        for func_name in functions_with_blocks(sch):
            for name in _unbound(root_block(sch, func_name).body, frozenset()):
                block = sch.get_block(name, func_name)
                bind_block_thread_idx(
                    sch, block, self.max_threadblocks, self._most_threads, lambda most: min(self._most_threads, most)
                )
        return True


def _unbound(body: tuple[tir.Stmt, ...], bound: frozenset[str]) -> list[str]:
    """Return the names of the outermost blocks in a body that lack a `blockIdx` or a `threadIdx` loop around them."""
    names: list[str] = []
    for stmt in body:
        match stmt:
            case tir.For(thread=axis, body=inner):
                around = bound | ({axis.partition(".")[0]} if axis else set())
                if not {"blockIdx", "threadIdx"} <= around:
                    names += _unbound(inner, around)
            case tir.BlockRealize(block=block):
                names.append(block.name)
            case tir.IfThenElse(then_body=then, else_body=other):
                names += _unbound(then, bound) + _unbound(other or (), bound)
            case tir.While(body=inner) | tir.AttrStmt(body=inner):
                names += _unbound(inner, bound)
    return names
