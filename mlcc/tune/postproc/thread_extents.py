"""The thread extents of a block, computed from its trace without replaying it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mlcc.passes.schedule.trace import Instruction

LOW, HIGH = "meta_schedule.thread_extent_low_inclusive", "meta_schedule.thread_extent_high_inclusive"


def respects_thread_limits(steps: Sequence[Instruction], most_virtual: int) -> bool:
    """Return True if thread extents respect the blocks' annotations, with at most `most_virtual` vthreads on an axis.

    Also True where the steps do not determine the extents.
    """
    values: dict[Any, int | None] = {}  # decisions and loop extents
    blocks: dict[Any, Any] = {}  # by loop
    threads: dict[Any, dict[str, int | None]] = {}
    limits: dict[Any, dict[str, int]] = {}
    for inst in steps:
        given, outputs = inst.arguments, inst.outputs
        match inst.name:
            case "sample_perfect_tile" | "sample_partitioned_tile" if inst.decision is not None:
                values.update(zip(outputs, inst.decision, strict=True))
            case "sample_categorical" if inst.decision is not None:
                values[outputs[0]] = given["candidates"][inst.decision]
            case "get_loops":
                blocks.update(dict.fromkeys(outputs, given["block"]))
            case "split":
                values.update(
                    (loop, _factor_extent(f, values)) for loop, f in zip(outputs, given["factors"], strict=True)
                )
                blocks.update(dict.fromkeys(outputs, blocks.get(given["loop"])))
            case "fuse":
                values[outputs[0]] = _product([values.get(loop) for loop in inst.rest])
                blocks[outputs[0]] = blocks.get(inst.rest[0])
            case "bind":
                axis, extent = given["thread_axis"], values.get(given["loop"])
                if axis.startswith("vthread") and (extent or 0) > most_virtual:
                    return False
                if axis.startswith("threadIdx"):
                    threads.setdefault(blocks.get(given["loop"]), {})[axis] = extent
            case "annotate" if given["ann_key"] in (LOW, HIGH):
                limits.setdefault(given["block_or_loop"], {})[given["ann_key"]] = given["ann_val"]
    return all(_within(threads.get(block, {}), limit) for block, limit in limits.items())


def _factor_extent(factor: Any, values: dict[Any, int | None]) -> int | None:
    return factor if isinstance(factor, int) else values.get(factor)


def _product(extents: Sequence[int | None]) -> int | None:
    known = [n for n in extents if n is not None]
    return math.prod(known) if len(known) == len(extents) else None


def _within(threads: dict[str, int | None], limit: dict[str, int]) -> bool:
    count = _product([*threads.values()])
    return count is None or not threads or limit.get(LOW, 0) <= count <= limit.get(HIGH, count)
