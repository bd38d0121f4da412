"""Edits of pipelines and schedule scripts: passes and lines are left out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mlcc.reduce.program import Program


class DropPasses:
    """Remove passes of the pipeline."""

    def sites(self, program: Program) -> Sequence[int]:
        return list(range(len(program.passes or ())))[::-1]

    def apply(self, program: Program, chosen: Sequence[int]) -> Program | None:
        passes = program.passes or ()
        return dataclasses.replace(program, passes=tuple(p for i, p in enumerate(passes) if i not in chosen))


class DropScriptLines:
    """Remove lines of the schedule script."""

    def sites(self, program: Program) -> Sequence[int]:
        return list(range(len(program.script or ())))[::-1]

    def apply(self, program: Program, chosen: Sequence[int]) -> Program | None:
        lines = program.script or ()
        return dataclasses.replace(program, script=tuple(line for i, line in enumerate(lines) if i not in chosen))
