"""What a build for CUDA gives: PTX with its launch plan and constants, to be saved, loaded, or read."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mlcc.errors import CompileError, error
from mlcc.files import load_npz, npz_bytes, write_atomic
from mlcc.gpu_facts import GpuFacts
from mlcc.ir.tensor_data import TensorData
from mlcc.runtime.abi import PLACEHOLDER_PREFIX
from mlcc.runtime.plan_files import Parts, write_archive, write_text
from mlcc.targets.cuda.ptx import PtxModule
from mlcc.targets.cuda.ptxas import Assembled, PtxasError, assemble
from mlcc.targets.launch import LaunchModule
from mlcc.targets.llvm.objfile import c_identifier
from mlcc.targets.source import LANGUAGES, emit_source

if TYPE_CHECKING:
    from mlcc.targets.emulate.device import EmulatedDevice

_HASH = re.compile("[0-9a-f]{64}")
KINDS = {"ptx": ".ptx", "mlca": ".mlca", "llvm-ir": ".ll", "cuda-c": ".cu", "metal": ".metal"}


@dataclass(eq=False)
class CudaArtifact:
    """Kernels for a GPU and what the host does with them. `mlcc.load(artifact)` runs it; `save` writes it."""

    code: PtxModule
    launch: LaunchModule
    prefix: str | None = None
    loadable: ClassVar[str] = "mlca"  # the form that holds everything

    @property
    def manifest(self) -> dict[str, Any]:
        """What the artifact says of itself; see `docs/cuda.md`."""
        return self._facts(self._prefix(None))

    @property
    def plan(self) -> dict[str, Any]:
        """The launch plan."""
        return self.launch.plan

    def emulator(self, check: bool = True) -> EmulatedDevice:
        """A device that runs the kernels on the CPU."""
        from mlcc.targets.emulate.device import EmulatedDevice

        return EmulatedDevice(self.launch.kernels_to_emulate(), check, GpuFacts.of(self.launch.facts["target"]["text"]))

    def assembled(self) -> dict[str, Assembled]:
        """What NVIDIA's assembler makes of the kernels, by name; nothing where it is not there or refuses."""
        try:
            made = assemble(self.code.text, self.code.arch.name)
        except PtxasError:
            return {}
        found = {name: made.get(facts.symbol) for name, facts in self.code.kernels.items()}
        return {name: known for name, known in found.items() if known is not None}

    def save(self, path: str | os.PathLike[str], emit: str | None = None) -> None:
        """Write the artifact, whole or not at all. The suffix says what: .ptx, .mlca or .ll; or `emit` does.

        The constants of a .ptx go into an .npz of the same name beside it. Raises CompileError.
        """
        name = os.fspath(path)
        by_suffix = {suffix: kind for kind, suffix in KINDS.items()}
        stem, suffix = os.path.splitext(name)
        kind = emit or by_suffix.get(suffix, "mlca")
        made = self.emit(kind, self._prefix(name))
        if kind == "ptx" and self.launch.constants:
            if name == "-":
                message = "the constants lie beside a .ptx, which standard output has not"
                raise CompileError(error("E0755", message, help="write to a file, or --emit mlca"))
            write_atomic(f"{stem}.npz", npz_bytes(self._beside(f"{stem}.npz")))
        write_atomic(name, made)

    def _beside(self, path: str) -> dict[str, Any]:
        """The arrays of the .npz beside a .ptx, by hash. It may be that of the text too: what has a name there stays,
        and is not written twice."""
        kept: dict[str, Any] = {}
        if os.path.exists(path):
            kept = {name: a for name, a in load_npz(path).items() if not _HASH.fullmatch(name)}
        made = dict(kept)
        for data in self.launch.constants:
            found = kept.get(data.key)
            if found is None or not TensorData(data.dtype, found.shape, found).same_as(data):
                made[str(data.sha256)] = data.array
        return made

    def emit(self, kind: str = "mlca", prefix: str | None = None) -> bytes:
        """The content of a file: `ptx` (without its constants), `mlca`, `llvm-ir`, or the kernels as source text
        (`cuda-c`, `metal`). Raises CompileError."""
        if kind not in KINDS:
            raise CompileError(error("E0755", f"cannot write `{kind}` for CUDA", help=f"known are {', '.join(KINDS)}"))
        if kind == "llvm-ir":
            return self.code.llvm_ir.encode()
        if kind in LANGUAGES:
            return emit_source(self.launch.kernels_to_read(), kind).encode()
        facts = self._facts(self._prefix(None) if prefix is None else c_identifier(prefix))
        constants = [data.array for data in self.launch.constants]
        parts = Parts(facts, self.launch.plan, self.code.text.encode(), self.launch.source().encode(), constants)
        return write_archive(parts) if kind == "mlca" else write_text(parts)

    def _prefix(self, path: str | None) -> str:
        if self.prefix is not None:
            return c_identifier(self.prefix)
        return "mlcc" if path is None or path == "-" else c_identifier(os.path.splitext(os.path.basename(path))[0])

    def _facts(self, prefix: str) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(json.dumps(self.launch.facts).replace(PLACEHOLDER_PREFIX, prefix))
        return made
