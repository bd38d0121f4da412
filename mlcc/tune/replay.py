"""Replay of traces; a common prefix of traces is replayed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mlcc.errors import CompileError
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.handles import Handle
from mlcc.passes.schedule.random import Engine
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.trace import Instruction, Trace
from mlcc.tune.postproc import Postproc

Handles = dict[Handle, Handle]
_MOST_KEPT = 1024


@dataclass(slots=True, eq=False)
class _Place:
    """A node in the prefix tree of replays: a schedule, the values of handles, and successors by steps or decision."""

    sch: Schedule
    handles: Handles
    after: dict[Any, _Place] = field(default_factory=dict)

    def copy(self) -> _Place:
        return _Place(self.sch.copy(), dict(self.handles))


class Replayer:
    """Replays the steps of traces on one module.

    Schedules are kept at each decision: traces of one design space are alike up to their first decision that differs,
    and the copy of a schedule costs microseconds.
    """

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._root = _Place(Schedule(mod, seed=1), {})
        self._kept = 0

    def replay(
        self, steps: Sequence[Instruction], random: Engine | None = None, repair: bool = False
    ) -> tuple[Schedule, Handles]:
        """Replay the steps. Return the schedule and the values of the handles.

        Sampling steps without a decision draw from `random`; with `repair` also those whose decision is illegal.
        Raises CompileError for an illegal step.
        """
        place = self._root
        start = 0
        for at, inst in enumerate(steps):
            if inst.is_sampling:
                place = self._at(place, tuple(steps[start:at]))
                place = self._decided(place, inst, random, repair)
                start = at + 1
        final = place.copy()
        for inst in steps[start:]:
            inst.apply_to(final.sch, final.handles)
        if random is not None:
            final.sch.seed(random.fork())
        return final.sch, final.handles

    def _at(self, place: _Place, steps: tuple[Instruction, ...]) -> _Place:
        """The place behind steps without a choice."""
        if not steps:
            return place
        successor = place.after.get(steps)
        if successor is None:
            successor = place.copy()
            for inst in steps:
                inst.apply_to(successor.sch, successor.handles)
            self._keep(place, steps, successor)
        return successor

    def _decided(self, place: _Place, inst: Instruction, random: Engine | None, repair: bool) -> _Place:
        """The place behind a sampling step."""
        key = (inst.outputs, _frozen(inst.decision))
        successor = None if inst.decision is None else place.after.get(key)
        if successor is None:
            successor = place.copy()
            if inst.decision is None and random is not None:
                successor.sch.seed(random.fork())
            try:
                inst.apply_to(successor.sch, successor.handles)
            except CompileError:
                if inst.decision is None or not repair:
                    raise
                return self._decided(place, inst.with_decision(None), random, False)
            if inst.decision is None:
                key = (inst.outputs, _frozen(successor.sch.trace.insts[-1].decision))
            successor = place.after.get(key) or self._keep(place, key, successor)
        return successor

    def _keep(self, before: _Place, key: object, place: _Place) -> _Place:
        if self._kept >= _MOST_KEPT:
            self._root, self._kept = _Place(Schedule(self._mod, seed=1), {}), 0
        else:
            before.after[key] = place
        self._kept += 1
        return place


def _frozen(decision: Any) -> Any:
    return tuple(decision) if isinstance(decision, list) else decision


def decided(steps: Sequence[Instruction], sch: Schedule) -> list[Instruction]:
    """The steps with the decisions that a replay of them, `sch`, took: where one could not be, it took another."""
    taken = [inst.decision for inst in sch.trace.insts if inst.is_sampling]
    replayed = []
    for inst in steps:
        if inst.is_sampling:
            decision = taken.pop(0)
            inst = inst if inst.decision == decision else inst.with_decision(decision)
        replayed.append(inst)
    return replayed


def finished(sch: Schedule, postprocs: Sequence[Postproc]) -> bool:
    """Apply postprocessors to a replayed schedule. False where one turns it down, or has a step refused."""
    sch.enter_postproc()
    try:
        return all(postproc.apply(sch) for postproc in postprocs)
    except CompileError:
        return False


def apply_trace(mod: IRModule, trace: Trace, postprocs: Sequence[Postproc], seed: int) -> Schedule | None:
    """A schedule of the module after a trace and postprocessors; None where either turns it down."""
    sch = Schedule(mod, seed=seed)
    try:
        trace.apply_to_schedule(sch, remove_postproc=True)
    except CompileError:
        return None
    return sch if finished(sch, postprocs) else None
