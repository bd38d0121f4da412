"""The CPU model for schedules of portable C: what nearly every CPU with a vector unit has."""

from __future__ import annotations

from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.target import CTarget

_KIB = 1 << 10


def portable_facts(target: CTarget) -> CpuFacts:
    """Return a CPU with one core, 16 vector registers of 16 bytes, and small caches."""
    return CpuFacts(
        vector_bytes=16,
        vector_registers=16,
        l1_bytes=32 * _KIB,
        l2_bytes=256 * _KIB,
        l3_bytes=1024 * _KIB,
        cores=1,
        fma=False,
    )
