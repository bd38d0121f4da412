"""The CPU model for schedules: vectors, registers, caches and cores of a target's CPU.

The host CPU (`cpu=native`) is queried, known CPUs are in a table, others get the usual values of their architecture;
options of the target override each (`llvm{cpu=znver4 l2=524288}`).
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.machine import host
from mlcc.machine.cpu import features_of, vector_bytes_of
from mlcc.machine.dot_products import Pair, dot_pairs
from mlcc.machine.target import LlvmTarget

_KIB, _MIB = 1 << 10, 1 << 20
_CACHES: dict[str, tuple[int, int, int]] = {  # data caches in KiB as one core sees them; l3 is the share of one cluster
    **dict.fromkeys(("haswell", "broadwell", "skylake"), (32, 256, 8192)),
    **dict.fromkeys(("x86-64-v4", "skylake-avx512", "cascadelake", "cooperlake"), (32, 1024, 16384)),
    **dict.fromkeys(("icelake-client", "tigerlake", "rocketlake"), (48, 512, 12288)),
    "icelake-server": (48, 1280, 24576),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), (48, 2048, 32768)),
    **dict.fromkeys(("alderlake", "raptorlake", "meteorlake", "arrowlake", "lunarlake"), (48, 2048, 16384)),
    **dict.fromkeys(("znver1", "znver2"), (32, 512, 8192)),
    "znver3": (32, 512, 32768),
    "znver4": (32, 1024, 32768),
    "znver5": (48, 1024, 32768),
    **dict.fromkeys(("cortex-a53", "cortex-a55"), (32, 512, 512)),
    **dict.fromkeys(("cortex-a72", "cortex-a76", "cortex-a78"), (64, 512, 4096)),
    **dict.fromkeys(("neoverse-n1", "neoverse-n2", "neoverse-v1", "neoverse-512tvb"), (64, 1024, 32768)),
    "neoverse-v2": (64, 2048, 65536),
    **dict.fromkeys(("apple-m1", "apple-m2", "apple-m3"), (128, 12288, 8192)),
}
_UNITS = {"znver1": 16, "znver4": 32}  # bytes of a vector that are worked on at a time, where that is less than all
_DEFAULT_CACHES = (32, 512, 8192)
_DEFAULT_CORES = 4


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """Sizes in bytes. `cores` run in parallel; `fma`: a multiplication and an addition are one instruction;
    `in_halves`: a whole vector takes as long as two halves. `dots` are the dtypes of operands of which one instruction
    adds up products of neighbours (`mlcc.machine.dot_products`). `panel_bytes`: panels of weights are that wide, or a
    few times that, because versions of the kernel for other CPUs read them too; 0: as wide as a register tile."""

    vector_bytes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    cores: int
    fma: bool
    line_bytes: int = 64
    dots: frozenset[Pair] = frozenset()
    in_halves: bool = False
    panel_bytes: int = 0

    @staticmethod
    def of(target: LlvmTarget | str) -> CpuFacts:
        """The facts of the CPU that a target names. Raises CompileError for a text that is no such target."""
        target = LlvmTarget.parse(target)
        full = target.resolved()
        arch = full.triple.partition("-")[0]
        enabled = features_of(full.triple, full.cpu, full.features)
        vector_bytes, registers = _vectors(arch, enabled)
        if target.is_native:
            known = host.caches()
            l1, l2, l3, line = known.l1, known.l2, known.l3, known.line
            cores = host.num_cores()
        else:
            l1, l2, l3 = (size * _KIB for size in _CACHES.get(full.cpu, _DEFAULT_CACHES))
            line, cores = 64, _DEFAULT_CORES
        return CpuFacts(
            vector_bytes=target.vector_width // 8 or vector_bytes,
            vector_registers=registers,
            l1_bytes=target.l1 or l1,
            l2_bytes=target.l2 or l2,
            l3_bytes=target.l3 or l3,
            cores=target.max_threads or cores,
            fma=arch != "x86_64" or bool({"fma", "fma4", "avx512f"} & enabled),
            line_bytes=line,
            dots=dot_pairs(arch, enabled),
            in_halves=_UNITS.get(full.cpu, vector_bytes) * 2 <= (target.vector_width // 8 or vector_bytes),
        )

    def lanes(self, element_bytes: int) -> int:
        """Elements of one vector."""
        return max(self.vector_bytes // max(element_bytes, 1), 1)

    def panel_columns(self, element_bytes: int, rows: int | None) -> int:
        """Columns of a panel that versions share; 0: as many as a register tile has.

        A whole vector of the widest version: tiles of any other read parts of a line, or several panels. For one row
        memory is what takes the time, and two of them side by side make half as many streams.
        """
        whole = self.panel_bytes // max(element_bytes, 1)
        return whole * 2 if rows == 1 else whole

    @property
    def parallel_operations(self) -> int:
        """Scalar operations below which waking another core costs more than it saves: some microseconds of vectors."""
        return self.lanes(4) * 8192

    def __str__(self) -> str:
        fma = "fma" if self.fma else "no fma"
        halves = " in halves" if self.in_halves else ""
        caches = ", ".join(map(_size, (self.l1_bytes, self.l2_bytes, self.l3_bytes)))
        return (
            f"{self.vector_registers} vectors of {self.vector_bytes} bytes{halves}, {fma}; caches {caches} in lines of"
            f" {self.line_bytes}; {self.cores} cores"
        )


def _vectors(arch: str, enabled: frozenset[str]) -> tuple[int, int]:
    """The bytes of a vector and how many of them there are."""
    scalar_pairs = arch == "riscv64" and "v" not in enabled
    few = scalar_pairs or (arch == "x86_64" and "avx512f" not in enabled)
    return vector_bytes_of(arch, enabled), 16 if few else 32


def _size(size: int) -> str:
    return f"{size // _MIB} MiB" if size >= _MIB and size % _MIB == 0 else f"{size / _KIB:g} KiB"
