"""Dot-product instructions: products of bytes or bfloat16 summed in groups of neighbours along the reduction.

A type of bytes that the instruction does not take is converted in a copy: with the other sign (`flip_sign`), or to
16-bit words (`widen`). The depth is padded to whole groups. The members of a group are contiguous in both operands, and
the loop over them is inside the one over lanes; lowering turns it into `T.dp4a` or `T.dp2a`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.machine.dot_products import Pair, group_of, sum_of
from mlcc.passes.auto_schedule.contraction import Contraction, Operand, match_contraction
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.nests import (
    is_worth_parallelizing,
    parallelize_outer,
    stores_disjointly,
    vectorizable_loop,
)
from mlcc.passes.auto_schedule.products import read_index
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.auto_schedule.tiles import Tile
from mlcc.passes.lowering.vector_legality import REASSOCIATE
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MIN_REUSE = 16  # least reuse of operands that have to be packed at run time
MIN_REUSE_IN_PLACE = 24  # the same of floats that dot products could read in place, at nearly the same speed
_FLIPPED = {"int8": "uint8", "uint8": "int8"}


@dataclass(frozen=True)
class DotGroups:
    """Groups of `size` neighbours along the loop `place`; operands are copied as `dtype` unless that is empty."""

    place: int
    size: int
    dtype: str = ""

    def reserved_registers(self, kernel: Kernel) -> int:
        """Return the number of registers that a tile leaves free.

        They hold an operand, products of words, and operands loaded ahead where there are many registers and no
        instruction broadcasts an operand from memory.
        """
        ahead = kernel.facts.vector_registers >= 32 and kernel.facts.vector_bytes < 64
        return 1 + bool(self.dtype) + 2 * ahead

    def __str__(self) -> str:
        return f"sums of {self.size} products at a time" + (f" of {self.dtype}" if self.dtype else "")


def form_dot_groups(kernel: Kernel, block: BlockRV, product: Contraction) -> tuple[Contraction, DotGroups | None]:
    """Rewrite a product for the CPU's dot-product instructions; return it and the groups.

    The product is unchanged, and the groups are None, if there is no instruction for it or the conversion does not pay.
    """
    pairs = kernel.facts.dots
    types = (str(product.lhs.buffer.dtype), str(product.rhs.buffer.dtype))
    if not pairs or not _multiplies_small(product, pairs) or not _is_worth_packing(kernel, product):
        return product, None
    axis = product.contiguous_axis(product.lhs)
    if axis not in product.k or axis not in product.rhs.places or not _can_pad(product, axis):
        axis = next((p for p in reversed(product.k) if p in product.lhs.places and p in product.rhs.places), None)
    can_relayout = product.lhs.windows or product.rhs.windows or product.m is not None  # a copy can change the layout
    if (
        axis is None
        or (product.extent(axis) or 2) < 2
        or not (can_relayout or axis == product.contiguous_axis(product.lhs))
    ):
        return product, None
    if types in pairs:
        return product, DotGroups(axis, group_of(product.rhs.buffer.dtype))
    flip_left = _flips_left(kernel, product)
    flipped = (_FLIPPED[types[0]], types[1]) if flip_left else (types[0], _FLIPPED[types[1]])
    if flipped in pairs:
        copy = _flip_operand_sign(kernel, block, product.lhs if flip_left else product.rhs)
        inline_into(kernel, copy)
        flipped_product = match_contraction(kernel.stage(block))
        assert isinstance(flipped_product, Contraction)
        return flipped_product, DotGroups(axis, 4)
    if ("int16", "int16") in pairs:
        return product, DotGroups(axis, 2, "int16")
    return product, None


def grouped_in_place(kernel: Kernel, block: BlockRV, product: Contraction) -> tuple[Contraction, int]:
    """Rewrite a product for dot-product instructions without copies: bytes are converted as they are multiplied.

    Return the product and the size of a group, 1 if there is no instruction for it.
    """
    pairs = kernel.facts.dots
    types = (str(product.lhs.buffer.dtype), str(product.rhs.buffer.dtype))
    if not pairs or not _multiplies_small(product, pairs):
        return product, 1
    if types in pairs:
        return product, group_of(product.rhs.buffer.dtype)
    if (types[0], _FLIPPED[types[1]]) in pairs:
        kernel.sch.compute_inline(_flip_operand_sign(kernel, block, product.rhs))
        return product, 4
    return product, 2 if ("int16", "int16") in pairs else 1


def _multiplies_small(product: Contraction, pairs: frozenset[Pair]) -> bool:
    """Return True if bytes are multiplied and summed in int32, or floats of one of the `pairs` in float32."""
    stage = product.stage
    store = stage.stores[0]
    dtypes = (product.lhs.buffer.dtype, product.rhs.buffer.dtype)
    are_bytes = all(d.is_int and d.bits == 8 for d in dtypes)
    are_floats = all(d.is_float for d in dtypes) and tuple(map(str, dtypes)) in pairs
    if not (are_bytes or are_floats) or store.buffer.dtype is not sum_of(dtypes[0]):
        return False
    if not isinstance(store.value, tir.Add):
        return False
    addends = (store.value.lhs, store.value.rhs)
    products = [s for s in addends if isinstance(s, tir.Mul)]
    return len(products) == 1 and all(
        isinstance(f, tir.Cast) and isinstance(f.value, tir.BufferLoad) for f in (products[0].lhs, products[0].rhs)
    )


def _can_pad(product: Contraction, axis: int) -> bool:
    """Return True if sums can be padded to whole groups along an axis.

    At a window the data beyond it are multiplied by zeros, which infinities and NaN do not allow.
    """
    dtype = product.lhs.buffer.dtype
    return dtype.is_int or axis in product.lhs.places or (product.extent(axis) or 1) % group_of(dtype) == 0


def multiplies_pairs(kernel: Kernel, product: Contraction) -> bool:
    """Return True if floats are multiplied of which the CPU adds up products in pairs."""
    return product.lhs.buffer.dtype.is_float and _multiplies_small(product, kernel.facts.dots)


def _is_worth_packing(kernel: Kernel, product: Contraction) -> bool:
    """Return True if both operands are reused often enough to pay for packing; unknown extents count as large."""
    columns = product.extent(product.n)
    if columns is not None and columns * 2 < kernel.facts.lanes(4):
        return False
    if kernel.is_constant(product.rhs.buffer):
        return True
    if product.lhs.buffer.dtype.is_int:
        return product.reuse is None or product.reuse >= MIN_REUSE
    readers = [p for p in product.stage.spatial if not product.rhs.has(p)]
    greatest = kernel.bounds_of_loops(product.stage, readers)[1]
    in_place = all(
        not operand.windows and product.contiguous_axis(operand) == product.k[-1]
        for operand in (product.lhs, product.rhs)
    )
    return greatest is None or greatest >= (MIN_REUSE_IN_PLACE if in_place else MIN_REUSE)


def _flips_left(kernel: Kernel, product: Contraction) -> bool:
    """Return True if the sign of the left operand is the one to flip.

    It should be the data rather than the weights: the correction sums up the other operand, and sums of weights are
    known, or at least small.
    """
    if product.rhs.windows or product.lhs.windows:
        return bool(product.lhs.windows)
    return not kernel.is_constant(product.lhs.buffer) or kernel.is_constant(product.rhs.buffer)


def _flip_operand_sign(kernel: Kernel, block: BlockRV, operand: Operand) -> BlockRV:
    """Copy an operand with flipped signs, and correct the sums in the block after the product; return the copy."""
    sch = kernel.sch
    sch.flip_sign(block, ("read", read_index(kernel, block, operand.buffer)))
    (correction,) = sch.get_consumers(block)
    readers = sch.get_consumers(correction)
    if len(readers) == 1 and not kernel.stage(readers[0]).reduced:
        try_inline(kernel, correction)
    copies = [p for p in sch.get_producers(block) if sch.get(p).reads[0].buffer is operand.buffer]
    return copies[0]


def inline_into(kernel: Kernel, block: BlockRV) -> None:
    """Inline the producers of a copy that have no other consumer and are not reductions."""
    for before in kernel.sch.get_producers(block):
        if len(kernel.sch.get_consumers(before)) == 1 and not kernel.stage(before).reduced:
            try_inline(kernel, before)


def schedule_corrections(
    kernel: Kernel, others: Sequence[BlockRV], epilogue: BlockRV, tile: Tile, step: int, groups: DotGroups
) -> list[BlockRV]:  # fmt: skip
    """Schedule the sums that correct a flipped operand; return the other blocks. `step`: the columns of a panel."""
    rest = []
    for other in others:
        if not kernel.exists(other) or kernel.sch.get(other) is kernel.sch.get(epilogue):
            continue
        stage = kernel.stage(other)
        if not stage.reduced or len(stage.stores) != 1 or kernel.is_output(stage):
            rest.append(other)
            continue
        packed = _panel_loops(stage, step, groups)
        kernel.say(
            _correction_nest(kernel, other) if packed is None else _packed_sums(kernel, other, *packed, tile, groups)
        )
    return rest


def _panel_loops(stage: Stage, step: int, groups: DotGroups) -> tuple[int, int] | None:
    """Return the loops along panels and along the depth of a sum that reads panels of groups, None for other sums."""
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    for access in stage.accesses:
        match access.indices[-2:]:
            case (
                tir.FloorMod(lhs=tir.Var() as own, rhs=tir.IntImm(value=columns)),
                tir.FloorMod(lhs=tir.Var() as deep, rhs=tir.IntImm(value=size)),
            ) if not access.stored and (columns, size) == (step, groups.size):
                return of_loop[own], of_loop[deep]
    return None


def _packed_sums(
    kernel: Kernel, block: BlockRV, column_position: int, depth_position: int, tile: Tile, groups: DotGroups
) -> str:
    """Compute the sums of panels as products with ones."""
    sch, stage = kernel.sch, kernel.stage(block)
    parallel = is_worth_parallelizing(kernel, stage)
    loops = kernel.loops(block)
    panel, vector, lane = sch.split(loops[column_position], [None, tile.vectors, tile.lanes])
    loops[depth_position], member = sch.split(loops[depth_position], [None, groups.size])
    outer, depth = [loops[n] for n in stage.spatial if n != column_position], [loops[n] for n in stage.reduced]
    sch.reorder(*outer, panel, *depth, vector, lane, member)
    stored = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(stored, panel)
    for loop in (vector, member):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.vectorize(sch.split(kernel.loops(stored)[-1], [None, tile.lanes])[1])
    if parallel:
        parallelize_outer(kernel, [*outer, panel])
    sch.decompose_reduction(block, depth[0])
    return f"`{stage.block.name}`: vectors of {tile.lanes}, sums of {groups.size} at a time"


def _correction_nest(kernel: Kernel, block: BlockRV) -> str:
    """Schedule a sum of integers, whose order does not matter; return a short description.

    Some vectors of results accumulate in registers at a time, or each result accumulates in lanes.
    """
    sch, stage = kernel.sch, kernel.stage(block)
    loops = kernel.loops(block)
    owned_loops = [n for n in stage.spatial if stores_disjointly(stage, n)]
    vector = vectorizable_loop(stage, owned_loops)
    parallel = is_worth_parallelizing(kernel, stage)
    outer, depth = [loops[n] for n in stage.spatial if n != vector], [loops[n] for n in stage.reduced]
    if vector is None or set(stage.steps_by(vector)) != {1}:
        outer = [loops[n] for n in stage.spatial]
        sch.reorder(*outer, *depth)
        sch.annotate(depth[-1], REASSOCIATE, 1)
        if parallel and outer:
            parallelize_outer(kernel, outer)
        return f"`{stage.block.name}`: in lanes"
    lanes = kernel.facts.lanes(stage.element_bytes)
    line, vector_in_line, lane = sch.split(loops[vector], [None, kernel.facts.line_bytes // lanes, lanes])
    sch.reorder(*outer, line, *depth, vector_in_line, lane)
    stored = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(stored, line)
    sch.unroll(vector_in_line)
    sch.vectorize(lane)
    sch.vectorize(sch.split(kernel.loops(stored)[-1], [None, lanes])[1])
    if parallel:
        parallelize_outer(kernel, [*outer, line])
    sch.decompose_reduction(block, depth[0])
    return f"`{stage.block.name}`: vectors of {lanes}"


# ---------------------------------------------------------------- layouts and loops


def unroll_group(kernel: Kernel, stage: Stage, members: Sequence[LoopRV]) -> None:
    """Unroll the loop over a group; sums of floats may take its members in any order."""
    for loop in members:
        if stage.stores[0].buffer.dtype.is_float:
            kernel.sch.annotate(loop, REASSOCIATE, 1)
        kernel.sch.unroll(loop)


def grouped_panel_indices(
    index_vars: Sequence[tir.Var],
    operand: Operand,
    panel_axis: int | None,
    step: int,
    depth: Sequence[int],
    groups: DotGroups,
) -> tuple[tir.Expr, ...]:
    """Return the indices of a packed copy with groups.

    In order: the other axes, panels of `step` along the loop `panel_axis`, the depth, the elements of a panel, and the
    members of a group.
    """
    by_place = list(zip(index_vars, operand.places, strict=True))
    outer = [v for v, p in by_place if p != panel_axis and p not in depth]
    depth_indices = [c.floordiv(v, groups.size) if p == groups.place else v for v, p in by_place if p in depth]
    member = next(c.floormod(v, groups.size) for v, p in by_place if p == groups.place)
    panel = [v for v, p in by_place if p == panel_axis and panel_axis is not None]
    tiles, columns = [c.floordiv(v, step) for v in panel], [c.floormod(v, step) for v in panel]
    return (*outer, *tiles, *depth_indices, *columns, member)


def schedule_panel_copy(
    kernel: Kernel, copy: BlockRV, operand: Operand, panel_axis: int, step: int, groups: DotGroups, outer_count: int
) -> list[LoopRV]:
    """Schedule a copy laid out by `grouped_panel_indices`, panel by panel; return the loops around and over panels.

    Where the operand is contiguous along groups, whole cache lines of it are read at a time.
    """
    sch = kernel.sch
    loops = kernel.loops(copy)[outer_count:]  # one for each dimension of the operand
    panel_dimension, group_dimension = operand.places.index(panel_axis), operand.places.index(groups.place)
    others = [n for n in range(len(loops)) if n not in (panel_dimension, group_dimension)]
    panel, element = sch.split(loops[panel_dimension], [None, step])
    if group_dimension == len(loops) - 1:
        line, near, member = sch.split(
            loops[group_dimension], [None, kernel.facts.line_bytes // groups.size, groups.size]
        )
        sch.reorder(*(loops[n] for n in others), panel, line, element, near, member)
    else:
        group, member = sch.split(loops[group_dimension], [None, groups.size])
        sch.reorder(*(loops[n] for n in others), panel, group, element, member)
    sch.unroll(member)
    return [*(loops[n] for n in others), panel]
