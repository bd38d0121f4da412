"""Recognize blocks annotated with `mlcc.bulk_copy` and the loops around them that hold nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from mlcc.errors import CompileError, error
from mlcc.ir import tir
from mlcc.ir.tir import Expr, ForKind, Stmt
from mlcc.ir.visit import substitute
from mlcc.passes.gpu.zero_guards import split_zero_guard
from mlcc.passes.lowering.pipeline_parts import BULK_COPY


@dataclass(frozen=True, slots=True, eq=False)
class BulkCopy:
    """An annotated copy, and the loops around it that hold nothing else."""

    loops: Sequence[tir.For]
    store: tir.BufferStore
    load: tir.BufferLoad
    condition: Expr

    @property
    def vars(self) -> set[tir.Var]:
        return {x.var for x in self.loops}

    @staticmethod
    def of(node: Stmt) -> BulkCopy | None:
        """Return the annotated copy that a nest consists of, else None. Conditions around it only leave out elements.
        Raises CompileError for an annotated block that is not a copy.
        """
        loops: list[tir.For] = []
        values: dict[tir.Var, Expr] = {}
        annotated = False
        while True:
            match node:
                case tir.For(body=(inner,)) if _may_span_tile(node) and not annotated:
                    if tir.const_int(node.extent) == 1:
                        values[node.var] = node.min
                    else:
                        loops.append(node)
                case tir.IfThenElse(then_body=(inner,), else_body=None):
                    pass
                case tir.AttrStmt(key=key, body=(inner,)) if key == BULK_COPY:
                    annotated = True
                case tir.AttrStmt(key=key) if key == BULK_COPY:
                    raise bulk_copy_error(node, "the block does more than copy")
                case tir.BufferStore() if annotated:
                    condition, value = split_zero_guard(node.value)
                    if not isinstance(value, tir.BufferLoad):
                        help = "it may only store what it loads, or zeros"
                        raise bulk_copy_error(node, "the block does more than copy", help)
                    where = substitute(tir.TRUE if condition is None else condition, values)
                    return BulkCopy(loops, substitute(node, values), substitute(value, values), where)
                case _:
                    if annotated:
                        raise bulk_copy_error(node, "the block does more than copy")
                    return None
            node = inner

    def refuse(self, why: str, help: str | None = None) -> NoReturn:
        raise bulk_copy_error(self.store, why, help)


def _may_span_tile(loop: tir.For) -> bool:
    """Return True if a loop may run over a tile: not bound to threads, of step 1 and not pipelined."""
    plain = loop.kind in (ForKind.SERIAL, ForKind.UNROLLED, ForKind.VECTORIZED)
    return plain and tir.const_int(loop.step) in (None, 1) and not any("pipeline" in key for key in loop.annotations)


def bulk_copy_error(node: Stmt, why: str, help: str | None = None) -> CompileError:
    return CompileError(
        error("E0778", f"a block with `{BULK_COPY}` cannot be a bulk copy: {why}", node.span, help=help)
    )


def conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, tir.And):
        return [*conjuncts(condition.lhs), *conjuncts(condition.rhs)]
    if isinstance(condition, tir.Call) and condition.op == tir.Op("tir.likely"):
        return conjuncts(condition.args[0])
    return [] if tir.const_int(condition) == 1 else [condition]
