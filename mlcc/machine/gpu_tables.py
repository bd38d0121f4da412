"""The GPU model for schedules: threads, registers, shared memory and multiprocessors of a target's GPU.

The architecture fixes most values (CUDA programming guide, "Compute Capabilities"); the number of multiprocessors and
the second-level cache are those of its usual large device. Options of the target override each
(`cuda{arch=sm_86 sm-count=46}`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.machine.gpu import Arch
from mlcc.machine.target import CudaTarget

_KIB, _MIB = 1 << 10, 1 << 20
WARP = 32

# capability -> KiB of shared memory of a block and of a multiprocessor, threads and blocks of a multiprocessor,
# multiprocessors and MiB of second-level cache of a usual device
_TABLE: dict[tuple[int, int], tuple[int, int, int, int, int, int]] = {
    (7, 5): (64, 64, 1024, 16, 40, 4),  # T4
    (8, 0): (163, 164, 2048, 32, 108, 40),  # A100
    (8, 6): (99, 100, 1536, 16, 84, 6),  # A40
    (8, 7): (163, 164, 1536, 16, 16, 4),  # Orin
    (8, 9): (99, 100, 1536, 24, 128, 72),  # RTX 4090
    (9, 0): (227, 228, 2048, 32, 132, 50),  # H100
    (10, 0): (227, 228, 2048, 32, 148, 126),  # B200
    (10, 3): (227, 228, 2048, 32, 148, 126),  # B300
    (11, 0): (227, 228, 1536, 24, 20, 32),  # Thor
    (12, 0): (99, 100, 1536, 24, 170, 96),  # RTX 5090
    (12, 1): (99, 100, 1536, 24, 48, 24),  # GB10
}


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Sizes in bytes; `sm` is a multiprocessor. `shared_static` is what a block may have declared in its kernel,
    `shared_per_block` what it may ask for at a launch. `registers_per_sm` are of 32 bits.

    `mma_types` are the dtypes of operands that `mma.sync` multiplies; `has_*`: asynchronous copies into shared memory
    (cp.async), bulk copies of tensors (TMA), matrix products of four warps (wgmma, of `a` variants only), products in
    tensor memory (tcgen05), thread block clusters. `tf32`: the target admits products of float32 as tf32.
    """

    arch: Arch
    sm_count: int
    max_threads: int
    threads_per_sm: int
    blocks_per_sm: int
    registers_per_sm: int
    registers_per_thread: int
    shared_static: int
    shared_per_block: int
    shared_per_sm: int
    l2_bytes: int
    mma_types: frozenset[str]
    has_cp_async: bool
    has_tma: bool
    has_wgmma: bool
    has_tcgen05: bool
    has_clusters: bool
    tf32: bool
    warp: int = WARP

    @staticmethod
    def of(target: CudaTarget | str) -> GpuFacts:
        """The facts of the GPU that a target names. Raises CompileError for a text that is no such target (E0790 on),
        or an architecture that is not known (E0731)."""
        target = CudaTarget.parse(target).resolved()
        arch = Arch.of(target.arch)
        block, per_sm, threads, blocks, count, l2 = _TABLE[arch.capability]
        special = arch.variant != ""
        return GpuFacts(
            arch=arch,
            sm_count=target.sm_count or count,
            max_threads=target.max_threads or 1024,
            threads_per_sm=threads,
            blocks_per_sm=blocks,
            registers_per_sm=target.registers or 65536,
            registers_per_thread=255,
            shared_static=48 * _KIB,
            shared_per_block=target.shared_bytes or block * _KIB,
            shared_per_sm=per_sm * _KIB,
            l2_bytes=target.l2 or l2 * _MIB,
            mma_types=_mma_types(arch),
            has_cp_async=arch.number >= 80,
            has_tma=arch.number >= 90,
            has_wgmma=arch.name == "sm_90a",
            has_tcgen05=special and arch.number in (100, 103, 110),
            has_clusters=arch.number >= 90,
            tf32=target.tf32,
        )

    @property
    def warps_per_sm(self) -> int:
        return self.threads_per_sm // WARP

    def blocks_at_once(self, threads: int, registers: int, shared: int) -> int:
        """Return the occupancy: resident blocks on a multiprocessor, by threads, registers a thread, shared bytes."""
        warps = -(-threads // WARP)
        by_registers = self.registers_per_sm // max(-(-registers // 8) * 8 * WARP * warps, 1)
        by_shared = self.shared_per_sm // (shared + _KIB)  # the system keeps a KiB of each block
        return max(min(self.blocks_per_sm, self.warps_per_sm // max(warps, 1), by_registers, by_shared), 0)

    def __str__(self) -> str:
        return (
            f"{self.sm_count} multiprocessors of {self.threads_per_sm} threads, {self.registers_per_sm} registers and"
            f" {self.shared_per_sm // _KIB} KiB of shared memory ({self.shared_per_block // _KIB} of a block); L2"
            f" {self.l2_bytes // _MIB} MiB"
        )


def _mma_types(arch: Arch) -> frozenset[str]:
    types = {"float16", "int8", "uint8"}
    if arch.number >= 80:
        types |= {"bfloat16", "tfloat32", "float64"}
    if arch.number >= 89:
        types |= {"float8_e4m3fn", "float8_e5m2"}
    return frozenset(types)
