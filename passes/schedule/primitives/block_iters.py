"""The primitives `reorder_block_iter_var` and `add_unit_loop`."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import replace
from mlcc.ir.tir import ForKind, IntImm
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def reorder_block_iter_var(state: State, block: BlockRef, new_order: list[int]) -> None:
    """Reorder the axes of a block: first the one that was number `new_order[0]`, and so on.

    Refused unless `new_order` is a permutation (E0631).
    """
    old, realize = block.block, block.realize
    count = len(old.iter_vars)
    if sorted(new_order) != [*range(count)]:
        axes = ", ".join(f"{n} is `{axis.var.name}`" for n, axis in enumerate(old.iter_vars)) or "none"
        raise Refusal(
            "E0631",
            f"{new_order} is not a permutation of the {count} axes of block `{old.name}`",
            old,
            f"its axes: {axes}",
        )
    reordered = replace(old, iter_vars=tuple(old.iter_vars[n] for n in new_order))
    edit = Rebuild(block.tree)
    edit.put(realize, replace(realize, block=reordered, values=tuple(realize.values[n] for n in new_order)))
    state.update(block.func_name, edit, {old: reordered})


@primitive()
def add_unit_loop(state: State, block_or_loop: BlockRef | LoopRef) -> LoopRef:
    """Add a loop `u` of one iteration around a block or a loop.

    Refused for the root block (E0632).
    """
    tree = block_or_loop.tree
    place: tir.Stmt = block_or_loop.node
    if isinstance(place, tir.Block):
        if tree.scope(place) is None:
            raise Refusal("E0632", f"a loop cannot be added around the root block `{place.name}`", place)
        place = tree.realize(place)
    var = tir.Var("u", INT32)
    edit = Rebuild(tree)
    edit.put(place, tir.For(var, IntImm(INT32, 0), IntImm(INT32, 1), ForKind.SERIAL, (place,)))
    state.update(block_or_loop.func_name, edit)
    return state.loop_ref(block_or_loop.func_name, var)
