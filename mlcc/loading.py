"""Load artifacts to run them: CPU code natively, GPU kernels on the GPU or emulated on the CPU.

Only emulation needs the compiler; compiled code needs only `mlcc.runtime`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.errors import LoadError, error
from mlcc.runtime import loader

if TYPE_CHECKING:
    import os
    from typing import TypeAlias

    from mlcc.runtime.executable import Executable
    from mlcc.runtime.launch.device import Device
    from mlcc.targets.artifact import Artifact

    Loadable: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | Artifact

_EMULATE_HELP = "compile it for a GPU: `mlcc run model.mlc -t cuda --emulate`, or name a .ptx or .mlca file"


def load(
    artifact: Loadable, allow_extern: tuple[str, ...] | list[str] = (), device: Device | None = None, *,
    emulate: bool = False, check: bool = True,
) -> Executable:  # fmt: skip
    """Load an artifact: a path to an object, shared library, .ptx or .mlca, its bytes, or what `mlcc.build` returned.

    `allow_extern` names the C symbols besides libm's that it may use; they must be in the process. GPU code runs on
    `device`, by default the process's current CUDA device. With `emulate` GPU code runs on the CPU, and with `check` a
    call raises an error for data races and invalid accesses. Raises LoadError, and MachineError for another machine's
    artifact.
    """
    return _emulated(artifact, check) if emulate else loader.load(artifact, allow_extern, device)


def _emulated(artifact: Loadable, check: bool) -> Executable:
    """Load GPU code to be emulated on the CPU. Raises LoadError E0748 for code compiled for a CPU."""
    if hasattr(artifact, "emulator"):  # an artifact in memory still has the lowered kernels
        return loader.load(artifact, device=artifact.emulator(check))
    from mlcc.targets.emulate.archive import emulator

    content = loader.content_of(artifact)
    if not content.has_plan:
        text = "the artifact was compiled for a CPU, so there is nothing to emulate"
        raise loader.named(LoadError(error("E0748", text, help=_EMULATE_HELP)), content.path)
    return loader.load(content, device=lambda parts, path: emulator(parts, path, check))
