"""Loading artifacts to run them: compiled code as it is, kernels for a GPU on the GPU or emulated.

Only emulation takes the compiler; what runs compiled code is `mlcc.runtime`.
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

_TO_EMULATE = "compile it for a GPU: `mlcc run model.mlc -t cuda --emulate`, or name a .ptx or .mlca file"


def load(
    artifact: Loadable, allow_extern: tuple[str, ...] | list[str] = (), device: Device | None = None, *,
    emulate: bool = False, check: bool = True,
) -> Executable:  # fmt: skip
    """Load an artifact: a path to an object, shared library, .ptx or .mlca, its bytes, or what `mlcc.build` returned.

    `allow_extern` names C symbols beyond libm that it may use; they must be in the process. Code for a GPU runs on
    `device`, by default the process's current CUDA device. With `emulate` what was built for a GPU runs on the CPU, and
    with `check` calls raise what threads do wrong. Raises LoadError, for an artifact of another machine MachineError.
    """
    return _emulated(artifact, check) if emulate else loader.load(artifact, allow_extern, device)


def _emulated(artifact: Loadable, check: bool) -> Executable:
    """Load code for a GPU to run on the CPU. Raises LoadError E0748 for what was compiled for a CPU."""
    if hasattr(artifact, "emulator"):  # it has the kernels as they were lowered
        return loader.load(artifact, device=artifact.emulator(check))
    from mlcc.targets.emulate.archive import emulator

    content = loader.content_of(artifact)
    if not content.has_plan:
        text = "this was compiled for a CPU: there is nothing to emulate"
        raise loader.named(LoadError(error("E0748", text, help=_TO_EMULATE)), content.path)
    return loader.load(content, device=lambda parts, path: emulator(parts, path, check))
