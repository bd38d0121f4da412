"""Kernels that the rules for GPUs make, run under emulation with all checks, and what they ask of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import mlcc
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.targets.cuda import ptxas
from mlcc.targets.emulate.report import KernelReport, MeasuringDevice
from tests.auto_schedule.kernels import arguments, chosen, lowered

GPU = "cuda{arch=sm_90}"


@dataclass(frozen=True)
class Costs:
    """What rules took the functions of a graph, and the launches of a run; `ideal` are the sectors that all arguments
    and results fill."""

    rules: list[str | None]
    kernels: list[KernelReport]
    ideal: int
    ptx: str

    @property
    def sectors(self) -> float:
        """Of global memory."""
        return sum(k.total("global")[0] for k in self.kernels)

    @property
    def conflicts(self) -> int:
        """Passes over the banks of shared memory beyond the least."""
        return sum(a.units - a.least for k in self.kernels for a in k.accesses if a.scope != "global")

    def spills(self, arch: str = "sm_90") -> int:
        """Bytes, of memory that should have been registers too; 0 where there is no assembler."""
        if ptxas.find_ptxas() is None:
            return 0
        return sum(a.stack + a.spill_stores + a.spill_loads for a in ptxas.assemble(self.ptx, arch).values())


def costs_of(text: str, sizes: dict[str, int] | None = None, target: str = GPU, tolerance: float = 1e-4) -> Costs:
    """Schedules the kernels of a graph, compares what they compute with the CPU, and says what they cost."""
    mod = lowered(text)
    found = chosen(mod, target).values()
    made = mod.copy()
    for one in found:
        if one.func is not None:
            made.update_func(one.name, one.func)
    args = arguments(mod, sizes=sizes)
    artifact = mlcc.build(made, target, pipeline="lower-to-tir")
    want = mlcc.load(mlcc.build(mod, "llvm{cpu=native}", opt_level=1, pipeline="lower-to-tir"))["main"](*args)
    device = MeasuringDevice(artifact.launch.kernels, GpuFacts.of(target))
    have = mlcc.runtime.loader.load(artifact, device=device)["main"](*args)
    assert not device.report.findings
    results = list(have) if isinstance(have, (tuple, list)) else [have]
    for one, other in zip(results, want if isinstance(want, (tuple, list)) else [want], strict=True):
        np.testing.assert_allclose(one.astype("float64"), other.astype("float64"), rtol=tolerance, atol=tolerance)
    ideal = sum(-(-a.nbytes // 32) for a in (*args, *results))
    return Costs([a.rule for a in found], list(device.report.kernels.values()), ideal, artifact.emit("ptx").decode())
