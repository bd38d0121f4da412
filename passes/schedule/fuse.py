"""The primitives `fuse` and `merge`."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, ForKind, IntImm, const_int
from mlcc.passes.schedule.checks import check_loop_starts_at_zero
from mlcc.passes.schedule.loop_checks import check_plain
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.rewrite import Reuse, simplify_bindings, substitute_vars, used_by
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree


@primitive()
def fuse(state: State, *loops: LoopRef, preserve_unit_iters: bool = True) -> LoopRef:
    """One loop in the place of several that stand directly inside each other, outermost first.

    The loops `i` and `j` become `i_j_fused`. Refused for loops with annotations or a thread axis (E0620), that do not
    start at 0 (E0639), that are not each the only statement of the one before (E0622), or whose extent depends on
    another of them (E0623).
    """
    if not loops:
        raise Refusal("E0622", "`fuse` needs at least one loop")
    func_name, tree = loops[0].func_name, loops[0].tree
    olds = [loop.loop for loop in loops]
    _check_fusible(tree, olds)
    analyzer = Analyzer()
    name = "_".join(loop.var.name for loop in olds) + "_fused"
    fused = tir.Var(name, DType.of(f"int{max(loop.var.dtype.bits for loop in olds)}"))
    values: dict[tir.Var, Expr] = {}
    lower: Expr = c.const(1)
    for loop in reversed(olds[1:]):
        upper = analyzer.simplify(c.mul(loop.extent, lower))
        values[loop.var] = c.floordiv(c.floormod(fused, upper), lower) if const_int(loop.extent) != 1 else c.const(0)
        lower = upper
    values[olds[0].var] = c.floordiv(fused, lower) if const_int(olds[0].extent) != 1 else c.const(0)
    extent: Expr = c.const(1)
    for loop in olds:
        extent = c.mul(extent, loop.extent)
    extent = analyzer.simplify(extent)
    if isinstance(extent, IntImm):
        extent = IntImm(fused.dtype, extent.value)
    reuse: Reuse = {}
    body = substitute_vars(olds[-1].body, values, reuse)
    made = tir.For(fused, IntImm(fused.dtype, 0), extent, ForKind.SERIAL, body, span=olds[0].span)
    edit = Rebuild(tree)
    edit.put(olds[0], simplify_bindings(made, tree.loops_above(olds[0]), preserve_unit_iters, reuse))
    state.update(func_name, edit, reuse)
    return state.loop_ref(func_name, fused)


def _check_fusible(tree: Tree, loops: list[tir.For]) -> None:
    for n, loop in enumerate(loops):
        check_plain(loop, "fuse")
        if n:
            _check_directly_inside(tree, loops[n - 1], loop)
        check_loop_starts_at_zero(loop)
        outer = used_by(loop.extent, [other.var for other in loops[:n]])
        if outer:
            raise Refusal(
                "E0623",
                f"cannot fuse: the extent `{loop.extent}` of loop `{loop.var.name}` depends on loop `{outer[0].name}`",
                loop, "only loops whose extents do not depend on each other form a box that one loop can run through",
            )  # fmt: skip


def _check_directly_inside(tree: Tree, outer: tir.For, inner: tir.For) -> None:
    """Refuses (E0622) unless `inner` is all that `outer` holds."""
    if len(outer.body) == 1 and outer.body[0] is inner:
        return
    a, b = outer.var.name, inner.var.name
    if outer is inner:
        raise Refusal("E0622", f"loop `{a}` is given twice", outer)
    at = (outer, inner)
    if tree.is_under(outer, inner):
        raise Refusal("E0622", f"loop `{a}` is inside `{b}`", at, "give the loops from the outermost to the innermost")
    if not tree.is_under(inner, outer):
        raise Refusal("E0622", f"loop `{b}` is not inside loop `{a}`", at)
    between = [
        loop.var.name for loop in tree.all_loops_above(inner) if loop is not outer and tree.is_under(loop, outer)
    ]
    if between:
        listed = ", ".join(f"`{name}`" for name in between)
        raise Refusal(
            "E0622", f"loop `{b}` is not directly inside `{a}`: {listed} lies between", at,
            "fuse that too, or `sch.reorder` the loops first",
        )  # fmt: skip
    raise Refusal("E0622", f"loop `{b}` is not the only statement in loop `{a}`", at)
