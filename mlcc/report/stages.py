"""The module before the first pass of a build and after each, and which kernel of one stage became which of another."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mlcc.grammar.printer.printer import function_lines
from mlcc.ir.module import Func, IRModule
from mlcc.passes.manage import levels
from mlcc.passes.manage.manager import Observer, Pass, Pipeline
from mlcc.passes.manage.stages import BLOCKS, stage_of
from mlcc.relax.renamed import replaced_kernels
from mlcc.report.texts import Texts

SOURCE = "source"  # the name of the stage before the first pass
SCHEDULING = ("apply-tuned", *levels.SCHEDULING)


@dataclass(frozen=True, slots=True)
class Stage:
    """The module after a pass, and the seconds that the pass took."""

    name: str
    seconds: float
    module: IRModule


class Stages(Observer):
    """Keep the module before the first pass, as the stage `source`, and after each pass."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.stages: list[Stage] = []
        self._clock = clock
        self._started = 0.0

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self.stages = [Stage(SOURCE, 0.0, module)]

    def before(self, at: int, current: Pass, module: IRModule) -> None:
        self._started = self._clock()

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self.stages.append(Stage(current.name, self._clock() - self._started, module))

    def module_before(self, name: str) -> IRModule | None:
        """Return the module before the first pass of that name; None if the pipeline has none."""
        at = next((at for at, stage in enumerate(self.stages) if stage.name == name), 0)
        return self.stages[at - 1].module if at else None

    @property
    def unscheduled(self) -> int:
        """The index of the stage before schedules are applied; that before blocks are lowered if none are."""
        first = next((at for at, stage in enumerate(self.stages) if stage.name in SCHEDULING), None)
        return self.blocks if first is None else first - 1

    @property
    def blocks(self) -> int:
        """The index of the last stage whose PrimFuncs have blocks."""
        with_blocks = [at for at, stage in enumerate(self.stages) if stage_of(stage.module) == BLOCKS]
        return with_blocks[-1] if with_blocks else 0

    @property
    def lowered(self) -> IRModule:
        """The module from which code is generated."""
        return self.stages[-1].module

    def function_at(self, at: int, name: str) -> tuple[str, Func] | None:
        """Return what the function `name` of the last stage was at the stage `at`: its name there, and the function.

        A pass may replace a function by one of another name (`replaced_kernels`). None for a function that was not
        there.
        """
        for index in range(len(self.stages) - 2, at - 1, -1):
            earlier, later = self.stages[index].module, self.stages[index + 1].module
            if name not in earlier.functions:
                previous = replaced_kernels(later, earlier).get(name)
                if previous is None:
                    return None
                name = previous
        func = self.stages[at].module.functions.get(name)
        return None if func is None else (name, func)

    def as_data(self, texts: Texts) -> list[dict[str, Any]]:
        """Return the stages with the texts of their functions."""
        printed: dict[tuple[str, int], str] = {}  # functions that a pass leaves alone stay the same objects
        return [
            {
                "pass": stage.name,
                "seconds": stage.seconds,
                "functions": {
                    name: printed.setdefault((name, id(func)), "") or _print(printed, name, func, texts)
                    for name, func in stage.module.functions.items()
                },
            }
            for stage in self.stages
        ]


def _print(printed: dict[tuple[str, int], str], name: str, func: Func, texts: Texts) -> str:
    printed[name, id(func)] = text = texts.add(function_text(name, func))
    return text


def function_text(name: str, func: Func) -> str:
    """Return the text of a function as its module has it, without indentation."""
    return "\n".join(function_lines(name, func)) + "\n"
