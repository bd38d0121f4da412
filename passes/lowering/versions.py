"""The target and machine facts of one function: a kernel version (multiversioning) has its own CPU."""

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
    """Return the target of a version for `cpu`; the module's target if `cpu` is None (not a version)."""
    return target if cpu is None or not isinstance(target, LlvmTarget) else target.for_version(cpu)


def function_facts(func: tir.PrimFunc, target: Target) -> CpuFacts | GpuFacts:
    """Return the machine facts by which the schedule of a function is chosen."""
    facts = facts_of(version_target(target, cpu_of(func)))
    panel = func.attrs.get(PANEL_BYTES)
    return replace(facts, panel_bytes=panel) if isinstance(panel, int) and isinstance(facts, CpuFacts) else facts


def version_options(target: Target, cpu: str | None) -> LowerOptions:
    """Return the options of lowering for functions of one CPU version."""
    return backends.of(target).lower_options(version_target(target, cpu))
