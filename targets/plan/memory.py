"""Workspace planning: temporaries with disjoint live ranges share memory.

Temporaries of constant size are packed largest first, each at the lowest offset that is free during its live range.
Those of symbolic size share slots; the size of a slot, the maximum of its temporaries', is computed at entry.
"""

from __future__ import annotations

import bisect

from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT64
from mlcc.runtime.abi import ALIGNMENT
from mlcc.targets.plan.dims import Dims
from mlcc.targets.plan.steps import (
    Branch,
    CallKernel,
    Copy,
    HostFunction,
    Loop,
    Memory,
    MemoryKind,
    Step,
    tensors_of,
    walk_steps,
)


def assign_workspace(func: HostFunction) -> None:
    """Remove self-copies, number the steps, and assign every live temporary its offset in the workspace."""
    func.steps = remove_redundant_copies(func.steps)
    temporaries = live_ranges(func)
    fixed = [m for m in temporaries if isinstance(m.size, tir.IntImm)]
    symbolic = [m for m in temporaries if not isinstance(m.size, tir.IntImm)]
    func.fixed_bytes = pack_fixed(fixed)
    func.places = share_slots(symbolic, func.fixed_bytes, func.dims)


def remove_redundant_copies(steps: list[Step]) -> list[Step]:
    """Remove copies of memory to itself, and empty branches."""
    needed: list[Step] = []
    for step in steps:
        if isinstance(step, Copy) and _is_self_copy(step):
            continue
        if isinstance(step, Branch):
            step.then_steps = remove_redundant_copies(step.then_steps)
            step.else_steps = remove_redundant_copies(step.else_steps)
            if not step.then_steps and not step.else_steps:
                continue
        if isinstance(step, Loop):
            step.steps = remove_redundant_copies(step.steps)
        needed.append(step)
    return needed


def _is_self_copy(step: Copy) -> bool:
    same = step.target.memory.root() is step.source.memory.root()
    return same and step.target.offset is step.source.offset


def live_ranges(func: HostFunction) -> list[Memory]:
    """Number the steps and compute the live range of every used temporary; return these in order of first use.

    A temporary that is live into a loop and used there is live until its end: the next iteration needs it.
    """
    temporaries: dict[Memory, None] = {}
    steps = list(walk_steps(func.steps))
    for number, step in enumerate(steps):
        step.number = number
        memories = [t.memory for t in tensors_of(step)]
        if isinstance(step, CallKernel) and step.workspace is not None:
            memories.append(step.workspace)
        for memory in memories:
            root = memory.root()
            if root.place is not MemoryKind.TEMPORARY:
                continue
            temporaries.setdefault(root)
            root.first = number if root.first < 0 else root.first
            root.last = number
    loops = [step for step in steps if isinstance(step, Loop)]
    for step in reversed(loops):  # inner ones first
        end = max([step.number, *(s.number for s in walk_steps(step.steps))])
        for memory in temporaries:
            if memory.first < step.number <= memory.last < end:
                memory.last = end
    return list(temporaries)


def pack_fixed(memories: list[Memory]) -> int:
    """Assign offsets to temporaries of constant size; return the bytes needed."""
    placed: list[tuple[int, int, int, int]] = []  # start, end, first and last step, in order of start
    top = 0
    for memory in sorted(memories, key=lambda m: (-_bytes(m), m.first)):
        size, first, last = _bytes(memory), memory.first, memory.last
        offset = 0
        for start, end, other_first, other_last in placed:
            if other_last < first or last < other_first:
                continue
            if start - offset >= size:
                break
            if end > offset:
                offset = end
        memory.offset = tir.IntImm(INT64, offset)
        bisect.insort(placed, (offset, offset + size, first, last))
        top = max(top, offset + size)
    return top


def _bytes(memory: Memory) -> int:
    assert isinstance(memory.size, tir.IntImm)
    return -(-memory.size.value // ALIGNMENT) * ALIGNMENT


def share_slots(memories: list[Memory], start: int, dims: Dims) -> list[tuple[tir.Var, tir.Expr]]:
    """Assign offsets from `start` on to temporaries of symbolic size.

    Return a variable for the end of each slot, with its value in terms of the previous one.
    """
    slots: list[list[Memory]] = []
    sizes: list[dict[int, tir.Expr]] = []  # sizes of a slot's temporaries, by key
    for memory in sorted(memories, key=lambda m: m.first):
        free = [i for i, slot in enumerate(slots) if slot[-1].last < memory.first]
        key = dims.key(memory.size)
        # prefer a slot of the same size, else the one freed last
        same = [i for i in free if key in sizes[i]]
        if not free:
            slots.append([])
            sizes.append({})
            free = [len(slots) - 1]
        chosen = same[0] if same else max(free, key=lambda i: slots[i][-1].last if slots[i] else -1)
        slots[chosen].append(memory)
        sizes[chosen].setdefault(key, memory.size)
    ends: list[tuple[tir.Var, tir.Expr]] = []
    end: tir.Expr = tir.IntImm(INT64, start)
    for number, (slot, slot_sizes) in enumerate(zip(slots, sizes, strict=True)):
        for memory in slot:
            memory.offset = end
        size = largest(list(slot_sizes.values()), dims)
        if not dims.never_negative(size):
            size = c.maximum(size, 0)
        rounded = c.mul(c.floordiv(c.add(size, ALIGNMENT - 1), ALIGNMENT), ALIGNMENT)
        var = tir.Var(f"end{number}", INT64)
        ends.append((var, c.add(end, dims.simplify(rounded))))
        end = var
    return ends


def largest(sizes: list[tir.Expr], dims: Dims) -> tir.Expr:
    """Return the maximum of some sizes as a balanced expression."""
    while len(sizes) > 1:
        pairs = [dims.simplify(c.maximum(a, b)) for a, b in zip(sizes[::2], sizes[1::2], strict=False)]
        sizes = pairs + ([sizes[-1]] if len(sizes) % 2 else [])
    return sizes[0]
