"""Options of lowering: limits of unrolling and vectorization, and features of the target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.machine.cpu import features_of, vector_bytes_of
from mlcc.machine.dot_products import Pair, dot_pairs
from mlcc.machine.target import CudaTarget, LlvmTarget, Target

GPU_UNROLL_LIMIT = 1024  # statements that a loop comes to


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Limits of lowering and features of its target.

    Marked loops are unrolled up to `unroll_limit` copies of their innermost statements. Vectorized loops become vectors
    of at most `vector_lanes` lanes, and at most four vector registers of `vector_bytes` (0: unknown).

    `mask_bits` are the element sizes that the target loads and stores under a mask; with `cheap_masks` a masked access
    costs no more than a plain one. `edge_limit` bounds the statements (after unrolling) of bodies copied by loop
    partitioning; 0 copies none. `reassociate`: vectorized float reductions may be reassociated without an annotation.
    `dots` are the operand dtypes of the CPU's dot instructions (`mlcc.machine.dot_products`). `threads`: parallel loops
    may run on several threads. `kernels`: the code is a GPU's, for one of many threads. `narrow_indices`: indices are
    computed in 32 bits where they fit; else those of 64 bits stay, which on a CPU saves conversions.
    """

    unroll_limit: int = 512
    vector_lanes: int = 64
    vector_bytes: int = 0
    mask_bits: frozenset[int] = frozenset({8, 16, 32, 64})
    cheap_masks: bool = True
    edge_limit: int = 512
    reassociate: bool = False
    dots: frozenset[Pair] = frozenset()
    threads: bool = True
    kernels: bool = False
    narrow_indices: bool = True

    def lanes_for(self, body: tuple[tir.Stmt, ...]) -> int:
        """Return the most lanes for a loop with this body: four vectors of its largest elements."""
        if not self.vector_bytes:
            return self.vector_lanes
        accesses = (n for stmt in body for n in find(stmt, tir.BufferLoad, tir.BufferStore))
        largest = max((a.buffer.dtype.element.bytes for a in accesses), default=1)
        return max(2, min(self.vector_lanes, 4 * self.vector_bytes // largest))


_MASKED_SIZES = {  # the sizes of elements that instructions of a feature load and store under a mask
    "avx512bw": (8, 16, 32, 64), "avx512f": (32, 64), "avx2": (32, 64), "sve": (8, 16, 32, 64),
    "v": (8, 16, 32, 64),
}  # fmt: skip


def mask_bits(features: Collection[str]) -> frozenset[int]:
    """Return the element sizes in bits that a CPU with these features loads and stores under a mask."""
    return frozenset(bits for feature, sizes in _MASKED_SIZES.items() if feature in features for bits in sizes)


def plain_lower_options(target: Target) -> LowerOptions:
    """Return the default options of lowering."""
    return LowerOptions()


def source_lower_options(target: Target) -> LowerOptions:
    """Return the options of lowering for C source, whose compiler chooses vectors, and which has no threads."""
    return LowerOptions(threads=False)


def gpu_lower_options(target: CudaTarget) -> LowerOptions:
    """Return the options of lowering for a GPU."""
    return LowerOptions(unroll_limit=GPU_UNROLL_LIMIT, vector_lanes=16, vector_bytes=16, kernels=True)


def cpu_lower_options(target: LlvmTarget) -> LowerOptions:
    """Return the options of lowering for a CPU target, by its features."""
    full = target.resolved()
    features = features_of(full.triple, full.cpu, full.features)
    options = cpu_options(full.triple.partition("-")[0], features)
    return replace(options, reassociate=target.fast_math, threads=target.max_threads != 1)


def cpu_options(arch: str, features: frozenset[str]) -> LowerOptions:
    """Return the options of lowering for a CPU with these LLVM feature names."""
    return LowerOptions(
        vector_bytes=vector_bytes_of(arch, features),
        mask_bits=mask_bits(features), cheap_masks="avx512f" in features, dots=dot_pairs(arch, features),
        narrow_indices=False,
    )  # fmt: skip
