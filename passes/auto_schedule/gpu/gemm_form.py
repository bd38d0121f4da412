"""Convolutions, and products of many axes, as a product of matrices `C[b, m, n] += A[b, m, k] * B[b, n, k]`.

Axes of one part become one (`reindex`, `transform_layout`, `transform_block_layout`). Nothing of that reaches memory:
the copies that it takes disappear into those that fetch tiles, and into the one that stores them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.products import number_of
from mlcc.passes.schedule.handles import BlockRV


def to_gemm(kernel: GpuKernel, block: BlockRV, product: Contraction) -> None:
    """Make a contraction a product of matrices, between blocks that copy the operands into the new layout and the
    result out of it. NotThis where sizes that are not known would be divided by: those of other axes than the first of
    each part."""
    sch, stage = kernel.sch, product.stage
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    places = [of_loop[stage.axes[a.var]] for a in stage.block.iter_vars]  # type: ignore[index]
    both = [p for p in places if p in stage.spatial and product.lhs.has(p) and product.rhs.has(p)]
    rows = [p for p in places if p in stage.spatial and not product.rhs.has(p)]
    columns = [p for p in places if p in stage.spatial and product.rhs.has(p) and p not in both]
    deep = [p for p in places if p in stage.reduced]
    if any(stage.extents[p] is None for group in (both, rows, columns, deep) for p in group[1:]):
        not_this(f"block `{stage.block.name}` has inner axes whose sizes are not known")
    copies = [sch.reindex(block, ("read", number_of(kernel, block, o.buffer))) for o in (product.lhs, product.rhs)]
    sch.reindex(block, ("write", 0))
    extents = {p: stage.extents[p] or 0 for p in places}
    for copy, own, inner in zip(copies, (rows, columns), (deep, deep), strict=True):
        written = kernel.stage(copy).block.writes[0].buffer
        mine = _places_of(kernel, block, written)
        index_map = joined_axes(mine, (both, own, inner), extents)
        sch.transform_layout(block, ("read", number_of(kernel, block, written)), index_map)
    mine = _places_of(kernel, block, kernel.stage(block).block.writes[0].buffer)
    sch.transform_layout(block, ("write", 0), joined_axes(mine, (both, rows, columns), extents))
    sch.transform_block_layout(block, joined_axes(places, (both, rows, columns, deep), extents))


def _places_of(kernel: GpuKernel, block: BlockRV, buffer: tir.Buffer) -> list[int]:
    """The axes by which a block accesses a buffer; those that run once may be missing."""
    stage = kernel.stage(block)
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    access = next(a for a in stage.accesses if a.buffer is buffer)
    if not all(isinstance(i, tir.Var) and i in of_loop for i in access.indices):
        not_this(f"`{buffer.name}` is not accessed by axes")
    return [of_loop[i] for i in access.indices]  # type: ignore[index]


def joined_axes(given: Sequence[int], groups: Sequence[Sequence[int]], extents: dict[int, int]) -> tir.IndexMap:
    """Axes in the order of `given` to one axis for each group that has any."""
    dtype = c.as_expr(0).dtype
    names = {p: tir.Var(f"i{n}", dtype) for n, p in enumerate(given)}
    indices = []
    for group in filter(None, groups):
        index: tir.Expr = c.const(0, dtype)
        for p in (p for p in group if p in names):
            index = c.add(c.mul(index, c.const(extents[p], dtype)), names[p])
        indices.append(index)
    return tir.IndexMap(tuple(names[p] for p in given), tuple(indices))
