"""The base class of artifacts, the results of builds, for any target."""

from __future__ import annotations

import abc
import os
from typing import Any, ClassVar

from mlcc.errors import CompileError, error


class Artifact(abc.ABC):
    """Compiled code for a target. `mlcc.load(artifact)` runs it; `save` writes it.

    `prefix` starts the exported C symbols; if it is None, the name of the file that is written does.
    """

    prefix: str | None
    loadable: ClassVar[str]  # the form that holds everything

    @property
    @abc.abstractmethod
    def manifest(self) -> dict[str, Any]:
        """The manifest, a description of the artifact; see `docs/abi.md` and `docs/cuda.md`."""

    @abc.abstractmethod
    def save(self, path: str | os.PathLike[str], emit: str | None = None) -> None:
        """Write the artifact, whole or not at all. The suffix says what, or `emit` does. Raises CompileError."""

    @abc.abstractmethod
    def emit(self, kind: str = ..., prefix: str | None = None) -> bytes:
        """The content of a file of a kind; by default of the form that holds everything. Raises CompileError."""

    def header(self, path: str | None = None) -> str:
        """A C99 header that declares every function. Raises CompileError where C cannot call them."""
        raise CompileError(error("E0755", "an artifact for a GPU is not called from C: it has no header"))

    def __repr__(self) -> str:
        facts = self.manifest
        names = ", ".join(facts["functions"])
        return f"<mlcc artifact for {facts['target']['text']} with {names or 'no functions'}>"
