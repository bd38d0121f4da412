"""The public function that imports exported programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlcc.frontend.aten.live import program_of
from mlcc.frontend.aten.translate import translate

if TYPE_CHECKING:
    import torch

    from mlcc.ir.module import IRModule


def from_exported_program(exported_program: torch.export.ExportedProgram) -> IRModule:
    """The module of an exported program; `main` takes the user's inputs, weights are bound.

    Raises CompileError that lists everything that cannot be imported.
    """
    return translate(program_of(exported_program))
