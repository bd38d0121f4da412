"""Versions of a kernel for several CPUs: functions of a module, told by attributes.

A PrimFunc with versions names them in `mlcc.versions`; each is a private PrimFunc that computes the same, and says in
`mlcc.cpu` which CPU it is for. Callers name the first; the object picks a version when it is first called. With
`mlcc.panel_bytes` the panels that they all read are that wide.
"""

from __future__ import annotations

from mlcc.ir import relax, tir

VERSIONS, CPU, PANEL_BYTES = "mlcc.versions", "mlcc.cpu", "mlcc.panel_bytes"


def version_names(func: tir.PrimFunc | relax.Function) -> tuple[str, ...]:
    """Return the names of the functions that are versions of one."""
    named = func.attrs.get(VERSIONS, ())
    return tuple(map(str, named)) if isinstance(named, tuple) else ()


def cpu_of(func: tir.PrimFunc | relax.Function) -> str | None:
    """Return the CPU that a version is for; None for a function that is not a version."""
    cpu = func.attrs.get(CPU)
    return None if cpu is None else str(cpu)
