"""Products of a matrix with one vector or few: the shared part of the rules for them.

Each element of the matrix is used a few times only, so that the time is that of reading it from memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_this
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.widen_half import compute_halves_in_float32
from mlcc.passes.schedule.handles import BlockRV, LoopRV

FEW = 16  # vectors for which a thread has a sum each
SUMS = 64  # registers of a thread for its sums


@dataclass(frozen=True)
class Skinny:
    """A product of `matrix` with some `vectors`; its loops are given as places, by the operands that have their axes.

    `both` operands have the first ones, the matrix alone `wide` (in the order of memory), the vectors alone `few`;
    `deep` are the reduction axes.
    """

    block: BlockRV
    product: Contraction
    matrix: Operand
    vectors: Operand
    both: tuple[int, ...]
    wide: tuple[int, ...]
    few: tuple[int, ...]
    deep: tuple[int, ...]
    results: tuple[int, ...]  # of each dimension of the result

    @property
    def count(self) -> int:
        """The number of vectors."""
        return self.product.count(self.few) or 1

    @property
    def lanes(self) -> int:
        """The elements of the matrix per access: as many as are surely contiguous and aligned."""
        lanes = max(VECTOR_BYTES // self.matrix.buffer.dtype.bytes, 1)
        last = self.product.consecutive(self.matrix)
        size = None if last is None else self.product.stage.extents[last]
        row = tir.const_int(self.matrix.buffer.shape[-1])
        while lanes > 1 and (size is None or row is None or size % lanes or row % lanes):
            lanes //= 2
        return lanes


def skinny(kernel: GpuKernel) -> Skinny:
    """Match a kernel's only product, of a matrix and few vectors. Raise NotThis for another kernel."""
    compute_halves_in_float32(kernel)
    block, product = only_product(kernel)
    stage = product.stage

    def own(operand: Operand, other: Operand) -> tuple[int, ...]:
        return tuple(p for p in operand.places if p in stage.spatial and not other.has(p))

    sides = [(product.rhs, product.lhs), (product.lhs, product.rhs)]
    sizes = [product.count(own(one, other)) for one, other in sides]
    small = [size is not None and size <= FEW for size in sizes]
    if small[1] and (not small[0] or (sizes[0] or 0) >= (sizes[1] or 0)):
        matrix, vectors = sides[0]
    elif small[0]:
        matrix, vectors = sides[1]
    else:
        not_this("both operands are matrices")
    wide, few = own(matrix, vectors), own(vectors, matrix)
    both = tuple(p for p in stage.spatial if p not in (*wide, *few))
    deep = tuple(sorted(product.k, key=lambda p: matrix.places.index(p)))
    if not wide or (product.count(wide) or FEW) < FEW:
        not_this("there are few results")
    of_loop = {loop.var: n for n, loop in enumerate(stage.loops)}
    results = tuple(of_loop.get(i, -1) for i in stage.accesses[-1].indices)  # type: ignore[call-overload]
    if sorted(results) != list(stage.spatial):
        not_this("results are not stored by axes alone")
    return Skinny(block, product, matrix, vectors, both, wide, few, deep, results)


def in_order(kernel: GpuKernel, it: Skinny) -> tuple[list[LoopRV], LoopRV, list[LoopRV], LoopRV]:
    """The loops of the product by their parts: those of both, the wide ones as one, the few, the deep ones as one."""
    sch, loops = kernel.sch, kernel.loops(it.block)
    parts = [[loops[p] for p in places] for places in (it.both, it.wide, it.few, it.deep)]
    sch.reorder(*(loop for part in parts for loop in part))
    wide, deep = (sch.fuse(*part) if len(part) > 1 else part[0] for part in (parts[1], parts[3]))
    return parts[0], wide, parts[2], deep


def blocks_for(it: Skinny, columns: int) -> int:
    """Return the number of thread blocks, with `columns` elements of the wide axes each.

    Unknown extents are taken to be large.
    """
    known = [1 << 12 if (n := it.product.stage.extents[p]) is None else n for p in it.wide]
    return -(-prod(known) // columns) * (it.product.count(it.both) or 16)
