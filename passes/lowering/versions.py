"""What passes know of the machine for one function: a version of a kernel is for another CPU than the target's."""

from __future__ import annotations

from dataclasses import replace

from mlcc import backends
from mlcc.backends import facts_of
from mlcc.ir import tir
from mlcc.ir.versions import PANEL_BYTES, cpu_of
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.machine.target import LlvmTarget, Target
from mlcc.passes.lowering.options import LowerOptions


def version_target(target: Target, cpu: str | None) -> Target:
    """The target of functions for a CPU; the module's own of those for None, which are no versions."""
    return target if cpu is None or not isinstance(target, LlvmTarget) else target.for_version(cpu)


def function_facts(func: tir.PrimFunc, target: Target) -> CpuFacts | GpuFacts:
    """What the schedule of a function is chosen by."""
    facts = facts_of(version_target(target, cpu_of(func)))
    panel = func.attrs.get(PANEL_BYTES)
    return replace(facts, panel_bytes=panel) if isinstance(panel, int) and isinstance(facts, CpuFacts) else facts


def version_options(target: Target, cpu: str | None) -> LowerOptions:
    """What the steps of lowering may count on for functions for a CPU."""
    return backends.of(target).lower_options(version_target(target, cpu))
