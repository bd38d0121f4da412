"""Bounds on what lowering makes of annotated loops, and what it may count on."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from mlcc.ir import tir
from mlcc.ir.node import find
from mlcc.machine.cpu import features_of
from mlcc.machine.dot_products import Pair, dot_pairs
from mlcc.machine.target import CudaTarget, LlvmTarget, Target

GPU_UNROLL_LIMIT = 1024  # statements that a loop comes to


@dataclass(frozen=True, slots=True)
class LowerOptions:
    """Loops marked for unrolling are unrolled up to `unroll_limit` copies of their innermost statements; vectorized
    loops become vectors of up to `vector_lanes` lanes, and of no more than four vectors of `vector_bytes` (0: unknown).

    `mask_bits` are the sizes of elements that the target loads and stores under a mask of lanes; with `cheap_masks` at
    no more than the cost of doing it without. `edge_limit` bounds the statements (as unrolled) of code that is copied
    to be free of conditions; 0 copies none. `reassociate`: vectorized reductions of floats need not ask for it.
    `dots` are the dtypes of operands of which the CPU adds up products of neighbours (`mlcc.machine.dot_products`).
    `threads`: parallel loops may run on several. `kernels`: the code is a GPU's, for one of many threads.
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

    def lanes_for(self, body: tuple[tir.Stmt, ...]) -> int:
        """Return the most lanes for a loop with this body: four vectors of its largest elements."""
        if not self.vector_bytes:
            return self.vector_lanes
        accesses = (n for stmt in body for n in find(stmt, tir.BufferLoad, tir.BufferStore))
        largest = max((a.buffer.dtype.element.bytes for a in accesses), default=1)
        return max(2, min(self.vector_lanes, 4 * self.vector_bytes // largest))


_MASKED = {  # the sizes of elements that instructions of a feature load and store under a mask
    "avx512bw": (8, 16, 32, 64), "avx512f": (32, 64), "avx2": (32, 64), "sve": (8, 16, 32, 64),
}  # fmt: skip


def mask_bits(features: Collection[str]) -> frozenset[int]:
    """Return the element sizes in bits that a CPU with these features loads and stores under a mask."""
    return frozenset(bits for feature, sizes in _MASKED.items() if feature in features for bits in sizes)


def plain_lower_options(target: Target) -> LowerOptions:
    """Return the default options of lowering."""
    return LowerOptions()


def gpu_lower_options(target: CudaTarget) -> LowerOptions:
    """Return the options of lowering for a GPU."""
    return LowerOptions(unroll_limit=GPU_UNROLL_LIMIT, vector_lanes=16, vector_bytes=16, kernels=True)


def cpu_lower_options(target: LlvmTarget) -> LowerOptions:
    """Return the options of lowering for a CPU target, by its features."""
    full = target.resolved()
    features = features_of(full.triple, full.cpu, full.features)
    options = cpu_options(full.triple.partition("-")[0], features)
    return replace(options, reassociate=target.fast_math, threads=target.num_cores != 1)


def cpu_options(arch: str, features: frozenset[str]) -> LowerOptions:
    """Return the options of lowering for a CPU with these LLVM feature names."""
    return LowerOptions(
        vector_bytes=64 if "avx512f" in features else 32 if "avx" in features else 16,
        mask_bits=mask_bits(features), cheap_masks="avx512f" in features, dots=dot_pairs(arch, features),
    )  # fmt: skip
