"""Products of a matrix with one or a few vectors (skinny GEMM, GEMV): what the GPU rules for them share.

Each element of the matrix is used only a few times, so memory bandwidth bounds the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from mlcc.ir import tir
from mlcc.passes.auto_schedule.contraction import Contraction, Operand
from mlcc.passes.auto_schedule.gpu.nests import VECTOR_BYTES
from mlcc.passes.auto_schedule.kernel import GpuKernel, not_applicable
from mlcc.passes.auto_schedule.products import only_product
from mlcc.passes.auto_schedule.widen_half import compute_halves_in_float32
from mlcc.passes.schedule.handles import BlockRV, LoopRV

MAX_VECTORS = 16  # vectors that a thread accumulates sums for, at most
MAX_SUMS = 64  # accumulators of a thread, at most


@dataclass(frozen=True)
class SkinnyGemm:
    """A product of `matrix` with few `vectors`. Axes are positions of loops, grouped by the operands that they index.

    `shared_axes` index both operands, `matrix_axes` only the matrix (in memory order), `vector_axes` only the vectors;
    `reduce_axes` are the reduction axes.
    """

    block: BlockRV
    product: Contraction
    matrix: Operand
    vectors: Operand
    shared_axes: tuple[int, ...]
    matrix_axes: tuple[int, ...]
    vector_axes: tuple[int, ...]
    reduce_axes: tuple[int, ...]
    results: tuple[int, ...]  # the axis of each dimension of the result

    @property
    def count(self) -> int:
        """The number of vectors."""
        return self.product.count(self.vector_axes) or 1

    @property
    def lanes(self) -> int:
        """The elements of the matrix per vector access: the most that are provably contiguous and aligned."""
        lanes = max(VECTOR_BYTES // self.matrix.buffer.dtype.bytes, 1)
        last = self.product.contiguous_axis(self.matrix)
        size = None if last is None else self.product.stage.extents[last]
        row = tir.const_int(self.matrix.buffer.shape[-1])
        while lanes > 1 and (size is None or row is None or size % lanes or row % lanes):
            lanes //= 2
        return lanes


def match_skinny_gemm(kernel: GpuKernel) -> SkinnyGemm:
    """Match a kernel's only product as a matrix times few vectors. Raise RuleNotApplicable for any other kernel."""
    compute_halves_in_float32(kernel)
    block, product = only_product(kernel)
    stage = product.stage

    def own_axes(operand: Operand, other: Operand) -> tuple[int, ...]:
        return tuple(p for p in operand.places if p in stage.spatial and not other.has(p))

    candidates = [(product.rhs, product.lhs), (product.lhs, product.rhs)]
    sizes = [product.count(own_axes(matrix_operand, other)) for matrix_operand, other in candidates]
    is_small = [size is not None and size <= MAX_VECTORS for size in sizes]
    if is_small[1] and (not is_small[0] or (sizes[0] or 0) >= (sizes[1] or 0)):
        matrix, vectors = candidates[0]
    elif is_small[0]:
        matrix, vectors = candidates[1]
    else:
        not_applicable("both operands are matrices")
    matrix_axes, vector_axes = own_axes(matrix, vectors), own_axes(vectors, matrix)
    shared_axes = tuple(p for p in stage.spatial if p not in (*matrix_axes, *vector_axes))
    reduce_axes = tuple(sorted(product.k, key=lambda p: matrix.places.index(p)))
    if not matrix_axes or (product.count(matrix_axes) or MAX_VECTORS) < MAX_VECTORS:
        not_applicable("there are few results")
    axis_of_var = {loop.var: n for n, loop in enumerate(stage.loops)}
    results = tuple(axis_of_var.get(i, -1) for i in stage.accesses[-1].indices)  # type: ignore[call-overload]
    if sorted(results) != list(stage.spatial):
        not_applicable("results are not indexed by axes alone")
    return SkinnyGemm(block, product, matrix, vectors, shared_axes, matrix_axes, vector_axes, reduce_axes, results)


def reorder_by_role(kernel: GpuKernel, gemm: SkinnyGemm) -> tuple[list[LoopRV], LoopRV, list[LoopRV], LoopRV]:
    """Reorder the loops by role; return the shared loops, the matrix loop, the vector loops, and the reduction loop.

    The matrix loops are fused into one, and so are the reduction loops.
    """
    sch, loops = kernel.sch, kernel.loops(gemm.block)
    parts = [
        [loops[p] for p in positions]
        for positions in (gemm.shared_axes, gemm.matrix_axes, gemm.vector_axes, gemm.reduce_axes)
    ]
    sch.reorder(*(loop for part in parts for loop in part))
    matrix_loop, reduce_loop = (sch.fuse(*part) if len(part) > 1 else part[0] for part in (parts[1], parts[3]))
    return parts[0], matrix_loop, parts[2], reduce_loop


def blocks_for(gemm: SkinnyGemm, columns: int) -> int:
    """Return the number of thread blocks, each with `columns` elements of the matrix axes.

    An unknown extent counts as 4096, that of shared axes as 16.
    """
    extents = [1 << 12 if (n := gemm.product.stage.extents[p]) is None else n for p in gemm.matrix_axes]
    return -(-prod(extents) // columns) * (gemm.product.count(gemm.shared_axes) or 16)
