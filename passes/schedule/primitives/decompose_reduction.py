"""decompose_reduction: the init of a reduction as a separate block."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.arith.iter_map import detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import bound_vars, vars_of
from mlcc.passes.schedule.analysis.block_access import with_loads_declared
from mlcc.passes.schedule.analysis.checks import check_reduction_block, scope_root
from mlcc.passes.schedule.analysis.first_iteration import first_iteration_condition
from mlcc.passes.schedule.analysis.scope import escaping_write, scope_info
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild


@primitive()
def decompose_reduction(state: State, block: BlockRef, loop: LoopRef) -> BlockRef:
    """Split a reduction block `B` into `B_init`, before `loop`, and `B_update`; the handle of `B` means the update.

    `loop` stands above all loops that drive reduce axes. Refused: a block that is no reduction (E0656), a loop that is
    not around it (E0661) or below a reduction loop (E0662), and where one init before the loop would not do for all
    its iterations (E0663). Returns the init block. TVM: `decompose_reduction`, which does not see the last case.
    """
    tree, old, realize = block.tree, block.block, block.realize
    loops = tree.loops_above(old)
    target = loop.loop
    scope_root(tree, old)
    if target not in loops:
        names = ", ".join(f"`{at.var.name}`" for at in loops) or "none"
        message = f"loop `{target.var.name}` is not around block `{old.name}`"
        raise Refusal("E0661", message, (target, old), f"the loops around the block: {names}")
    check_reduction_block(tree, old, scope_root(tree, old))
    position = loops.index(target)
    above, below = loops[:position], loops[position:]
    _check_above_reduction(block, target, above)
    axes, values, renamed = [], [], {}
    for axis, value in zip(old.iter_vars, realize.values, strict=True):
        if axis.kind is tir.IterKind.SPATIAL:
            var = tir.Var(axis.var.name, axis.var.dtype)
            renamed[axis.var] = var
            axes.append(replace(axis, var=var))
            values.append(value)
    used = set().union(*map(vars_of, values))
    chosen = [at for at in below if at.var in used]
    discarded = {at.var for at in below if at.var not in used}
    _check_single_init(block, below, chosen)
    assert old.init is not None
    init = tir.Block(
        f"{old.name}_init", tuple(axes), (), substitute(old.writes, renamed), substitute(old.init, renamed),
        annotations=old.annotations,
    )  # fmt: skip
    init = with_loads_declared(init)
    predicate = _init_condition(block, {at.var: at.min for at in below if at.var in discarded}, used)
    body: tir.Stmt = tir.BlockRealize(tuple(values), predicate, init)
    fresh = {at.var: tir.Var(f"{at.var.name}_init", at.var.dtype) for at in chosen}
    for at in reversed(chosen):
        body = replace(at, var=fresh[at.var], body=(body,))
    body = substitute(body, {**fresh})
    read = {r.buffer for r in old.reads}
    accumulated = tuple(w for w in old.writes if w.buffer not in read)
    update = replace(old, name=f"{old.name}_update", init=None, reads=(*accumulated, *old.reads))
    edit = Rebuild(tree)
    edit.before(target, body)
    edit.put_block(old, update)
    new_tree = state.update(block.func_name, edit)
    return state.block_ref(block.func_name, new_tree.child_realizes((body,))[0].block)


def _check_above_reduction(block: BlockRef, target: tir.For, above: list[tir.For]) -> None:
    """Refuse a target below a loop that drives a reduce axis."""
    for axis, value in zip(block.block.iter_vars, block.realize.values, strict=True):
        if axis.kind is not tir.IterKind.REDUCE:
            continue
        driving = [at for at in above if at.var in vars_of(value)]
        if driving:
            raise Refusal(
                "E0662",
                f"the init would run again for every `{driving[0].var.name}`: that loop is above "
                f"`{target.var.name}` and drives the reduce axis `{axis.var.name}` of block `{block.block.name}`",
                (driving[0], target, block.block),
                f"decompose at `{driving[0].var.name}` or a loop above it, or reorder the loops first",
            )


def _check_single_init(block: BlockRef, below: list[tir.For], chosen: list[tir.For]) -> None:
    """Refuse a target at which one init cannot serve all iterations at and below it."""
    old, realize = block.block, block.realize
    driving = set().union(*map(vars_of, realize.values))
    for at in below:
        if at.var not in driving and tir.const_int(at.extent) != 1:
            raise Refusal(
                "E0663",
                f"loop `{at.var.name}` repeats block `{old.name}` without driving any of its axes: each iteration "
                "starts with the init, and would not if the init ran once before the loop",
                (at, old),
                "decompose at a loop below it",
            )
    indexed = set().union(*(vars_of(span.min) for region in old.writes for span in region.region))
    for axis, value in zip(old.iter_vars, realize.values, strict=True):
        spatial = axis.kind is tir.IterKind.SPATIAL and axis.var not in indexed
        moved = [at for at in chosen if at.var in vars_of(value) and tir.const_int(at.extent) != 1]
        if spatial and moved and tir.const_int(axis.dom.extent) != 1:
            names = ", ".join(f"`{w.buffer.name}`" for w in old.writes)
            raise Refusal(
                "E0663",
                f"{names} does not have a separate element for each value of axis `{axis.var.name}`: every iteration "
                f"of loop `{moved[0].var.name}` needs its init before it",
                (moved[0], old),
                "decompose at a loop below it",
            )


def _init_condition(block: BlockRef, start: dict[tir.Var, tir.Expr], used: set[tir.Var]) -> tir.Expr:
    """The predicate of the init, which the loops of `start` are not around.

    What the block's says of these loops alone goes. What it says of them and others goes too, as in TVM, where it
    leaves elements undefined that nothing else writes; elsewhere it holds for the init where it does when they begin.
    """
    guard: tir.Expr = tir.TRUE
    analyzer = Analyzer()
    for at in block.tree.loops_above(block.block):
        analyzer.bind(at.var, tir.Range(at.min, at.extent))
    for part in conjunct_operands(block.realize.predicate):
        names = vars_of(part)
        if names & start.keys() and not names & used:
            continue
        if names & start.keys() and _init_touches_no_values(block, names):
            continue
        needed = first_iteration_condition(part, start, analyzer) if names & start.keys() else part
        if needed is None:
            raise Refusal(
                "E0663",
                f"whether block `{block.block.name}` runs at all depends on reduction and other loops together "
                f"(`{part}`), and may become true in the middle of the reduction",
                block.block,
            )
        guard = c.logical_and(guard, needed)
    return guard


def _init_touches_no_values(block: BlockRef, names: set[tir.Var]) -> bool:
    """Return True if an init that runs outside a condition over the loops `names` writes only elements without a value.

    The scope of the block allocates the buffer, no other block in it writes it, and an element belongs to one point
    of the spatial axes, to which one iteration of their loops leads.
    """
    old, scope = block.block, scope_root(block.tree, block.block)
    loops = {at.var: tir.Range(at.min, at.extent) for at in block.tree.loops_above(old)}
    if escaping_write(old, scope) is not None or not names & loops.keys() <= bound_vars(block.realize):
        return False
    writers = scope_info(block.tree, scope).writers
    if any(writer is not old for region in old.writes for writer in writers.get(region.buffer, ())):
        return False
    kinds = (axis.kind for axis in old.iter_vars)
    spatial = [v for v, kind in zip(block.realize.values, kinds, strict=True) if kind is tir.IterKind.SPATIAL]
    used = set().union(*map(vars_of, spatial))
    domain = {var: span for var, span in loops.items() if var in used}
    iter_map = detect_iter_map(spatial, domain, tir.TRUE, "bijective", Analyzer())
    return bool(iter_map) and all(_is_element_per_point(old, region) for region in old.writes)


def _is_element_per_point(block: tir.Block, region: tir.BufferRegion) -> bool:
    """Return True if the region is one element, indexed by constants and by all spatial axes of the block."""
    axes = {a.var for a in block.iter_vars if a.kind is tir.IterKind.SPATIAL and tir.const_int(a.dom.extent) != 1}
    indices = [span.min for span in region.region if tir.const_int(span.min) is None]
    plain = all(isinstance(index, tir.Var) for index in indices)
    return plain and axes <= set(indices) and all(tir.const_int(span.extent) == 1 for span in region.region)
