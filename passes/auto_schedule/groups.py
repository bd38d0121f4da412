"""Dot-product instructions: products of bytes accumulated in groups of neighbours along the depth.

An operand type that the instruction does not take is converted in a copy: with the other sign (`flip_sign`), or to
words (`widen`). The depth is padded to whole groups. The members of a group are contiguous in both operands, and the
loop over them is inside the one over lanes; lowering turns it into `T.dp4a` or `T.dp2a`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand, contraction
from mlcc.passes.auto_schedule.inlining import try_inline
from mlcc.passes.auto_schedule.kernel import Kernel
from mlcc.passes.auto_schedule.nests import owned, share_out, vector_place, worth_threads
from mlcc.passes.auto_schedule.products import number_of, stands
from mlcc.passes.auto_schedule.stage import Stage
from mlcc.passes.auto_schedule.tiles import Tile
from mlcc.passes.schedule.handles import BlockRV, LoopRV

LEAST_REUSE = 16  # of elements that have to be copied for it, where they are not known
_FLIPPED = {"int8": "uint8", "uint8": "int8"}


@dataclass(frozen=True)
class Groups:
    """`size` neighbours along the loop `place`; operands are copied as `dtype` if that is not empty."""

    place: int
    size: int
    dtype: str = ""

    def spare(self, kernel: Kernel) -> int:
        """Return the number of registers that a tile leaves free.

        They are for an operand, for products of words, and for operands loaded ahead where there are many registers and
        no instruction broadcasts an operand from memory.
        """
        ahead = kernel.facts.vector_registers >= 32 and kernel.facts.vector_bytes < 64
        return 1 + bool(self.dtype) + 2 * ahead

    def __str__(self) -> str:
        return f"sums of {self.size} products at a time" + (f" of {self.dtype}" if self.dtype else "")


def grouped(kernel: Kernel, block: BlockRV, product: Contraction) -> tuple[Contraction, Groups | None]:
    """Put a product into the form of the CPU's dot-product instructions; return it, and the groups.

    The product is as before, and the groups are None, if there is no instruction for it or the conversion does not pay.
    """
    pairs = kernel.facts.dots
    types = (str(product.lhs.buffer.dtype), str(product.rhs.buffer.dtype))
    if not pairs or not _of_bytes(product) or not _pays(kernel, product):
        return product, None
    place = product.consecutive(product.lhs)
    if place not in product.k or not product.rhs.has(place) or place not in product.rhs.places:
        place = next((p for p in reversed(product.k) if p in product.lhs.places and p in product.rhs.places), None)
    strips = product.lhs.windows or product.rhs.windows or product.m is not None  # a copy of another layout is made
    if place is None or (product.extent(place) or 2) < 2 or not (strips or place == product.consecutive(product.lhs)):
        return product, None
    if types in pairs:
        return product, Groups(place, 4)
    left = _flips_left(kernel, product)
    flipped = (_FLIPPED[types[0]], types[1]) if left else (types[0], _FLIPPED[types[1]])
    if flipped in pairs:
        copy = _flip(kernel, block, product.lhs if left else product.rhs)
        inline_into(kernel, copy)
        flipped_product = contraction(kernel.stage(block))
        assert isinstance(flipped_product, Contraction)
        return flipped_product, Groups(place, 4)
    if ("int16", "int16") in pairs:
        return product, Groups(place, 2, "int16")
    return product, None


def grouped_in_place(kernel: Kernel, block: BlockRV, product: Contraction) -> tuple[Contraction, int]:
    """Do the same for a product without copies: bytes change sign, or become words, as they are multiplied.

    Return the product and the number of products in a group, 1 if there is no instruction for them.
    """
    pairs = kernel.facts.dots
    types = (str(product.lhs.buffer.dtype), str(product.rhs.buffer.dtype))
    if not pairs or not _of_bytes(product):
        return product, 1
    if types in pairs:
        return product, 4
    if (types[0], _FLIPPED[types[1]]) in pairs:
        kernel.sch.compute_inline(_flip(kernel, block, product.rhs))
        return product, 4
    return product, 2 if ("int16", "int16") in pairs else 1


def _of_bytes(product: Contraction) -> bool:
    """Return True if 8-bit operands are multiplied and accumulated in int32."""
    stage = product.stage
    store = stage.stores[0]
    both = all(o.buffer.dtype.is_int and o.buffer.dtype.bits == 8 for o in (product.lhs, product.rhs))
    if not both or str(store.buffer.dtype) != "int32" or not isinstance(store.value, tir.Add):
        return False
    own = (store.value.lhs, store.value.rhs)
    products = [s for s in own if isinstance(s, tir.Mul)]
    return len(products) == 1 and all(
        isinstance(f, tir.Cast) and isinstance(f.value, tir.BufferLoad) for f in (products[0].lhs, products[0].rhs)
    )


def _pays(kernel: Kernel, product: Contraction) -> bool:
    """Return True if both operands are reused often enough to pay for packing; unknown extents count as large."""
    wide = product.extent(product.n)
    if wide is not None and wide * 2 < kernel.facts.lanes(4):
        return False
    if kernel.is_constant(product.rhs.buffer):
        return True
    return product.reuse is None or product.reuse >= LEAST_REUSE


def _flips_left(kernel: Kernel, product: Contraction) -> bool:
    """Return True if the left operand is the one to copy with flipped signs.

    It should be the data rather than the weights: the correction sums up the other operand, and sums of weights are
    known, or at least small.
    """
    if product.rhs.windows or product.lhs.windows:
        return bool(product.lhs.windows)
    return not kernel.is_constant(product.lhs.buffer) or kernel.is_constant(product.rhs.buffer)


def _flip(kernel: Kernel, block: BlockRV, operand: Operand) -> BlockRV:
    """Copy an operand with flipped signs, and correct the sums in the block after the product; return the copy."""
    sch = kernel.sch
    sch.flip_sign(block, ("read", number_of(kernel, block, operand.buffer)))
    (rest,) = sch.get_consumers(block)
    readers = sch.get_consumers(rest)
    if len(readers) == 1 and not kernel.stage(readers[0]).reduced:
        try_inline(kernel, rest)
    copies = [p for p in sch.get_producers(block) if sch.get(p).reads[0].buffer is operand.buffer]
    return copies[0]


def inline_into(kernel: Kernel, block: BlockRV) -> None:
    """Inline the producers of a copy that have no other consumer and are no reductions."""
    for before in kernel.sch.get_producers(block):
        if len(kernel.sch.get_consumers(before)) == 1 and not kernel.stage(before).reduced:
            try_inline(kernel, before)


def sum_nests(
    kernel: Kernel, others: Sequence[BlockRV], epilogue: BlockRV, tile: Tile, step: int, groups: Groups
) -> list[BlockRV]:  # fmt: skip
    """Schedule the sums that correct a flipped operand; return the other blocks. `step`: the columns of a panel."""
    rest = []
    for other in others:
        if not stands(kernel, other) or kernel.sch.get(other) is kernel.sch.get(epilogue):
            continue
        stage = kernel.stage(other)
        if not stage.reduced or len(stage.stores) != 1 or kernel.is_output(stage):
            rest.append(other)
            continue
        packed = _packed(stage, step, groups)
        kernel.say(_sum_nest(kernel, other) if packed is None else _packed_sums(kernel, other, *packed, tile, groups))
    return rest


def _packed(stage: Stage, step: int, groups: Groups) -> tuple[int, int] | None:
    """The loops along panels and along the depth, of a sum that reads panels of groups."""
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    for access in stage.accesses:
        match access.indices[-2:]:
            case (
                tir.FloorMod(lhs=tir.Var() as own, rhs=tir.IntImm(value=columns)),
                tir.FloorMod(lhs=tir.Var() as deep, rhs=tir.IntImm(value=size)),
            ) if not access.stored and (columns, size) == (step, groups.size):
                return of_loop[own], of_loop[deep]
    return None


def _packed_sums(kernel: Kernel, block: BlockRV, own: int, deep: int, tile: Tile, groups: Groups) -> str:
    """Compute the sums of panels as products with ones."""
    sch, stage = kernel.sch, kernel.stage(block)
    many = worth_threads(kernel, stage)
    loops = kernel.loops(block)
    panel, some, lane = sch.split(loops[own], [None, tile.vectors, tile.lanes])
    loops[deep], member = sch.split(loops[deep], [None, groups.size])
    outer, depth = [loops[n] for n in stage.spatial if n != own], [loops[n] for n in stage.reduced]
    sch.reorder(*outer, panel, *depth, some, lane, member)
    stored = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(stored, panel)
    for loop in (some, member):
        sch.unroll(loop)
    sch.vectorize(lane)
    sch.vectorize(sch.split(kernel.loops(stored)[-1], [None, tile.lanes])[1])
    if many:
        share_out(kernel, [*outer, panel])
    sch.decompose_reduction(block, depth[0])
    return f"`{stage.block.name}`: vectors of {tile.lanes}, sums of {groups.size} at a time"


def _sum_nest(kernel: Kernel, block: BlockRV) -> str:
    """A sum of integers, of which any order gives the same: some vectors of results at a time in registers, or each of
    them in lanes."""
    sch, stage = kernel.sch, kernel.stage(block)
    loops = kernel.loops(block)
    free = [n for n in stage.spatial if owned(stage, n)]
    vector = vector_place(stage, free)
    many = worth_threads(kernel, stage)
    outer, depth = [loops[n] for n in stage.spatial if n != vector], [loops[n] for n in stage.reduced]
    if vector is None or set(stage.steps_by(vector)) != {1}:
        outer = [loops[n] for n in stage.spatial]
        sch.reorder(*outer, *depth)
        sch.annotate(depth[-1], "reassociate", 1)
        if many and outer:
            share_out(kernel, outer)
        return f"`{stage.block.name}`: in lanes"
    lanes = kernel.facts.lanes(stage.element_bytes)
    first, some, lane = sch.split(loops[vector], [None, kernel.facts.line_bytes // lanes, lanes])
    sch.reorder(*outer, first, *depth, some, lane)
    stored = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(stored, first)
    sch.unroll(some)
    sch.vectorize(lane)
    sch.vectorize(sch.split(kernel.loops(stored)[-1], [None, lanes])[1])
    if many:
        share_out(kernel, [*outer, first])
    sch.decompose_reduction(block, depth[0])
    return f"`{stage.block.name}`: vectors of {lanes}"


# ---------------------------------------------------------------- layouts and loops


def side_by_side(
    given: Sequence[tir.Var], operand: Operand, own: int | None, step: int, depth: Sequence[int], groups: Groups
) -> tuple[tir.Expr, ...]:
    """Return the indices of a packed copy with groups.

    They are other axes, panels of `step` along the loop `own`, the depth, the elements of a panel, and the members of a
    group of each.
    """
    by_place = list(zip(given, operand.places, strict=True))
    outer = [v for v, p in by_place if p != own and p not in depth]
    deep = [c.floordiv(v, groups.size) if p == groups.place else v for v, p in by_place if p in depth]
    member = next(c.floormod(v, groups.size) for v, p in by_place if p == groups.place)
    panel = [v for v, p in by_place if p == own and own is not None]
    tiles, inside = [c.floordiv(v, step) for v in panel], [c.floormod(v, step) for v in panel]
    return (*outer, *tiles, *deep, *inside, member)


def fill(
    kernel: Kernel, copy: BlockRV, operand: Operand, own: int, step: int, groups: Groups, above: int
) -> list[LoopRV]:
    """The loops of a copy `side_by_side`, panel by panel; gives those around panels and over them. Where the operand is
    consecutive along groups, whole lines of it are read at a time."""
    sch = kernel.sch
    loops = kernel.loops(copy)[above:]  # one for each dimension of the operand
    at, deep = operand.places.index(own), operand.places.index(groups.place)
    others = [n for n in range(len(loops)) if n not in (at, deep)]
    panel, element = sch.split(loops[at], [None, step])
    if deep == len(loops) - 1:
        far, near, member = sch.split(loops[deep], [None, kernel.facts.line_bytes // groups.size, groups.size])
        sch.reorder(*(loops[n] for n in others), panel, far, element, near, member)
    else:
        group, member = sch.split(loops[deep], [None, groups.size])
        sch.reorder(*(loops[n] for n in others), panel, group, element, member)
    sch.unroll(member)
    return [*(loops[n] for n in others), panel]
