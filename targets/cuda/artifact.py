"""The artifact of a build for CUDA: PTX with its launch plan and constants, to be saved, loaded, or read."""

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
from mlcc.outputs import Outputs, check_suffix, is_stream, kind_of, mark
from mlcc.runtime.abi import PLACEHOLDER_PREFIX
from mlcc.runtime.launch.files import Parts, write_archive, write_text
from mlcc.targets.artifact import Artifact
from mlcc.targets.cuda.backend import BACKEND
from mlcc.targets.cuda.ptx import PtxModule
from mlcc.targets.cuda.ptxas import Assembled, PtxasError, assemble
from mlcc.targets.launch import LaunchModule
from mlcc.targets.plan.exports import c_identifier
from mlcc.targets.source import LANGUAGES, emit_source

if TYPE_CHECKING:
    from mlcc.targets.emulate.device import EmulatedDevice

KINDS = {kind.name: kind for kind in BACKEND.outputs}


@dataclass(eq=False, repr=False)
class CudaArtifact(Artifact):
    """Kernels for a GPU and what the host does with them."""

    code: PtxModule
    launch: LaunchModule
    prefix: str | None = None
    loadable: ClassVar[str] = BACKEND.loadable.name

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest of the artifact; see `docs/cuda.md`."""
        return self._facts(self._prefix(None))

    @property
    def plan(self) -> dict[str, Any]:
        """The launch plan."""
        return self.launch.plan

    def emulator(self, check: bool = True) -> EmulatedDevice:
        """A device that runs the kernels on the CPU."""
        from mlcc.targets.emulate.device import EmulatedDevice

        return EmulatedDevice(self.launch.kernels, check, GpuFacts.of(self.launch.facts["target"]["text"]))

    def assembled(self) -> dict[str, Assembled]:
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
        """Write the artifact, whole or not at all. The suffix says what: .ptx, .mlca or .ll; or `emit` does.

        The constants of a .ptx go into an .npz of the same name beside it, or into `data`, in its folder or below.
        That of the same name replaces only what mlcc wrote for a .ptx, unless `force` is set. Raises CompileError.
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
            message = "the constants lie beside a .ptx, which standard output has not"
            raise CompileError(error("E0755", message, help="write to a file, or --emit mlca"))
        arrays = {str(c.sha256): c.array for c in constants if c.array is not None}
        usual = f"{os.path.splitext(path)[0]}.npz"
        if data is not None and os.path.normpath(data) != os.path.normpath(usual):
            beside = os.path.relpath(data, os.path.dirname(path) or ".")
            if beside.split(os.sep)[0] == os.pardir:
                message = f"a .ptx finds its constants from its own folder: {data} does not lie in that or below"
                raise CompileError(error("E0906", message, help="name a file there, or compile to one .mlca"))
            return {data: npz_bytes(arrays, mark(path)), path: self.emit(kind, facts, beside)}
        code = self.emit(kind, facts)
        if data is not None:
            return {data: npz_bytes(arrays, mark(path)), path: code}
        return {**outputs.beside(usual, arrays, path, self._in), path: code}

    def _in(self, arrays: Mapping[str, Any]) -> bool:
        """Return True if an archive has all constants already, under their hashes or their names in the program."""
        for data in self.launch.constants:
            array = arrays.get(str(data.sha256), arrays.get(data.key))
            if array is None or not TensorData(data.dtype, array.shape, array).same_as(data):
                return False
        return True

    def emit(self, kind: str = "mlca", prefix: str | None = None, data: str | None = None) -> bytes:
        """The content of a file: `ptx` (without its constants, which lie in `data` beside it if not in an .npz of its
        own name), `mlca`, `llvm-ir`, or the kernels as source text (`cuda-c`, `metal`). Raises CompileError."""
        if kind not in KINDS:
            raise CompileError(error("E0755", f"cannot write `{kind}` for CUDA", help=f"known are {', '.join(KINDS)}"))
        if kind == "llvm-ir":
            return self.code.llvm_ir.encode()
        if kind in LANGUAGES:
            return emit_source(self.launch.kernels, kind).encode()
        facts = self._facts(self._prefix(None) if prefix is None else c_identifier(prefix))
        constants = [data.array for data in self.launch.constants]
        plan = self.launch.plan if data is None else {"data": data, **self.launch.plan}
        parts = Parts(facts, plan, self.code.text.encode(), self.launch.source().encode(), constants)
        return write_archive(parts) if kind == "mlca" else write_text(parts)

    def _prefix(self, path: str | None) -> str:
        if self.prefix is not None:
            return c_identifier(self.prefix)
        return "mlcc" if path is None or path == "-" else c_identifier(os.path.splitext(os.path.basename(path))[0])

    def _facts(self, prefix: str) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads(json.dumps(self.launch.facts).replace(PLACEHOLDER_PREFIX, prefix))
        return facts
