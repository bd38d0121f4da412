"""Target properties for the generic rules, under the names of TVM's target attributes."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.machine.cpu import features_of
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.target import CudaTarget, LlvmTarget, Target


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """`kind` names the default rules: `llvm`, `vnni`, `avx512`, `asimd`, `dotprod`, `cuda`. `keys` are the keys
    of custom rules. Sizes are in bytes; GPU properties of a CPU are 0."""

    kind: str
    keys: tuple[str, ...]
    num_cores: int = 0
    max_threads_per_block: int = 0
    thread_warp_size: int = 0
    max_shared_memory_per_block: int = 0
    has_async_copies: bool = False

    @staticmethod
    def of(target: Target | str) -> TargetFacts:
        """The facts of a target. Raises CompileError for a text that is no target."""
        target = Target.parse(target)
        if isinstance(target, CudaTarget):
            return _of_gpu(target)
        if isinstance(target, LlvmTarget):
            return TargetFacts(_cpu_kind(target), _cpu_keys(target), CpuFacts.of(target).cores)
        return TargetFacts("llvm", ("cpu",), 1)


def _of_gpu(target: CudaTarget) -> TargetFacts:
    facts = GpuFacts.of(target)
    return TargetFacts(
        "cuda",
        ("cuda", "gpu"),
        max_threads_per_block=facts.max_threads,
        thread_warp_size=facts.warp,
        max_shared_memory_per_block=target.shared_bytes or facts.shared_static,
        has_async_copies=facts.has_cp_async,
    )


def _cpu_kind(target: LlvmTarget) -> str:
    full = target.resolved()
    arch, features = full.arch, features_of(full.triple, full.cpu, full.features)
    if arch == "aarch64":
        return "dotprod" if "dotprod" in features else "asimd"
    if {"avx512vnni", "avxvnni"} & features:
        return "vnni"
    return "avx512" if {"avx512f", "avx512bw"} <= features else "llvm"


def _cpu_keys(target: LlvmTarget) -> tuple[str, ...]:
    return ("arm_cpu", "cpu") if target.arch == "aarch64" else ("cpu",)
