"""Checks of loops shared by several loop primitives."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.state import LoopRef


def same_function(loops: Sequence[LoopRef], doing: str) -> str:
    """Return the function that contains all the loops. Refuse (E0622) loops of several functions."""
    names = list(dict.fromkeys(loop.func_name for loop in loops))
    if len(names) > 1:
        raise Refusal("E0622", f"cannot {doing} loops of different functions: {', '.join(f'`{n}`' for n in names)}")
    return names[0]


def check_plain(loop: tir.For, doing: str) -> None:
    """Refuse (E0620) a loop with annotations, a thread axis or a step, which the new loops could not keep."""
    name = loop.var.name
    if loop.thread is not None:
        raise Refusal(
            "E0620", f"cannot {doing} loop `{name}`: it is bound to `{loop.thread}`", loop,
            f"{doing} first and bind the result",
        )  # fmt: skip
    if loop.annotations:
        keys = ", ".join(f'"{key}"' for key in loop.annotations)
        raise Refusal(
            "E0620", f"cannot {doing} loop `{name}`: it is annotated with {keys}", loop,
            f"remove it before and annotate the result: `sch.unannotate(loop, {next(iter(loop.annotations))!r})`",
        )  # fmt: skip
    if loop.step is not None and tir.const_int(loop.step) != 1:
        raise Refusal("E0620", f"cannot {doing} loop `{name}`: it counts in steps of {loop.step}", loop)
