"""Memoization of steps that schedules of one module share: plans of a kernel differ in a few arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.ir import tir
from mlcc.ir.hashing import structural_hash
from mlcc.ir.visit import used_vars
from mlcc.passes.schedule.handles import BlockRV, LoopRV
from mlcc.passes.schedule.state import State
from mlcc.passes.schedule.trace import Instruction

MAX_STEPS = 2048  # steps that are kept


@dataclass(frozen=True, slots=True, eq=False)
class MemoEntry:
    """The memoized result of a step: the state after it, its recorded instructions, its outputs, and the next place."""

    state: State
    insts: tuple[Instruction, ...]
    outputs: Any
    node: StepNode


class StepNode:
    """A moment of a schedule, with the steps that were done from there. Copies of the schedule share it."""

    __slots__ = ("_after", "_first", "_kept")

    def __init__(self, first: StepNode | None = None) -> None:
        self._first = first or self
        self._after: dict[Any, MemoEntry] = {}
        self._kept = 0  # after the first place

    def find(self, step: Any) -> MemoEntry | None:
        """Return the memoized result of a step (`step_key`) from here; None if there is none."""
        return self._after.get(step)

    def keep(self, step: Any, state: State, insts: Sequence[Instruction], outputs: Any) -> StepNode:
        """Record the result of a step and return the place after it. Beyond `MAX_STEPS` steps all are forgotten."""
        first = self._first
        if first._kept >= MAX_STEPS:
            first._after.clear()
            first._kept = 0
        first._kept += 1
        node = StepNode(first)
        self._after[step] = MemoEntry(state, tuple(insts), outputs, node)
        return node


def step_key(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the memo key of a step; None for a random one, or if an argument has no key."""
    if name.startswith("sample_"):
        return None
    key = (name, _argument_key(args), _argument_key(tuple(kwargs.items())))
    return None if _NoKey in key else key


class _NoKey:
    """A marker for an argument whose equality says too little to be part of a key."""


def _argument_key(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        parts = tuple(map(_argument_key, value))
        return _NoKey if _NoKey in parts else parts
    if value is None or isinstance(value, (str, BlockRV, LoopRV)):
        return value
    if isinstance(value, (int, float)):
        return type(value), value
    return (type(value), structural_hash(value)) if _is_closed(value) else _NoKey


def _is_closed(value: Any) -> bool:
    """Return True if a node has no free variables: its hash does not tell those apart."""
    if isinstance(value, tir.IndexMap):
        return value.inverse is None and used_vars(value.result) <= set(value.indices)
    return isinstance(value, (tir.IntImm, tir.FloatImm))
