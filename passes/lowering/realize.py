"""Lower blocks to plain code: axes are replaced by the values they are bound to, predicates become conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import EMPTY, Attrs, map_value, replace, walk
from mlcc.ir.tir import Expr, Stmt
from mlcc.passes.lowering.allocate import ALIGN, PERMUTED, place_allocations
from mlcc.passes.lowering.init_block import init_condition
from mlcc.passes.lowering.match_buffer import match, symbolic_view, with_strides
from mlcc.passes.lowering.mutator import Body, TirMutator
from mlcc.passes.lowering.options import LowerOptions
from mlcc.passes.lowering.pipeline_parts import (
    BULK_COPY,
    DOUBLE_BUFFER,
    ROUND_TF32,
    bracket_part,
    counts_inside_blocks,
    is_pipelined,
)
from mlcc.passes.lowering.stage import LoweringStep
from mlcc.passes.lowering.tf32 import RoundStores
from mlcc.passes.manage.stages import BLOCKS, LOOPS


def realize_blocks(func: tir.PrimFunc, kernels: bool = False) -> tir.PrimFunc:
    """Return `func` without blocks.

    For `kernels` of GPUs, the parts of pipelined loops are bracketed (see `pipeline_parts`; raises CompileError if
    annotations and statements disagree), and views stay symbolic (`bind_views`).
    """
    defined = {n for b in func.buffers if b is not None for n in walk(b) if isinstance(n, tir.Var)}
    return replace(func, body=_Realizer({*func.params, *defined}, kernels).body(func.body))


class _Realizer(TirMutator):
    """Substitute axes by their values, and rebuild buffers whose shapes mention an axis.

    `defined` are the variables that have a value: a view binds the others that it mentions.
    """

    def __init__(self, defined: set[tir.Var], kernels: bool) -> None:
        self._defined = defined
        self._kernels = kernels
        self._values: dict[tir.Var, Expr] = {}
        self._buffers: dict[tir.Buffer, tir.Buffer] = {}
        self._notes: dict[tir.Var, Attrs] = {}

    def var(self, node: tir.Var) -> Expr:
        return self._values.get(node, node)

    def binder(self, node: tir.Var) -> tir.Var:
        self._defined.add(node)
        return node

    def buffer(self, node: tir.Buffer) -> tir.Buffer:
        return self._buffers.get(node, node)

    def buffer_binder(self, node: tir.Buffer) -> tir.Buffer:
        shape, strides = self.exprs(node.shape), self.exprs(node.strides)
        offset = None if node.elem_offset is None else self.expr(node.elem_offset)
        buffer: tir.Buffer = replace(node, shape=shape, strides=strides, elem_offset=offset)
        if buffer is not node:
            self._buffers[node] = buffer
        return buffer

    def _view(self, view: tir.Buffer, source: tir.Buffer, region: tuple[tir.Range, ...]) -> list[Stmt]:
        resolved = self.buffer_binder(view)
        if self._kernels:
            return [symbolic_view(resolved, source, region)]
        strided = with_strides(resolved, source)
        if strided is not view:
            self._buffers[view] = strided
        return match(strided, source, region, self._defined)

    def stmt_realize(self, node: tir.BlockRealize) -> Stmt | list[Stmt]:
        allocated, views, groups = self._lower_block(node)
        statements = views + [s for group in groups for s in group]
        block = node.block
        for key, value in block.annotations.items():
            if key.startswith("pragma_") or (
                self._kernels and (key == DOUBLE_BUFFER or (key == BULK_COPY and _is_set(value)))
            ):
                statements = [tir.AttrStmt(block.name, key, value, tuple(statements), span=block.span)]
        if self._kernels and _is_set(block.annotations.get(ROUND_TF32, False)):
            statements = list(RoundStores().body(tuple(statements)))
        self._move_layout_annotations(block)
        body = place_allocations(allocated, tuple(statements), self._notes)
        return list(_under_condition(self.expr(node.predicate), body))

    def _lower_block(self, node: tir.BlockRealize) -> tuple[tuple[tir.Buffer, ...], list[Stmt], list[Body]]:
        """Return the allocations of a block, its views, and its lowered statements, with the guarded init first."""
        block = node.block
        values = self.exprs(node.values)
        for axis, value in zip(block.iter_vars, values, strict=True):
            self._values[axis.var] = c.cast(axis.var.dtype, value)
        allocated = tuple(self.buffer_binder(b) for b in block.alloc_buffers)
        views: list[Stmt] = []
        for view in block.match_buffers:
            source = self.buffer(view.source.buffer)
            region = map_value(view.source.region, self.node)
            views += self._view(view.buffer, source, region)
        groups: list[Body] = []
        if block.init is not None:
            groups.append(_under_condition(init_condition(block, values, self.expr), self.body(block.init)))
        groups += [self.body((s,)) for s in block.body]
        return allocated, views, groups

    def stmt_for(self, node: tir.For) -> Stmt | list[Stmt]:
        if not self._kernels or not is_pipelined(node):
            return super().stmt_for(node)
        groups: list[Body] = []
        first: list[Stmt] = []
        for stmt, inside in zip(node.body, counts_inside_blocks(node), strict=True):
            if inside and isinstance(stmt, tir.BlockRealize):
                allocated, views, more = self._lower_block(stmt)
                first += [*(tir.AllocBuffer(b, self._notes.get(b.data, EMPTY), span=b.span) for b in allocated), *views]
                groups += more
            else:
                groups.append(self.body((stmt,)))
        parts = [bracket_part(group, number) for number, group in enumerate(groups)]
        loop = super().stmt_for(replace(node, body=()))
        assert isinstance(loop, tir.For)
        return replace(loop, body=(*first, *parts))

    def _move_layout_annotations(self, block: tir.Block) -> None:
        """Move layout annotations of a block to the allocations of its buffers.

        `ALIGN` constrains the strides of written buffers, `PERMUTED` the element order of shared memory that the block
        reads or writes.
        """
        permuted = block.annotations.get(PERMUTED)
        if permuted is not None:
            for region in (*block.reads, *block.writes):
                data = region.buffer.data
                if region.buffer.scope.startswith("shared"):
                    known = self._notes.get(data, EMPTY)
                    widths = (*(w for w in known.get(PERMUTED, ()) if w != permuted), permuted)
                    self._notes[data] = known.with_item(PERMUTED, widths)
        for number, *rule in block.annotations.get(ALIGN, ()):
            data = block.writes[number].buffer.data
            known = self._notes.get(data, EMPTY)
            self._notes[data] = known.with_item(ALIGN, (*known.get(ALIGN, ()), tuple(rule)))


def _is_set(value: object) -> bool:
    """Return True if an annotation has a true value."""
    return bool(tir.const_int(value) if isinstance(value, tir.Expr) else value)


def _under_condition(condition: Expr, body: Body) -> Body:
    known = tir.const_int(condition)
    if known is not None:
        return body if known else ()
    return (tir.IfThenElse(condition, body, span=condition.span),)


@dataclass(frozen=True)
class RealizeBlocks(LoweringStep):
    """Replace blocks by plain code: axes by the values that they are bound to, predicates by conditions.

    Before:  with T.block("C"): vi = T.axis.spatial(8, i + 1); C[vi] = A[vi]
    After:   C[i + 1] = A[i + 1]
    """

    name: ClassVar[str] = "realize-blocks"
    takes: ClassVar[str] = BLOCKS
    gives: ClassVar[str] = LOOPS

    def lower(self, func: tir.PrimFunc, functions: Mapping[str, tir.PrimFunc], options: LowerOptions) -> tir.PrimFunc:
        return realize_blocks(func, options.kernels)
