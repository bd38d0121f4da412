"""The artifact of a build for CUDA: PTX with its launch plan and constants."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mlcc.array_files import npz_bytes
from mlcc.errors import CompileError, error
from mlcc.files import Content
from mlcc.ir.tensor_data import TensorData
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.outputs import Outputs, check_suffix, is_stream, kind_of, ownership_comment
from mlcc.runtime.abi import PLACEHOLDER_PREFIX
from mlcc.runtime.launch.files import ArtifactContents, write_archive, write_text
from mlcc.targets.artifact import Artifact
from mlcc.targets.cuda.backend import BACKEND
from mlcc.targets.cuda.ptx import PtxModule
from mlcc.targets.cuda.ptxas import KernelResources, PtxasError, assemble
from mlcc.targets.launch import LaunchModule
from mlcc.targets.plan.exports import c_identifier
from mlcc.targets.plan.steps import HostFunction
from mlcc.targets.source import LANGUAGES, emit_source

if TYPE_CHECKING:
    from mlcc.targets.emulate.device import EmulatedDevice

KINDS = {kind.name: kind for kind in BACKEND.outputs}


@dataclass(eq=False, repr=False)
class CudaArtifact(Artifact):
    """Kernels for a GPU, and the launch plan of the host."""

    code: PtxModule
    launch: LaunchModule
    prefix: str | None = None
    loadable: ClassVar[str] = BACKEND.loadable.name

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the artifact; see `docs/cuda.md`."""
        return self._facts(self._prefix(None))

    @property
    def plans(self) -> tuple[HostFunction, ...]:
        return self.launch.planned

    @property
    def plan(self) -> dict[str, Any]:
        """Return the launch plan."""
        return self.launch.plan

    def emulator(self, check: bool = True) -> EmulatedDevice:
        """Return a device that emulates the kernels on the CPU."""
        from mlcc.targets.emulate.device import EmulatedDevice

        return EmulatedDevice(self.launch.kernels, check, GpuFacts.of(self.launch.facts["target"]["text"]))

    def assembled(self) -> dict[str, KernelResources]:
        """Return the resources that ptxas reports for each kernel, by name; empty if it is missing or fails."""
        try:
            resources = assemble(self.code.text, self.code.arch.name)
        except PtxasError:
            return {}
        by_name = {name: resources.get(facts.symbol) for name, facts in self.code.kernels.items()}
        return {name: known for name, known in by_name.items() if known is not None}

    def save(
        self, path: str | os.PathLike[str], emit: str | None = None, *, data: str | os.PathLike[str] | None = None,
        force: bool = False,
    ) -> None:  # fmt: skip
        """Write the artifact atomically, as the kind of its suffix (.ptx, .mlca or .ll) or `emit`.

        The constants of a .ptx are written to an .npz of the same name beside it, or to `data`, in its folder or below.
        The former only replaces a file that mlcc wrote for a .ptx, unless `force` is set. Raises CompileError.
        """
        name = os.fspath(path)
        kind = emit or kind_of(name, BACKEND.outputs, BACKEND.loadable, "pass emit=").name
        if kind in KINDS:
            check_suffix(name, kind)
        outputs = Outputs(force)
        outputs.save(self.files(name, kind, outputs, None if data is None else os.fspath(data)))

    def files(self, path: str, kind: str, outputs: Outputs, data: str | None = None) -> dict[str, Content]:
        """Return the files that `save` writes, by path. Raises CompileError."""
        facts = self._prefix(path)
        constants = self.launch.constants if kind == "ptx" else []
        if not constants:
            return {path: self.emit(kind, facts)}
        if is_stream(path):
            message = "a .ptx with constants cannot be written to standard output: they are in a file beside it"
            raise CompileError(error("E0755", message, help="write to a file, or use --emit mlca"))
        arrays = {str(c.sha256): c.array for c in constants if c.array is not None}
        default_path = f"{os.path.splitext(path)[0]}.npz"
        if data is not None and os.path.normpath(data) != os.path.normpath(default_path):
            relative = os.path.relpath(data, os.path.dirname(path) or ".")
            if relative.split(os.sep)[0] == os.pardir:
                message = f"the constants of a .ptx must be in its folder or below, and {data} is not"
                raise CompileError(error("E0906", message, help="choose a file there, or compile to a single .mlca"))
            return {data: npz_bytes(arrays, ownership_comment(path)), path: self.emit(kind, facts, relative)}
        code = self.emit(kind, facts)
        if data is not None:
            return {data: npz_bytes(arrays, ownership_comment(path)), path: code}
        return {**outputs.constants_file(default_path, arrays, path, self._has_constants), path: code}

    def _has_constants(self, arrays: Mapping[str, Any]) -> bool:
        """Return True if an archive has all constants, by hash or by name in the program."""
        for data in self.launch.constants:
            array = arrays.get(str(data.sha256), arrays.get(data.key))
            if array is None or not TensorData(data.dtype, array.shape, array).same_as(data):
                return False
        return True

    def emit(self, kind: str = "mlca", prefix: str | None = None, data: str | None = None) -> bytes:
        """Return the content of an output file. Raises CompileError.

        The kinds are `ptx`, `mlca`, `llvm-ir`, and the kernels as source text (`cuda-c`, `metal`). The constants of
        `ptx` are in the file `data` beside it, by default an .npz of its own name.
        """
        if kind not in KINDS:
            raise CompileError(error("E0755", f"cannot write `{kind}` for CUDA", help=f"known are {', '.join(KINDS)}"))
        if kind == "llvm-ir":
            return self.code.llvm_ir.encode()
        if kind in LANGUAGES:
            return emit_source(self.launch.kernels, kind).encode()
        facts = self._facts(self._prefix(None) if prefix is None else c_identifier(prefix))
        constants = [data.array for data in self.launch.constants]
        plan = self.launch.plan if data is None else {"data": data, **self.launch.plan}
        parts = ArtifactContents(facts, plan, self.code.text.encode(), self.launch.source().encode(), constants)
        return write_archive(parts) if kind == "mlca" else write_text(parts)

    def _prefix(self, path: str | None) -> str:
        if self.prefix is not None:
            return c_identifier(self.prefix)
        return "mlcc" if path is None or path == "-" else c_identifier(os.path.splitext(os.path.basename(path))[0])

    def _facts(self, prefix: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(json.dumps(self.launch.facts).replace(PLACEHOLDER_PREFIX, prefix))
        return facts
