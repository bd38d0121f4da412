"""Design spaces defined by a function or a schedule script."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from mlcc.errors import Source
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.space_generator.generator import FROM_TARGET, MutatorProbs, Postprocs, Rules, SpaceGenerator

ScheduleFunction = Callable[[Schedule], "Schedule | Sequence[Schedule] | None"]


class ScheduleFn(SpaceGenerator):
    """The space of one schedule with sampling. TVM: `ScheduleFn`.

    `sch_fn` is a function that works on the schedule it is given and returns None, a schedule or several; or the text
    of a `.mls` script, or the name of a file that holds one.
    """

    def __init__(
        self, sch_fn: ScheduleFunction | str | os.PathLike[str], sch_rules: Rules = FROM_TARGET,
        postprocs: Postprocs = FROM_TARGET, mutator_probs: MutatorProbs = FROM_TARGET,
    ) -> None:  # fmt: skip
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.sch_fn: ScheduleFunction = sch_fn if callable(sch_fn) else _script(sch_fn)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """Raises TypeError if the function returns anything but schedules, CompileError for what its steps refuse."""
        sch = Schedule(mod, seed=self._random.fork())
        returned = self.sch_fn(sch)
        schedules = [sch] if returned is None else [returned] if isinstance(returned, Schedule) else returned
        if not isinstance(schedules, (list, tuple)) or not all(isinstance(one, Schedule) for one in schedules):
            raise TypeError(f"a schedule function must return None, a Schedule or a list of them, not {returned!r}")
        return list(schedules)


def _script(given: str | os.PathLike[str]) -> ScheduleFunction:
    """The function that runs a script. Raises CompileError for a file that cannot be read."""
    from mlcc.files import read_bytes
    from mlcc.grammar.syntax.reader import decode
    from mlcc.passes.schedule.mls.run import run_script

    text, folder = os.fspath(given), "."
    name = "<script>"
    if text.endswith(".mls"):
        name, folder = text, os.path.dirname(text) or "."
        text = decode(read_bytes(name), name)

    def run(sch: Schedule) -> None:
        run_script(sch, Source(name, text), folder=folder)

    return run
