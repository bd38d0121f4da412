"""Candidates: decisions in a design space, replayed lazily when the schedule is needed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from mlcc.ir.hashing import structural_hash
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.tune.arg_info import ArgInfo


class MeasureCandidate:
    """A schedule to measure. TVM: `MeasureCandidate`.

    `decisions` are those of its sampling steps, in order; models that use only them need no replay.
    """

    def __init__(
        self, sch: Schedule, args_info: Sequence[ArgInfo] | None = None, steps: Sequence[Instruction] | None = None,
        space: int = 0,
    ) -> None:  # fmt: skip
        self.sch = sch
        self.steps = sch.trace.without_postproc() if steps is None else list(steps)
        self.space = space
        self._args_info = args_info

    @property
    def args_info(self) -> list[ArgInfo]:
        """The arguments of the kernel."""
        return list(ArgInfo.from_entry_func(self.sch.mod) if self._args_info is None else self._args_info)

    @property
    def decisions(self) -> list[Any]:
        return [inst.decision for inst in self.steps if inst.is_sampling]

    @cached_property
    def key(self) -> int:
        """The structural hash of the scheduled module."""
        return structural_hash(self.sch.mod)


class Individual:
    """Decisions for the steps of a design space, which have not been replayed and may be illegal.

    `space` is the number of the design space.
    """

    def __init__(self, space: int, steps: Sequence[Instruction]) -> None:
        self.space, self.steps = space, list(steps)

    @property
    def trace(self) -> Trace:
        return Trace(self.steps)

    @cached_property
    def decisions(self) -> tuple[Any, ...]:
        """The decisions as a comparable key: equal for equal individuals of a space."""
        marks = [
            inst.arguments["ann_val"]
            for inst in self.steps
            if inst.name == "annotate" and inst.arguments["ann_key"] == "meta_schedule.parallel"
        ]
        sampled = [inst.decision for inst in self.steps if inst.is_sampling]
        return (self.space, *(tuple(d) if isinstance(d, list) else d for d in sampled), *marks)
