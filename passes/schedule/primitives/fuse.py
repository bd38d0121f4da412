"""The primitives `fuse` and `merge`."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.ir.tir import Expr, ForKind, IntImm, const_int
from mlcc.ir.visit import fresh_var_like
from mlcc.passes.schedule.analysis.bindings import remember_bindings
from mlcc.passes.schedule.analysis.checks import check_loop_starts_at_zero
from mlcc.passes.schedule.analysis.dependences import conflicting_buffers, merge_violation
from mlcc.passes.schedule.primitives.loop_checks import check_plain, same_function
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import LoopRef, State
from mlcc.passes.schedule.substitution import Reuse, simplify_bindings, substitute_vars, used_by
from mlcc.passes.schedule.tree import Body, Rebuild, Tree

_MAX_NAME = 80  # characters of a name


@primitive()
def fuse(state: State, *loops: LoopRef, preserve_unit_iters: bool = True) -> LoopRef:
    """Fuse directly nested loops, outermost first, into one loop.

    The loops `i` and `j` become `i_j_fused`. Refused for loops with annotations or a thread axis (E0620), that do not
    start at 0 (E0639), that are not each the only statement of the one before (E0622), or whose extent depends on
    another of them (E0623).
    """
    if not loops:
        raise Refusal("E0622", "`fuse` needs at least one loop")
    func_name, tree = same_function(loops, "fuse"), loops[0].tree
    olds = [loop.loop for loop in loops]
    _check_fusible(tree, olds)
    analyzer = Analyzer()
    name = "_".join(loop.var.name for loop in olds) + "_fused"
    if len(name) > _MAX_NAME:  # names are hints: after many steps back and forth this one would double with each
        name = "fused"
    fused = tir.Var(name, DType.of(f"int{max(loop.var.dtype.bits for loop in olds)}"))
    values: dict[tir.Var, Expr] = {}
    lower: Expr = c.const(1)
    for loop in reversed(olds[1:]):
        upper = lower if const_int(loop.extent) == 0 else analyzer.simplify(c.mul(loop.extent, lower))
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
    new_loop = tir.For(fused, IntImm(fused.dtype, 0), extent, ForKind.SERIAL, body, span=olds[0].span)
    edit = Rebuild(tree)
    edit.put(olds[0], simplify_bindings(new_loop, tree.loops_above(olds[0]), preserve_unit_iters, reuse))
    remember_bindings(tree, state.update(func_name, edit, reuse))
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
                loop, "only loops with independent extents can be fused",
            )  # fmt: skip


def _check_directly_inside(tree: Tree, outer: tir.For, inner: tir.For) -> None:
    """Refuse (E0622) unless `inner` is the only statement in `outer`."""
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
            "E0622", f"loop `{b}` is not directly inside `{a}`: {listed} is between them", at,
            "fuse that too, or apply `sch.reorder` first",
        )  # fmt: skip
    raise Refusal("E0622", f"loop `{b}` is not the only statement in loop `{a}`", at)


@primitive()
def merge(state: State, *loops: LoopRef) -> LoopRef:
    """Merge several nests of equal extents into one, with their bodies in the given order.

    The loops are the innermost ones to be merged: those above them, up to where the nests part, are merged along. The
    new loops of `i` are `i_m`; the merged nest stands where the last one given stood. Returns the innermost.

    Refused for loops with annotations or a thread axis (E0620), that do not start at 0 (E0639), that are not each the
    only statement of the one above (E0622), for nests of other depth or extents (E0630), and where a value would be
    used before it is there (E0633).
    """
    if len(loops) < 2:
        raise Refusal("E0630", "`merge` needs at least two loops", tuple(loop.loop for loop in loops))
    func_name, tree = same_function(loops, "merge"), loops[0].tree
    nests = _nests(tree, [loop.loop for loop in loops])
    _check_nests(tree, nests)
    _check_order(tree, nests)
    merged = [fresh_var_like(loop.var, "_m") for loop in nests[0]]
    reuse: Reuse = {}
    body: Body = ()
    for nest in nests:
        body += substitute_vars(nest[-1].body, dict(zip((loop.var for loop in nest), merged, strict=True)), reuse)
    for var, loop in zip(reversed(merged), reversed(nests[0]), strict=True):
        body = (tir.For(var, IntImm(var.dtype, 0), loop.extent, ForKind.SERIAL, body, span=loop.span),)
    edit = Rebuild(tree)
    for nest in nests[:-1]:
        edit.put(nest[0])
    edit.put(nests[-1][0], *body)
    state.update(func_name, edit, reuse)
    return state.loop_ref(func_name, merged[-1])


def _nests(tree: Tree, loops: list[tir.For]) -> list[list[tir.For]]:
    """Return the nest of each loop below their common ancestor, outermost first. Raises Refusal E0630."""
    paths = [[loop, *(at for at in tree.ancestors(loop) if isinstance(at, (tir.For, tir.Block)))] for loop in loops]
    ancestor = next(at for at in paths[0] if all(at in path for path in paths))
    if ancestor in loops:
        assert isinstance(ancestor, tir.For)
        other = next((loop for loop in loops if loop is not ancestor), ancestor)
        why = "is given twice" if other is ancestor else f"holds loop `{other.var.name}`"
        raise Refusal("E0630", f"cannot merge: loop `{ancestor.var.name}` {why}", (ancestor, other))
    nests = []
    for loop, path in zip(loops, paths, strict=True):
        above = path[: path.index(ancestor)]
        inside = next((at for at in above if isinstance(at, tir.Block)), None)
        if inside is not None:
            raise Refusal(
                "E0630",
                f"cannot merge: loop `{loop.var.name}` is in block `{inside.name}`, but not all loops are",
                loop,
            )
        nests.append([at for at in reversed(above) if isinstance(at, tir.For)])
        if tree.parent(nests[-1][0]) is not ancestor:
            raise Refusal("E0630", f"cannot merge: loop `{nests[-1][0].var.name}` runs under a condition", nests[-1][0])
    return nests


def _check_nests(tree: Tree, nests: list[list[tir.For]]) -> None:
    analyzer = Analyzer()
    for nest in nests:
        for outer, inner in zip([None, *nest], nest, strict=False):
            check_plain(inner, "merge")
            check_loop_starts_at_zero(inner, analyzer)
            if outer is not None:
                _check_directly_inside(tree, outer, inner)
    for nest in nests[1:]:
        first, other = [_loop_names(x) for x in (nests[0], nest)]
        at = (nests[0][-1], nest[-1])
        if len(nest) != len(nests[0]):
            raise Refusal("E0630", f"cannot merge nests of different depth: ({first}) and ({other})", at)
        for a, b in zip(nests[0], nest, strict=True):
            if not analyzer.prove_equal(a.extent, b.extent):
                raise Refusal(
                    "E0630",
                    f"cannot merge ({first}) and ({other}): loop `{a.var.name}` has the extent {a.extent},"
                    f" loop `{b.var.name}` {b.extent}",
                    (a, b),
                )  # fmt: skip


def _loop_names(nest: list[tir.For]) -> str:
    return ", ".join(loop.var.name for loop in nest)


def _check_order(tree: Tree, nests: list[list[tir.For]]) -> None:
    """Refuse (E0633) to move a nest past a statement that it depends on, or to interleave dependent iterations."""
    violation = merge_violation(tree, nests)
    if violation is not None:
        words, blocks = violation
        raise Refusal("E0633", f"after the merge, the iterations would run in another order, and {words}", blocks)
    ancestor = tree.parent(nests[0][0])
    assert isinstance(ancestor, (tir.For, tir.Block))
    body = list(ancestor.body)
    heads = [nest[0] for nest in nests]
    target = body.index(heads[-1])
    for head in heads[:-1]:
        at = body.index(head)
        for between in body[min(at, target) + 1 : max(at, target)]:
            buffers = [] if between in heads else list(conflicting_buffers(head, between))
            if buffers:
                raise Refusal(
                    "E0633",
                    f"loop `{head.var.name}` cannot be moved past a statement that also accesses `{buffers[0].name}`",
                    (head, between), "merge the statements between them too",
                )  # fmt: skip
