"""transform_block_layout: other axes, and other loops, for a block."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.arith import index_map as im
from mlcc.arith.analyzer import Analyzer
from mlcc.arith.index_map import IndexMapError
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import INT32
from mlcc.ir.node import replace
from mlcc.ir.visit import substitute, used_vars
from mlcc.passes.schedule.analysis.bindings import vars_of
from mlcc.passes.schedule.analysis.block_access import with_regions
from mlcc.passes.schedule.analysis.checks import (
    check_loop_starts_at_zero,
    check_single_child,
    check_trivial_binding,
    scope_root,
)
from mlcc.passes.schedule.analysis.dependences import carried_dependence
from mlcc.passes.schedule.index_maps import IndexMapArg, index_map_text, resolve_sampled
from mlcc.passes.schedule.primitives.layout import map_with_dtype, shape_analyzer
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite.layout_rewrite import AccessSimplifier
from mlcc.passes.schedule.state import BlockRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def transform_block_layout(state: State, block: BlockRef, index_map: IndexMapArg) -> None:
    """Run a block over other axes: `lambda i, j: (i * 16 + j,)` makes one axis, and one loop, of two.

    The block is alone in its loops, which are its axes one by one. Refused: the root block and other loops (E0638,
    E0639, E0655), a map that is not one to one over the axes (E0677), that mixes spatial and reduce axes in one
    (E0678), or that brings iterations before others whose results they need (E0633). TVM: `transform_block_layout`.
    """
    tree, old, realize = block.tree, block.block, block.realize
    scope_root(tree, old)
    loops = tree.loops_above(old)
    for loop in loops:
        check_loop_starts_at_zero(loop)
    if loops:
        check_single_child(tree, loops[0])
    check_trivial_binding(tree, old)
    _check_extents(old, loops)
    axes = old.iter_vars
    dtype = axes[0].var.dtype if axes else INT32
    mapping, state.recorded["index_map"] = resolve_sampled(block, map_with_dtype(index_map.of(len(axes), dtype), dtype))
    analyzer = shape_analyzer(tree.func)
    sizes = [axis.dom.extent for axis in axes]
    try:
        mapped = im.map_indices(mapping, [axis.var for axis in axes], analyzer)
        new_sizes = im.map_shape(mapping, sizes, analyzer)
        ranges = [tir.Range(c.const(0, size.dtype), size) for size in sizes]
        back = im.inverse(mapping, ranges, analyzer)
    except IndexMapError as exc:
        message = f"{index_map_text(mapping)} is not one-to-one over the axes of block `{old.name}`: {exc}"
        raise Refusal("E0677", message, old) from None
    _check_order(tree, loops, mapping, new_sizes)
    if new_sizes:
        _check_loop_variables(tree, old)
    kinds = {axis.var: axis.kind for axis in axes}
    new_axes = tuple(
        tir.IterVar(
            tir.Var(f"v{n}", value.dtype), tir.Range(c.const(0, value.dtype), c.cast(value.dtype, size)),
            _kind(old, value, size, kinds),
        )
        for n, (value, size) in enumerate(zip(mapped, new_sizes, strict=True))
    )  # fmt: skip
    values = im.map_indices(back, [axis.var for axis in new_axes], analyzer)
    inside = replace(with_regions(old), iter_vars=())
    new_block = replace(substitute(inside, {a.var: v for a, v in zip(axes, values, strict=True)}), iter_vars=new_axes)
    simplifier = AccessSimplifier()
    new_block = simplifier.block(new_block)
    variables = tuple(tir.Var(f"ax{n}", axis.var.dtype) for n, axis in enumerate(new_axes))
    before = im.map_indices(back, variables, analyzer)
    predicate = substitute(realize.predicate, {loop.var: v for loop, v in zip(loops, before, strict=True)})
    nest: tir.Stmt = replace(realize, values=variables, predicate=predicate, block=new_block)
    for var, size in zip(reversed(variables), reversed(new_sizes), strict=True):
        nest = tir.For(var, c.const(0, var.dtype), c.cast(var.dtype, size), tir.ForKind.SERIAL, (nest,))
    edit = Rebuild(tree)
    edit.put(loops[0] if loops else realize, nest)
    state.update(block.func_name, edit, {old: new_block})


def _check_order(tree: Tree, loops: list[tir.For], mapping: tir.IndexMap, sizes: Sequence[tir.Expr]) -> None:
    """Refuse (E0633) another order of iterations if one of them uses what another one computes."""
    analyzer = Analyzer()
    for var, loop in zip(mapping.indices, loops, strict=True):
        analyzer.bind(var, tir.Range(loop.min, loop.extent))
    position = _linear_position(mapping.indices, [loop.extent for loop in loops])
    if not loops or analyzer.prove_equal(position, _linear_position(mapping.result, sizes)):
        return
    violation = carried_dependence(tree, loops)
    if violation is not None:
        words, blocks = violation
        raise Refusal(
            "E0633", f"with {index_map_text(mapping)} the iterations would run in another order, and {words}", blocks
        )


def _linear_position(indices: Sequence[tir.Expr], extents: Sequence[tir.Expr]) -> tir.Expr:
    """Return the linear (row-major) number of the iteration at `indices` in a nest of these extents."""
    position: tir.Expr = c.const(0)
    for index, extent in zip(indices, extents, strict=True):
        position = c.add(c.mul(position, extent), index)
    return position


def _check_extents(block: tir.Block, loops: list[tir.For]) -> None:
    """Refuse (E0638) loops that leave out a part of an axis, since the new loops would run over all of it."""
    analyzer = Analyzer()
    for loop, axis in zip(loops, block.iter_vars, strict=True):
        analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
        if not analyzer.prove(c.greater_equal(loop.extent, axis.dom.extent)):
            raise Refusal(
                "E0638",
                f"the loop `{loop.var.name}` runs over {loop.extent} values, but the axis `{axis.var.name}` of block"
                f" `{block.name}` has {axis.dom.extent}", (loop, block),
            )  # fmt: skip


def _check_loop_variables(tree: Tree, block: tir.Block) -> None:
    """Refuse (E0638) axes for a block that uses the variables of loops around it, as one without axes may."""
    around = {node.var for node in tree.ancestors(tree.realize(block)) if isinstance(node, tir.For)}
    used = sorted(var.name for var in around & used_vars(block))
    if used:
        words = f"block `{block.name}` uses the loop variable `{used[0]}` directly, not by an axis"
        raise Refusal("E0638", f"{words}: it can have no other axes", block)


def _kind(block: tir.Block, value: tir.Expr, size: tir.Expr, kinds: dict[tir.Var, tir.IterKind]) -> tir.IterKind:
    if tir.const_int(size) == 1:
        return tir.IterKind.SPATIAL
    axis_kinds = {kinds[v] for v in vars_of(value) if v in kinds}
    if len(axis_kinds) == 1 and axis_kinds != {tir.IterKind.OPAQUE}:
        return axis_kinds.pop()
    message = f"axis `{value}` of block `{block.name}` would combine spatial and reduce axes"
    raise Refusal(
        "E0678", message, block, "combine spatial axes only with spatial axes, and reduce axes only with reduce axes"
    )
