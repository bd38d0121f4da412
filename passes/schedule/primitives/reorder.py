"""The primitive `reorder`."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.analysis.bindings import bound_vars, remember_bindings
from mlcc.passes.schedule.analysis.checks import check_partial_affine_binding
from mlcc.passes.schedule.analysis.dependences import reorder_violation
from mlcc.passes.schedule.primitives.loop_checks import same_function
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.substitution import used_by
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def reorder(state: State, *ordered_loops: LoopRef) -> None:
    """Put loops of one nest in the given order, in the positions that they occupy together; other loops stay.

    Refused unless the loops stand in one chain, each the only statement of the one above (E0625), if one is given
    twice (E0624), if an outer loop's range would depend on an inner one (E0623), if a block inside has axes that are
    neither spatial nor reduce (E0626) or are not affine in the loops (E0638), and if an iteration would come before one
    whose result it needs, or before its init (E0633). TVM does not detect the last two.
    """
    if len(ordered_loops) <= 1:
        return
    func_name, tree = same_function(ordered_loops, "reorder"), ordered_loops[0].tree
    order = [loop.loop for loop in ordered_loops]
    for n, loop in enumerate(order):
        if loop in order[:n]:
            raise Refusal("E0624", f"loop `{loop.var.name}` is given twice", loop)
    chain = _chain(tree, order)
    _check_blocks(tree, chain)
    next_loops = iter(order)
    moved = [next(next_loops) if loop in order else loop for loop in chain]
    _check_ranges(moved)
    violation = reorder_violation(tree, chain, moved)
    if violation is not None:
        consequence, blocks = violation
        raise Refusal("E0633", f"in this order the iterations would run in another sequence, and {consequence}", blocks)
    _check_init(tree, chain, moved)
    body = chain[-1].body
    for loop in reversed(moved):
        body = (replace(loop, body=body),)
    edit = Rebuild(tree)
    edit.put(chain[0], *body)
    remember_bindings(tree, state.update(func_name, edit))


def _chain(tree: Tree, loops: list[tir.For]) -> list[tir.For]:
    """Return all loops from the outermost to the innermost of `loops`. Refuse (E0625) loops of no common chain."""
    paths = [[*tree.loops_above(loop), loop] for loop in loops]
    longest = max(paths, key=len)
    for loop, path in zip(loops, paths, strict=True):
        if loop not in longest:
            deepest = longest[-1]
            common = [a for a, b in zip(path, longest, strict=False) if a is b]
            if tree.scope(loop) is not tree.scope(deepest):
                why = "they are in different blocks"
            elif common:
                why = f"the nest branches below loop `{common[-1].var.name}`"
            else:
                why = "they are in different nests"
            raise Refusal(
                "E0625", f"loops `{loop.var.name}` and `{deepest.var.name}` are not in one chain: {why}",
                (loop, deepest),
            )  # fmt: skip
    chain = longest[min(len(path) for path in paths) - 1 :]
    for outer, inner in zip(chain, chain[1:], strict=False):
        if len(outer.body) != 1 or outer.body[0] is not inner:
            raise Refusal(
                "E0625",
                f"the loops are not in one chain: loop `{inner.var.name}` is not the only statement in loop"
                f" `{outer.var.name}`",
                (outer, inner), _reorderable(chain, loops),
            )  # fmt: skip
    return chain


def _reorderable(chain: list[tir.For], loops: list[tir.For]) -> str | None:
    """Return a hint that lists the loops which can be interchanged, None if there are none."""
    groups: list[list[str]] = [[]]
    for at, loop in enumerate(chain):
        if at and (len(chain[at - 1].body) != 1 or chain[at - 1].body[0] is not loop):
            groups.append([])
        if loop in loops:
            groups[-1].append(loop.var.name)
    groups = [group for group in groups if len(group) > 1]
    listed = " or ".join("(" + ", ".join(group) + ")" for group in groups)
    return f"loops that can be exchanged: {listed}" if groups else None


def _check_blocks(tree: Tree, chain: list[tir.For]) -> None:
    """Refuse (E0626, E0638) blocks whose axes are not spatial or reduce, or not affine in the loops."""
    above = tree.parent(chain[0])
    while above is not None and not isinstance(above, (tir.For, tir.Block)):
        above = tree.parent(above)
    for realize in tree.child_realizes(chain[-1].body):
        block = realize.block
        for axis in block.iter_vars:
            if axis.kind not in (IterKind.SPATIAL, IterKind.REDUCE):
                raise Refusal(
                    "E0626",
                    f"block `{block.name}` runs in a fixed order: its axis `{axis.var.name}` is {_KINDS[axis.kind]},"
                    " not spatial or reduce",
                    block,
                )  # fmt: skip
        if block.iter_vars:
            check_partial_affine_binding(tree, block, above)


def _check_init(tree: Tree, chain: list[tir.For], moved: list[tir.For]) -> None:
    """Refuse (E0633) to move the loops of a reduction if one of them also drives spatial axes.

    The init runs in the iteration in which all reduce axes are at their start. If the loops that drive reduce axes
    drive no others, that is the first iteration for each element, whatever the order of the loops. If a loop drives a
    spatial and a reduce axis, the value of the spatial axis restricts the iterations for an element, and the order of
    the loops decides which of these comes first.
    """
    for realize in tree.child_realizes(chain[-1].body):
        if realize.block.init is None:
            continue
        reducing = bound_vars(realize, IterKind.REDUCE)
        shared = reducing & bound_vars(realize, IterKind.SPATIAL)
        before, after = ([loop for loop in nest if loop.var in reducing] for nest in (chain, moved))
        shared_loops = [loop for loop in before if loop.var in shared]
        if shared_loops and before != after:
            listed = ", ".join(f"`{loop.var.name}`" for loop in before)
            raise Refusal(
                "E0633",
                f"the init of block `{realize.block.name}` would come after some of its updates: loop"
                f" `{shared_loops[0].var.name}` drives spatial and reduce axes together, so the order of {listed}"
                " matters",
                (*shared_loops, realize.block),
                "decompose the reduction first, or reorder before spatial and reduce loops are fused",
            )  # fmt: skip


_KINDS = {IterKind.SCAN: "ordered", IterKind.OPAQUE: "opaque", IterKind.THREAD: "a thread axis"}


def _check_ranges(moved: list[tir.For]) -> None:
    """Refuse (E0623) an order in which a loop's range would depend on a loop inside it."""
    for depth, loop in enumerate(moved):
        inner = [other.var for other in moved[depth + 1 :]]
        for what, bound in (("start", loop.min), ("extent", loop.extent)):
            used = used_by(bound, inner)
            if used:
                name = loop.var.name
                raise Refusal(
                    "E0623",
                    f"in this order loop `{name}` would be outside loop `{used[0].name}`,"
                    f" on which its {what} `{bound}` depends",
                    loop, f"keep `{used[0].name}` outside `{name}`",
                )  # fmt: skip
