"""Replay of traces; common prefixes are replayed once."""

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
_MAX_NODES = 1024


@dataclass(slots=True, eq=False)
class _ReplayNode:
    """A node in the prefix tree of replays: a schedule, the values of handles, and successors by steps or decision."""

    sch: Schedule
    handles: Handles
    successors: dict[Any, _ReplayNode] = field(default_factory=dict)

    def copy(self) -> _ReplayNode:
        return _ReplayNode(self.sch.copy(), dict(self.handles))


class Replayer:
    """Replays the steps of traces on one module.

    Schedules are cached at each decision: traces of one design space are equal up to their first different decision,
    and copying a schedule takes microseconds.
    """

    def __init__(self, mod: IRModule) -> None:
        self._mod = mod
        self._root = _ReplayNode(Schedule(mod, seed=1), {})
        self._num_nodes = 0

    def replay(
        self, steps: Sequence[Instruction], random: Engine | None = None, repair: bool = False
    ) -> tuple[Schedule, Handles]:
        """Replay the steps. Return the schedule and the values of the handles.

        Sampling steps without a decision draw from `random`; with `repair` also those whose decision is illegal.
        Raises CompileError for an illegal step.
        """
        node = self._root
        start = 0
        for at, inst in enumerate(steps):
            if inst.is_sampling:
                node = self._after_steps(node, tuple(steps[start:at]))
                node = self._after_sampling(node, inst, random, repair)
                start = at + 1
        final = node.copy()
        for inst in steps[start:]:
            inst.apply_to(final.sch, final.handles)
        if random is not None:
            final.sch.seed(random.fork())
        return final.sch, final.handles

    def _after_steps(self, node: _ReplayNode, steps: tuple[Instruction, ...]) -> _ReplayNode:
        """Return the node after deterministic steps."""
        if not steps:
            return node
        successor = node.successors.get(steps)
        if successor is None:
            successor = node.copy()
            for inst in steps:
                inst.apply_to(successor.sch, successor.handles)
            self._add_node(node, steps, successor)
        return successor

    def _after_sampling(self, node: _ReplayNode, inst: Instruction, random: Engine | None, repair: bool) -> _ReplayNode:
        """Return the node after a sampling step."""
        key = (inst.outputs, _hashable(inst.decision))
        successor = None if inst.decision is None else node.successors.get(key)
        if successor is None:
            successor = node.copy()
            if inst.decision is None and random is not None:
                successor.sch.seed(random.fork())
            try:
                inst.apply_to(successor.sch, successor.handles)
            except CompileError:
                if inst.decision is None or not repair:
                    raise
                return self._after_sampling(node, inst.with_decision(None), random, False)
            if inst.decision is None:
                key = (inst.outputs, _hashable(successor.sch.trace.insts[-1].decision))
            successor = node.successors.get(key) or self._add_node(node, key, successor)
        return successor

    def _add_node(self, before: _ReplayNode, key: object, node: _ReplayNode) -> _ReplayNode:
        if self._num_nodes >= _MAX_NODES:
            self._root, self._num_nodes = _ReplayNode(Schedule(self._mod, seed=1), {}), 0
        else:
            before.successors[key] = node
        self._num_nodes += 1
        return node


def _hashable(decision: Any) -> Any:
    return tuple(decision) if isinstance(decision, list) else decision


def with_replayed_decisions(steps: Sequence[Instruction], sch: Schedule) -> list[Instruction]:
    """Return the steps with the decisions that their replay `sch` took, which differ for repaired ones."""
    decisions = [inst.decision for inst in sch.trace.insts if inst.is_sampling]
    replayed = []
    for inst in steps:
        if inst.is_sampling:
            decision = decisions.pop(0)
            inst = inst if inst.decision == decision else inst.with_decision(decision)
        replayed.append(inst)
    return replayed


def apply_postprocs(sch: Schedule, postprocs: Sequence[Postproc]) -> bool:
    """Apply postprocessors to a replayed schedule. Return False if one rejects it or fails."""
    sch.enter_postproc()
    try:
        return all(postproc.apply(sch) for postproc in postprocs)
    except CompileError:
        return False


def apply_trace(mod: IRModule, trace: Trace, postprocs: Sequence[Postproc], seed: int) -> Schedule | None:
    """Apply a trace and postprocessors to a module. Return the schedule, None if either rejects it."""
    sch = Schedule(mod, seed=seed)
    try:
        trace.apply_to_schedule(sch, remove_postproc=True)
    except CompileError:
        return None
    return sch if apply_postprocs(sch, postprocs) else None
