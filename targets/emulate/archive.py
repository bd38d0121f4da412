"""Emulating an artifact that lies in a file: its kernels are read from the text that it holds.

PTX is not read for this. The text of the kernels that it was made from is in the file; what the launch plan says of
them is compared.
"""

from __future__ import annotations

from typing import Any

import mlcc
from mlcc.errors import CompileError, LoadError, error
from mlcc.grammar.parser import parse
from mlcc.ir import tir
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.gpu.device import DeviceKernel, is_kernel
from mlcc.recursion import MIXED, deep_recursion, uncollected
from mlcc.runtime.launch.files import SOURCE, Parts
from mlcc.targets.emulate.device import EmulatedDevice
from mlcc.targets.launch.program import kernel_form

_AGAIN = "compile it again with this mlcc, or emulate the text: `mlcc run model.mlc -t cuda --emulate`"


def emulator(parts: Parts, path: str | None, check: bool) -> EmulatedDevice:
    """A device with the kernels of an artifact. Raises LoadError."""
    return EmulatedDevice(kernels_of(parts, path), check, GpuFacts.of(str(parts.manifest["target"].get("text"))))


def kernels_of(parts: Parts, path: str | None) -> list[DeviceKernel]:
    """The kernels of an artifact as they were lowered. Raises LoadError E0748 where that cannot be told."""
    version = parts.manifest.get("mlcc", {}).get("version")
    if version != mlcc.__version__:
        text = f"made by mlcc {version}, and only that can emulate it: this is {mlcc.__version__}"
        raise LoadError(error("E0748", text, help=_AGAIN))
    if not parts.source:
        raise LoadError(error("E0748", "the text of its kernels, which is what is emulated, is not in it", help=_AGAIN))
    kernels = {k.name: k for k in _read(parts.source, SOURCE if path is None else f"{path}/{SOURCE}")}
    listed = parts.plan.get("kernels")
    # the reader of the plan reports other errors
    for name, facts in listed.items() if isinstance(listed, dict) else ():
        if name not in kernels or not _fits(kernel_form(kernels[name]), facts):
            raise LoadError(error("E0748", f"the text in it gives another kernel `{name}` than it has", help=_AGAIN))
    return list(kernels.values())


def _read(source: bytes, name: str) -> list[DeviceKernel]:
    try:
        with deep_recursion(MIXED), uncollected():
            functions = parse(source, name).functions.items()
            return [DeviceKernel.of(n, f) for n, f in functions if isinstance(f, tir.PrimFunc) and is_kernel(f)]
    except CompileError as exc:
        first = exc.diagnostics[0].message
        raise LoadError(error("E0748", f"the text of its kernels cannot be read: {first}", help=_AGAIN)) from None


def _fits(form: dict[str, Any], facts: Any) -> bool:
    return isinstance(facts, dict) and all(facts.get(key) == value for key, value in form.items())
