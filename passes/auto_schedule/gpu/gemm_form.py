"""Convolutions and multi-axis contractions in GEMM form: `C[b, m, n] += A[b, m, k] * B[b, n, k]`.

Axes of the same role are fused (`reindex`, `transform_layout`, `transform_block_layout`). The copies that this takes
never reach memory: they are inlined into those that fetch tiles, and into the one that stores the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.schedule.handles import BlockRV


def to_gemm(kernel: GpuKernel, block: BlockRV, product: Contraction) -> None:
    """Rewrite a contraction as a matrix product, with blocks that copy the operands and the result between layouts.

    Raise RuleNotApplicable where indices would be divided by unknown sizes: those of axes other than the first of each
    role.
    """
    sch, stage = kernel.sch, product.stage
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    positions = [of_loop[stage.axes[a.var]] for a in stage.block.iter_vars]  # type: ignore[index]
    batch = [p for p in positions if p in stage.spatial and product.lhs.has(p) and product.rhs.has(p)]
    rows = [p for p in positions if p in stage.spatial and not product.rhs.has(p)]
    columns = [p for p in positions if p in stage.spatial and product.rhs.has(p) and p not in batch]
    depth = [p for p in positions if p in stage.reduced]
    if any(stage.extents[p] is None for group in (batch, rows, columns, depth) for p in group[1:]):
        not_applicable(f"block `{stage.block.name}` has inner axes of unknown size")
    copies = [sch.reindex(block, ("read", read_index(kernel, block, o.buffer))) for o in (product.lhs, product.rhs)]
    sch.reindex(block, ("write", 0))
    extents = {p: stage.extents[p] or 0 for p in positions}
    for copy, own_axes, inner_axes in zip(copies, (rows, columns), (depth, depth), strict=True):
        written = kernel.stage(copy).block.writes[0].buffer
        access_axes = _access_axes(kernel, block, written)
        index_map = fused_axes_map(access_axes, (batch, own_axes, inner_axes), extents)
        sch.transform_layout(block, ("read", read_index(kernel, block, written)), index_map)
    access_axes = _access_axes(kernel, block, kernel.stage(block).block.writes[0].buffer)
    sch.transform_layout(block, ("write", 0), fused_axes_map(access_axes, (batch, rows, columns), extents))
    sch.transform_block_layout(block, fused_axes_map(positions, (batch, rows, columns, depth), extents))


def _access_axes(kernel: GpuKernel, block: BlockRV, buffer: tir.Buffer) -> list[int]:
    """Return the axes that a block accesses a buffer by, as positions of loops; axes of extent 1 may be missing."""
    stage = kernel.stage(block)
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    access = next(a for a in stage.accesses if a.buffer is buffer)
    if not all(isinstance(i, tir.Var) and i in of_loop for i in access.indices):
        not_applicable(f"`{buffer.name}` is not indexed by axes")
    return [of_loop[i] for i in access.indices]  # type: ignore[index]


def fused_axes_map(axes: Sequence[int], groups: Sequence[Sequence[int]], extents: dict[int, int]) -> tir.IndexMap:
    """Return the index map that fuses the axes of each non-empty group."""
    dtype = c.as_expr(0).dtype
    names = {p: tir.Var(f"i{n}", dtype) for n, p in enumerate(axes)}
    indices = []
    for group in filter(None, groups):
        index: tir.Expr = c.const(0, dtype)
        for p in (p for p in group if p in names):
            index = c.add(c.mul(index, c.const(extents[p], dtype)), names[p])
        indices.append(index)
    return tir.IndexMap(tuple(names[p] for p in axes), tuple(indices))
