"""The base class of artifacts, the results of builds, for any target."""

from __future__ import annotations

import abc
import os
from typing import TYPE_CHECKING, Any, ClassVar

from mlcc.errors import CompileError, error

if TYPE_CHECKING:
    from mlcc.targets.plan.steps import HostFunction


class Artifact(abc.ABC):
    """Compiled code for a target. `mlcc.load(artifact)` runs it; `save` writes it.

    `prefix` is the prefix of the exported C symbols; None takes the stem of the file that is written.
    """

    prefix: str | None
    loadable: ClassVar[str]  # the kind of output that contains everything

    @property
    def plans(self) -> tuple[HostFunction, ...]:
        """The planned public functions: their steps, and the memory that these use. Empty if the target has none."""
        return ()

    @property
    @abc.abstractmethod
    def manifest(self) -> dict[str, Any]:
        """The manifest, a description of the artifact; see `docs/abi.md` and `docs/cuda.md`."""

    @abc.abstractmethod
    def save(self, path: str | os.PathLike[str], emit: str | None = None) -> None:
        """Write the artifact atomically. Its kind follows from the suffix, or is `emit`. Raises CompileError."""

    @abc.abstractmethod
    def emit(self, kind: str = ..., prefix: str | None = None) -> bytes:
        """Return the content of an output file, by default of the kind `loadable`. Raises CompileError."""

    def header(self, path: str | None = None) -> str:
        """Return a C99 header that declares every function. Raises CompileError if C cannot call them."""
        raise CompileError(error("E0755", "an artifact for a GPU has no header: it cannot be called from C"))

    def __repr__(self) -> str:
        facts = self.manifest
        names = ", ".join(facts["functions"])
        return f"<mlcc artifact for {facts['target']['text']} with {names or 'no functions'}>"
