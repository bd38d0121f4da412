"""The primitives `annotate`, `unannotate` and `mark_scheduled`."""

from __future__ import annotations

from typing import Any

from mlcc.errors import did_you_mean
from mlcc.ir import tir
from mlcc.ir.node import EMPTY, Attrs, freeze, replace
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import describe, primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def annotate(state: State, block_or_loop: BlockRef | LoopRef, ann_key: str, ann_val: Any) -> None:
    """Attach a value to a block or loop for later passes. An existing value under the same key is kept.

    Values are numbers, strings, and lists and maps of them. Refused for others (E0693).
    """
    if not _is_value(ann_val):
        raise Refusal(
            "E0693", f"the annotation `{ann_key}` cannot be {describe(ann_val)}", block_or_loop.node,
            "values must be numbers, strings, lists or maps of them",
        )  # fmt: skip
    if ann_key in _FLAGS and isinstance(ann_val, int):
        ann_val = bool(ann_val)
    known = block_or_loop.node.annotations
    if ann_key not in known:
        _set_annotations(state, block_or_loop, known.with_item(ann_key, freeze(ann_val)))


# keys whose values are True or False in TVM's programs, and 1 or 0 in the traces that it prints
_FLAGS = frozenset({"meta_schedule.layout_rewrite_preproc"})


@primitive()
def unannotate(state: State, block_or_loop: BlockRef | LoopRef, ann_key: str) -> None:
    """Remove an annotation.

    Refused if there is none under the key (E0693).
    """
    known, node = block_or_loop.node.annotations, block_or_loop.node
    if ann_key not in known:
        what = f"loop `{node.var.name}`" if isinstance(node, tir.For) else f"block `{node.name}`"
        help = did_you_mean(ann_key, known) or f"its annotations: {', '.join(known) or 'none'}"
        raise Refusal("E0693", f"{what} has no annotation `{ann_key}`", node, help)
    left = known.without(ann_key)
    _set_annotations(state, block_or_loop, left if left else EMPTY)


@primitive()
def mark_scheduled(state: State, func_name: str | None = None) -> None:
    """Set the attribute `tir.is_scheduled` of a function, so that rules leave it alone.

    `func_name` is found as in `get_block`. Refused if no such function is there (E0616). TVM has no such step.
    """
    func_name = state.function_name(func_name)
    state.recorded["func_name"] = func_name
    state.update(func_name, state.func(func_name).with_attr("tir.is_scheduled", True))


def _set_annotations(state: State, place: BlockRef | LoopRef, annotations: Attrs) -> None:
    edit = Rebuild(place.tree)
    if isinstance(place, BlockRef):
        edit.put_block(place.block, replace(place.block, annotations=annotations))
    else:
        edit.put(place.loop, replace(place.loop, annotations=annotations))
    state.update(place.func_name, edit)


def _is_value(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_value, value))
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is_value(v) for k, v in value.items())
    return isinstance(value, (bool, int, float, str, tir.IntImm, tir.FloatImm, tir.StringImm))
