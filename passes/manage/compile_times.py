"""Where the time of a compile goes: `mlcc compile --time`."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable

from mlcc.ir.module import IRModule
from mlcc.passes.manage.manager import Observer, Pass
from mlcc.progress import Listener, Work

MOST_KERNELS = 30  # rows of the table


class CompileTimes(Observer, Listener):
    """Adds up where the time of a compile goes: to passes, to stages of generating code, and to kernels."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._began = clock()
        self._pass_began, self._in_pass = 0.0, False
        self.passes: list[tuple[str, float]] = []
        self.stages: dict[str, float] = defaultdict(float)
        self.kernels: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        self._pass_began, self._in_pass = self._clock(), True

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self.passes.append((current.name, self._clock() - self._pass_began))
        self._in_pass = False

    def done(self, work: Work, seconds: float) -> None:
        if not self._in_pass:  # whose time is counted as a whole
            self.stages[work.stage] += seconds
        if work.kernel:
            self.kernels[work.kernel][work.stage] += seconds

    def table(self) -> str:
        """The times so far, as text: passes in their order, stages of generating code, then the kernels that took
        longest. Stages that several cores work on may take more than there is in all."""
        whole = self._clock() - self._began
        known = [*self.passes, *self.stages.items()]
        rest = max(whole - sum(seconds for _, seconds in known), 0.0)
        rows = [*known, ("verifying, planning, writing", rest), ("in all", whole)]
        lines = [f"{1e3 * s:10.2f} ms  {100 * s / whole if whole else 0:5.1f} %  {name}" for name, s in rows]
        return "\n".join([*lines, *self._kernel_rows()]) + "\n"

    def _kernel_rows(self) -> list[str]:
        stages = list(dict.fromkeys(stage for spent in self.kernels.values() for stage in spent))
        if not stages:
            return []
        made = ["", "".join(f"{stage:>16}" for stage in (*stages, "ms in all")) + "  kernel"]
        ranked = sorted(self.kernels.items(), key=lambda item: -sum(item[1].values()))
        for kernel, spent in ranked[:MOST_KERNELS]:
            cells = [*(spent.get(stage, 0.0) for stage in stages), sum(spent.values())]
            made.append("".join(f"{1e3 * cell:16.2f}" for cell in cells) + f"  {kernel}")
        return [*made, f"and {len(ranked) - MOST_KERNELS} more"] if len(ranked) > MOST_KERNELS else made
