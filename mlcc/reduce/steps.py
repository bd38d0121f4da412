"""Edits of pipelines and schedule scripts: passes and lines are left out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from mlcc.errors import MlccError
from mlcc.reduce.program import Program


class DropPasses:
    """Remove passes of the pipeline; of the steps of lowering the last ones, since each runs only after all before."""

    def sites(self, program: Program) -> Sequence[int]:
        return list(range(len(program.passes or ())))[::-1]

    def apply(self, program: Program, chosen: Sequence[int]) -> Program | None:
        passes = program.passes or ()
        steps = [i for i, text in enumerate(passes) if _is_lowering_step(text)]
        dropped = [i for i in steps if i in chosen]
        if dropped != steps[len(steps) - len(dropped) :]:
            return None
        return dataclasses.replace(program, passes=tuple(p for i, p in enumerate(passes) if i not in chosen))


@functools.cache
def _is_lowering_step(text: str) -> bool:
    from mlcc.passes.lowering.stage import LoweringStep
    from mlcc.passes.manage.manager import pass_class

    try:
        return issubclass(pass_class(text.partition("{")[0]), LoweringStep)
    except MlccError:
        return False


class DropScriptLines:
    """Remove lines of the schedule script."""

    def sites(self, program: Program) -> Sequence[int]:
        return list(range(len(program.script or ())))[::-1]

    def apply(self, program: Program, chosen: Sequence[int]) -> Program | None:
        lines = program.script or ()
        return dataclasses.replace(program, script=tuple(line for i, line in enumerate(lines) if i not in chosen))
