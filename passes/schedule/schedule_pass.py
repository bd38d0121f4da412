"""A schedule script as a pass."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar

from mlcc.ir.module import IRModule
from mlcc.passes.manage.manager import Pass, PassContext


@dataclass(frozen=True)
class ApplyScript(Pass):
    """Apply a schedule script (.mls) to the TIR functions of the module.

    The last function of the script is called with the schedule, or its statements use `sch`. Files that the script
    names lie in its folder. The same seed makes sampling choose the same.

    Before:  for i in range(128): ...
    After:   for i_0, i_1 in T.grid(32, 4): ...            # schedule{script=split.mls}
    """

    name: ClassVar[str] = "schedule"
    needs_blocks: ClassVar[bool] = True
    script: str = field(metadata={"file": True})
    seed: int = 0

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        from mlcc.files import read_bytes
        from mlcc.grammar.syntax.reader import read_source
        from mlcc.passes.schedule.mls.run import run_script
        from mlcc.passes.schedule.schedule import Schedule

        path = ctx.path(self.script)
        schedule = Schedule(module, seed=self.seed)
        source = read_source(read_bytes(path), path)
        run_script(schedule, source, folder=os.path.dirname(path) or ".", confined=ctx.confined)
        return schedule.mod
