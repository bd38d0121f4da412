"""Emulate an artifact in a file: its kernels are read from the source text that it contains.

PTX is not read. The text must agree with the kernels of the launch plan.
"""

from __future__ import annotations

from typing import Any

import mlcc
from mlcc.errors import CompileError, LoadError, error
from mlcc.grammar.parser import parse
from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.gpu.device import DeviceKernel, is_kernel
from mlcc.recursion import FRAMES_WITH_C, deep_recursion, gc_disabled
from mlcc.runtime.launch.files import SOURCE, ArtifactContents
from mlcc.targets.emulate.device import EmulatedDevice
from mlcc.targets.launch.program import launch_signature

_RECOMPILE = "compile it again with this mlcc, or emulate the text: `mlcc run model.mlc -t cuda --emulate`"


def emulator(parts: ArtifactContents, path: str | None, check: bool) -> EmulatedDevice:
    """Return a device with the kernels of an artifact. Raises LoadError."""
    return EmulatedDevice(kernels_of(parts, path), check, GpuFacts.of(str(parts.manifest["target"].get("text"))))


def kernels_of(parts: ArtifactContents, path: str | None) -> list[DeviceKernel]:
    """Return the lowered kernels of an artifact. Raises LoadError E0748 if they cannot be recovered."""
    version = parts.manifest.get("mlcc", {}).get("version")
    if version != mlcc.__version__:
        text = f"the artifact was made by mlcc {version} and cannot be emulated by {mlcc.__version__}"
        raise LoadError(error("E0748", text, help=_RECOMPILE))
    if not parts.source:
        raise LoadError(
            error(
                "E0748", "the artifact does not contain the text of its kernels, which emulation needs", help=_RECOMPILE
            )
        )
    kernels = {k.name: k for k in _parse_kernels(parts.source, SOURCE if path is None else f"{path}/{SOURCE}")}
    planned = parts.plan.get("kernels")
    # the reader of the plan reports other errors
    for name, entry in planned.items() if isinstance(planned, dict) else ():
        if name not in kernels or not _matches(launch_signature(kernels[name]), entry):
            raise LoadError(
                error(
                    "E0748",
                    f"the text of kernel `{name}` in the artifact does not match its launch plan",
                    help=_RECOMPILE,
                )
            )
    return list(kernels.values())


def _parse_kernels(source: bytes, name: str) -> list[DeviceKernel]:
    try:
        with deep_recursion(FRAMES_WITH_C), gc_disabled():
            functions = parse(source, name).functions.items()
            return [DeviceKernel.of(n, f) for n, f in functions if isinstance(f, tir.PrimFunc) and is_kernel(f)]
    except CompileError as exc:
        first = exc.diagnostics[0].message
        raise LoadError(error("E0748", f"the text of its kernels cannot be read: {first}", help=_RECOMPILE)) from None


def _matches(form: dict[str, Any], entry: Any) -> bool:
    return isinstance(entry, dict) and all(entry.get(key) == value for key, value in form.items())
