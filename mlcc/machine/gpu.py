"""Supported NVIDIA architectures: the PTX ISA that each needs, and the drivers that load it.

LLVM aborts the process for unsupported architectures, so only listed ones are passed to it. Each was tested with LLVM's
default PTX ISA, the lowest one for the architecture, and assembled by ptxas 13.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.errors import CompileError, error

DEFAULT_ARCH = "sm_80"

# architecture -> PTX ISA
ISA: dict[str, tuple[int, int]] = {
    "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4), "sm_89": (7, 8), "sm_90": (7, 8),
    "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8), "sm_103": (8, 8), "sm_103a": (8, 8),
    "sm_103f": (8, 8), "sm_110": (9, 0), "sm_110a": (9, 0), "sm_110f": (9, 0), "sm_120": (8, 7), "sm_120a": (8, 7),
    "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8), "sm_121f": (8, 8),
}  # fmt: skip

# PTX ISA -> first CUDA release, and the oldest Linux driver of that release (release notes, table 3)
DRIVERS: dict[tuple[int, int], tuple[str, str]] = {
    (6, 3): ("10.0", "410.48"), (7, 0): ("11.0", "450.36.06"), (7, 1): ("11.1", "455.23"),
    (7, 4): ("11.4", "470.42.01"), (7, 8): ("11.8", "520.61.05"), (8, 0): ("12.0", "525.60.13"),
    (8, 6): ("12.7", "565.57.01"), (8, 7): ("12.8", "570.26"), (8, 8): ("12.9", "575.51.03"),
    (9, 0): ("13.0", "580.65.06"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Arch:
    """An architecture. `variant` is empty, `a` (architecture-specific features) or `f` (family-specific ones)."""

    name: str
    capability: tuple[int, int]
    variant: str
    isa: tuple[int, int]

    @staticmethod
    def of(name: str) -> Arch:
        """Return the architecture of a name. Raises CompileError (E0731) for one that is not listed."""
        isa = ISA.get(name)
        if isa is None:
            raise CompileError(error("E0731", f"unsupported GPU architecture `{name}`", help=_suggestion(name)))
        number = name[3:].rstrip("af")
        return Arch(name, (int(number[:-1]), int(number[-1])), name[3 + len(number) :], isa)

    @property
    def driver(self) -> tuple[str, str]:
        """Return the CUDA version that a driver must support to load the code, and the first such driver."""
        return DRIVERS[self.isa]

    @property
    def runs_on(self) -> str:
        """Describe the compute capabilities that run the code."""
        major, minor = self.capability
        if self.variant == "a":
            return f"compute capability {major}.{minor} only"
        if self.variant == "f":
            return f"compute capability {major}.{minor} and later ones of {major}.x"
        return f"compute capability {major}.{minor} and later"

    def fits(self, capability: tuple[int, int]) -> bool:
        """Return True if a device of this compute capability runs the code (its driver compiles the PTX)."""
        if self.variant == "a":
            return capability == self.capability
        if self.variant == "f":
            return capability[0] == self.capability[0] and capability >= self.capability
        return capability >= self.capability

    @property
    def number(self) -> int:
        """Return the number of the architecture: 80 for sm_80, 120 for sm_120a."""
        return self.capability[0] * 10 + self.capability[1]

    @property
    def abilities(self) -> frozenset[str]:
        """Return the features that code generation queries. `bf16`: conversions between bfloat16 and float32."""
        return frozenset({"bf16"}) if self.number >= 80 else frozenset()


def best_for(capability: tuple[int, int]) -> str:
    """Return the best listed architecture for a device: its own variant `a`, else the greatest one not above it.

    For a device below all listed architectures it is the smallest one.
    """
    number = capability[0] * 10 + capability[1]
    exact = f"sm_{number}a"
    return exact if exact in ISA else _greatest_at_most(number)


def _greatest_at_most(number: int) -> str:
    architectures = {int(name[3:]): name for name in ISA if name[3:].isdigit()}
    return architectures[max((n for n in architectures if n <= number), default=min(architectures))]


def _suggestion(name: str) -> str:
    """Return a hint with the greatest architecture that is not above the name, and all listed ones."""
    return f"did you mean `{_greatest_at_most(int(name[3:].rstrip('af')))}`? Known are {', '.join(ISA)}"
