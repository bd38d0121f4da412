"""The memory plan of a build: the buffers of the workspace, where they are, and from which step to which they live."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.ir import tir
from mlcc.ir.visit import substitute
from mlcc.targets.plan.dims import format_dim
from mlcc.targets.plan.steps import (
    Branch,
    CallKernel,
    CallPacked,
    Check,
    Copy,
    HostFunction,
    Loop,
    Memory,
    MemoryKind,
    ReadSymbol,
    Step,
    tensors_of,
    walk_steps,
)

_NAMES = {Branch: "if", Check: "check", Copy: "copy", Loop: "loop", ReadSymbol: "read size"}


def memory_plan(plan: HostFunction, packed: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the plan of a public function. `packed` are the names of packed functions by slot, `sizes` the values of
    symbols by name. Offsets and bytes are None where they depend on symbols without a value.

    `peak` is the largest sum of the bytes of buffers that live at the same step, None if one of them is unknown; the
    `workspace` is at least as large, since buffers are aligned and may leave gaps.
    """
    steps = list(walk_steps(plan.steps))
    values = _Values(plan, sizes)
    buffers = [
        {
            "name": name,
            "offset": None if buffer.offset is None else values.of(buffer.offset),
            "bytes": values.of(buffer.size),
            "size": format_dim(buffer.size),
            "first": buffer.first,
            "last": buffer.last,
        }
        for buffer, name in _buffers(steps).items()
    ]
    return {
        "function": plan.name,
        "workspace": values.of(plan.workspace),
        "peak": _peak(buffers, len(steps)),
        "steps": [_step_name(step, packed) for step in steps],
        "buffers": buffers,
    }


class _Values:
    """The values of expressions over the symbols of a function and the ends of its slots."""

    def __init__(self, plan: HostFunction, sizes: Mapping[str, int]) -> None:
        self._dims = plan.dims
        self._known: dict[tir.Var, tir.Expr] = {
            symbol: tir.IntImm(symbol.dtype, sizes[symbol.name]) for symbol in plan.symbols if symbol.name in sizes
        }
        for var, end in plan.places:
            value = self.of(end)
            if value is not None:
                self._known[var] = tir.IntImm(var.dtype, value)

    def of(self, expr: tir.Expr) -> int | None:
        return tir.const_int(self._dims.simplify(substitute(expr, self._known)))


def _peak(buffers: Sequence[Mapping[str, Any]], steps: int) -> int | None:
    if any(buffer["bytes"] is None for buffer in buffers):
        return None
    live = [sum(b["bytes"] for b in buffers if b["first"] <= at <= b["last"]) for at in range(steps)]
    return max(live, default=0)


def _buffers(steps: list[Step]) -> dict[Memory, str]:
    """Return the pieces of the workspace that steps use, in order of first use, with names."""
    found: dict[Memory, str] = {}
    for step in steps:
        roots = [tensor.memory.root() for tensor in tensors_of(step)]
        for memory in roots:
            if memory.place is MemoryKind.TEMPORARY:
                found.setdefault(memory, memory.name)
        if isinstance(step, CallKernel) and step.workspace is not None:
            found.setdefault(step.workspace.root(), f"the workspace of `{step.kernel}`")
    return found


def _step_name(step: Step, packed: Sequence[str]) -> str:
    match step:
        case CallKernel(kernel=name):
            return name
        case CallPacked(slot=slot):
            return packed[slot]
    return _NAMES.get(type(step), "next iteration")
