"""Compile times by phase, for `mlcc compile --time`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from mlcc.ir.module import IRModule
from mlcc.passes.manage.manager import Pass
from mlcc.passes.manage.observers import Timing, Write, time_rows
from mlcc.progress import Listener, Work
from mlcc.relax.origins import kernel_origins

MAX_KERNEL_ROWS = 30  # rows of the table


class CompileTimes(Timing, Listener):
    """A recorder of compile times: by pass, by stage of code generation, and by kernel."""

    def __init__(self, write: Write, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__(write, clock)
        self._began = clock()
        self._in_pass = False
        self._module: IRModule | None = None
        self.stages: dict[str, float] = defaultdict(float)
        self.kernels: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        super().before(at, current, module)
        self._in_pass = True

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        super().after(at, current, before, module)
        self._in_pass = False
        self._module = module

    def finish(self) -> None:
        """Do nothing yet: code generation follows the passes."""

    def done(self, work: Work, seconds: float) -> None:
        if not self._in_pass and not work.contains_others:  # a pass is timed as a whole
            self.stages[work.stage] += seconds
        if work.kernel:
            self.kernels[work.kernel][work.stage] += seconds

    def report(self) -> None:
        """Write the times so far: passes in order, stages of code generation, then the slowest kernels.

        Stages that run on several cores may take more time than the total.
        """
        total = self.clock() - self._began
        measured = [*self.spent, *self.stages.items()]
        rest = max(total - sum(seconds for _, seconds in measured), 0.0)
        rows = time_rows([*measured, ("planning and the rest", rest), ("in all", total)])
        self.write("\n".join([*rows, *self._kernel_rows()]) + "\n")

    def _kernel_rows(self) -> list[str]:
        stages = list(dict.fromkeys(stage for spent in self.kernels.values() for stage in spent))
        if not stages:
            return []
        rows = ["", "".join(f"{stage:>16}" for stage in (*stages, "ms in all")) + "  kernel"]
        origins = {} if self._module is None else kernel_origins(self._module)
        ranked = sorted(self.kernels.items(), key=lambda item: -sum(item[1].values()))
        for kernel, spent in ranked[:MAX_KERNEL_ROWS]:
            cells = [*(spent.get(stage, 0.0) for stage in stages), sum(spent.values())]
            where = f"  # {origins[kernel]}" if kernel in origins else ""
            rows.append("".join(f"{1e3 * cell:16.2f}" for cell in cells) + f"  {kernel}{where}")
        return [*rows, f"and {len(ranked) - MAX_KERNEL_ROWS} more"] if len(ranked) > MAX_KERNEL_ROWS else rows
