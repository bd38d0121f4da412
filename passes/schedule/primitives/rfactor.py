"""rfactor: a reduction in two steps, partial results for each iteration of one loop and their combination.

See Suriana, Adams and Kamil, "Parallel associative reductions in Halide" (CGO 2017).
"""

from __future__ import annotations

import math

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.node import replace
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.bindings import bound_vars, remember_binding, vars_of
from mlcc.passes.schedule.analysis.block_access import points
from mlcc.passes.schedule.analysis.checks import (
    check_loop_starts_at_zero,
    check_reduction_block,
    check_single_child,
    scope_root,
)
from mlcc.passes.schedule.analysis.first_iteration import first_iteration_condition
from mlcc.passes.schedule.analysis.reducers import ReductionParts, reduction_parts, reduction_statements
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree, child_realizes

_Vars = dict[tir.Var, tir.Expr]


@primitive()
def rfactor(state: State, loop: LoopRef, factor_axis: int) -> BlockRef:
    """Factor a reduction by one of its loops: block `B_rf` reduces over the other loops into a buffer `C_rf` with an
    additional dimension (at `factor_axis`, negative from the end), and `B` combines its elements over `loop`.

    Returns `B_rf`; the handle of `B` goes with the combination. Refused: a block that is no reduction (E0656) or not
    in a pipeline of stages (E0659), an unknown combiner (E0668, E0669), a loop that cannot be factored (E0664), an
    axis out of range (E0665). TVM: `rfactor`, which forgets a condition of `B` in the combination.
    """
    tree = loop.tree
    realize = check_single_child(tree, loop.loop)
    block = realize.block
    scope = scope_root(tree, block, require_stage_pipeline=True)
    check_reduction_block(tree, block, scope)
    loops = tree.loops_above(block)
    spatial = bound_vars(realize, tir.IterKind.SPATIAL)
    reduce = bound_vars(realize, tir.IterKind.REDUCE)
    _check_loops(tree, loops, loop.loop, block, spatial, reduce)
    parts = reduction_parts(block)
    axis = _check_axis(parts.buffers[0], factor_axis)
    removed = [at for at in loops if at.var in reduce and at is not loop.loop]
    guard = _combination_guard(realize, loops, removed)

    partial = tuple(_partial_buffer(b, axis, loop.loop) for b in parts.buffers)
    rf_var = tir.Var(f"v{loop.var.name}", loop.var.dtype)
    rf_realize = _partial_block(realize, loop.loop, loops, parts, partial, axis, rf_var)
    combined = _combination(realize, loop.loop, parts, partial, axis, guard)

    nest = _copy_nest(rf_realize, loops)
    edit = Rebuild(tree)
    edit.put(loops[0], *nest, *_replace_in_nest(loops, {at.var for at in removed}, realize, combined))
    edit.allocate(scope, *partial)
    new_tree = state.update(loop.func_name, edit, {block: combined.block})
    factored = child_realizes(nest)[0].block
    remember_binding(new_tree, factored, tree, realize)  # the partial results take the iterations of the block
    return state.block_ref(loop.func_name, factored)


# ---------------------------------------------------------------- what is required


def _check_loops(
    tree: Tree, loops: list[tir.For], loop: tir.For, block: tir.Block, spatial: set[tir.Var], reduce: set[tir.Var]
) -> None:
    def refusal(words: str, *at: tir.Stmt, help: str | None = None) -> Refusal:
        return Refusal("E0664", words, at, help)

    name = loop.var.name
    if loop.kind is not tir.ForKind.SERIAL:
        raise refusal(
            f"loop `{name}` must be serial, not {loop.kind.value}",
            loop,
            help="apply rfactor first, then change the kind of the loop",
        )
    check_loop_starts_at_zero(loop)
    outer = {at.var for at in loops}
    if vars_of(loop.extent) & outer:
        raise refusal(f"the extent of loop `{name}` depends on enclosing loops", loop)
    first = tree.child_realizes(loops[0].body)[0].block
    if first is not block:
        raise refusal(
            f"block `{first.name}` comes before block `{block.name}` in loop `{loops[0].var.name}`, so the partial "
            "results cannot be computed ahead of that loop",
            loops[0], first, block,
        )  # fmt: skip
    below_reduction = False
    for at in loops:
        own = at.var.name
        if at.var in spatial and at.var in reduce:
            raise refusal(f"loop `{own}` drives both spatial and reduce axes of block `{block.name}`", at, block)
        if at.var in spatial:
            if at is loop:
                names = ", ".join(f"`{x.var.name}`" for x in loops if x.var in reduce)
                help = f"loops that drive reduce axes: {names}"
                raise refusal(f"loop `{own}` drives a spatial axis of block `{block.name}`", at, block, help=help)
        elif at.var in reduce:
            if not below_reduction:
                check_single_child(tree, at)
            below_reduction = True
        elif below_reduction and tir.const_int(at.extent) != 1:
            raise refusal(f"loop `{own}`, below a reduction loop, repeats block `{block.name}`", at, block)
    if loop.var not in reduce and tir.const_int(loop.extent) != 1:  # one partial result is the whole
        raise refusal(f"loop `{name}` drives no reduce axis of block `{block.name}`", loop, block)


def _check_axis(buffer: tir.Buffer, axis: int) -> int:
    ndim = len(buffer.shape)
    if not -(ndim + 1) <= axis <= ndim:
        message = f"factor_axis is {axis}, but `{buffer.name}` has {ndim} dimensions"
        raise Refusal("E0665", message, help=f"legal values: {-(ndim + 1)} to {ndim}")
    return axis + ndim + 1 if axis < 0 else axis


def _combination_guard(realize: tir.BlockRealize, loops: list[tir.For], removed: list[tir.For]) -> tir.Expr:
    """Return the predicate of the combination: its partial result must exist, so the block's first iteration must run.

    Refuses (E0664) a condition of the block that may become true in a later iteration.
    """
    guard: tir.Expr = tir.TRUE
    if tir.const_int(realize.predicate) == 1:
        return guard
    analyzer = Analyzer()
    for at in loops:
        analyzer.bind(at.var, tir.Range(at.min, at.extent))
    start: _Vars = {at.var: at.min for at in removed}
    for part in conjunct_operands(realize.predicate):
        needed = first_iteration_condition(part, start, analyzer)
        if needed is None:
            raise Refusal(
                "E0664",
                f"whether block `{realize.block.name}` runs (`{part}`) may become true in the middle of the reduction",
                realize,
            )
        guard = c.logical_and(guard, needed)
    return guard


# ---------------------------------------------------------------- the two blocks


def _partial_buffer(buffer: tir.Buffer, axis: int, loop: tir.For) -> tir.Buffer:
    name = f"{buffer.name}.rf"  # as TVM has it; blocks are named after buffers
    shape = (*buffer.shape[:axis], loop.extent, *buffer.shape[axis:])
    return replace(buffer, name=name, shape=shape, data=replace(buffer.data, name=name))


def _partial_block(
    realize: tir.BlockRealize, loop: tir.For, loops: list[tir.For], parts: ReductionParts,
    partial: tuple[tir.Buffer, ...], axis: int, rf_var: tir.Var,
) -> tir.BlockRealize:  # fmt: skip
    """Return the block that reduces over all loops but `loop`, which becomes a spatial axis.

    A reduce axis that `loop` drives together with other loops is replaced by one axis for each of these.
    """
    block = realize.block
    axes = [tir.IterVar(rf_var, tir.Range(loop.min, loop.extent), tir.IterKind.SPATIAL)]
    values: list[tir.Expr] = [loop.var]
    axis_of: _Vars = {loop.var: rf_var}
    renamed: _Vars = {}
    by_var = {at.var: at for at in loops}
    for old, value in zip(block.iter_vars, realize.values, strict=True):
        if old.kind is not tir.IterKind.REDUCE or loop.var not in vars_of(value):
            axes.append(old)
            values.append(value)
            continue
        for var in _in_order(value):
            if var in by_var and var not in axis_of:
                new = tir.Var(f"v{var.name}", var.dtype)
                axis_of[var] = new
                span = tir.Range(by_var[var].min, by_var[var].extent)
                axes.append(tir.IterVar(new, span, tir.IterKind.REDUCE))
                values.append(var)
        renamed[old.var] = substitute(value, axis_of)
    indices = (*parts.indices[:axis], rf_var, *parts.indices[axis:])
    if any(a.kind is tir.IterKind.REDUCE for a in axes):
        body, init = reduction_statements(parts, partial, indices, parts.rhs)
    else:
        body = tuple(tir.BufferStore(b, v, indices) for b, v in zip(partial, parts.rhs, strict=True))
        init = ()
    one = c.const(1, rf_var.dtype)
    new_of = dict(zip(parts.buffers, partial, strict=True))
    writes = tuple(
        tir.BufferRegion(new_of[w.buffer], (*w.region[:axis], tir.Range(rf_var, one), *w.region[axis:]))
        for w in block.writes
    )
    factored = tir.Block(
        f"{block.name}_rf", tuple(axes), substitute(block.reads, renamed), substitute(writes, renamed),
        substitute(body, renamed), substitute(init, renamed) or None, annotations=block.annotations,
    )  # fmt: skip
    return tir.BlockRealize(tuple(values), realize.predicate, factored)


def _in_order(value: tir.Expr) -> list[tir.Var]:
    from mlcc.ir.node import walk

    return list(dict.fromkeys(n for n in walk(value) if isinstance(n, tir.Var)))


def _combination(
    realize: tir.BlockRealize, loop: tir.For, parts: ReductionParts, partial: tuple[tir.Buffer, ...], axis: int,
    guard: tir.Expr,
) -> tir.BlockRealize:  # fmt: skip
    """Return the block that reduces the partial results over `loop`, at the position and under the name of the old
    block.
    """
    block = realize.block
    rf_var = tir.Var(f"v{loop.var.name}", loop.var.dtype)
    axes = [tir.IterVar(rf_var, tir.Range(loop.min, loop.extent), tir.IterKind.REDUCE)]
    values: list[tir.Expr] = [loop.var]
    renamed: _Vars = {}
    for old, value in zip(block.iter_vars, realize.values, strict=True):
        if old.kind is tir.IterKind.SPATIAL:
            renamed[old.var] = var = tir.Var(old.var.name, old.var.dtype)
            axes.append(replace(old, var=var))
            values.append(value)
    place = substitute(parts.indices, renamed)
    loads = tuple(c.load(b, *place[:axis], rf_var, *place[axis:]) for b in partial)
    operands = tuple(
        c.call(load.dtype, "assume_number", load) if _is_assumed_number(operand) else load
        for load, operand in zip(loads, parts.rhs, strict=True)
    )
    body, init = reduction_statements(parts, parts.buffers, place, operands)
    outputs = tuple(tir.BufferRegion(b, points(place)) for b in parts.buffers)
    reads = tuple(tir.BufferRegion(load.buffer, points(load.indices)) for load in loads)
    combined = tir.Block(block.name, tuple(axes), reads, outputs, body, init, annotations=block.annotations)
    return tir.BlockRealize(tuple(values), guard, combined)


def _is_assumed_number(operand: tir.Expr) -> bool:
    """Return True if a NaN in an operand of a minimum or maximum may be left out, and so one in partial results."""
    match operand:
        case tir.Call(op=tir.Op(name="tir.assume_number")):
            return True
        case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(_, yes, tir.FloatImm(value=value))):
            return not math.isnan(value) and _is_assumed_number(yes)
        case _:
            return False


# ---------------------------------------------------------------- the two nests


def _copy_nest(realize: tir.BlockRealize, loops: list[tir.For]) -> tuple[tir.Stmt, ...]:
    """Return `realize` in a copy of the loops."""
    fresh: _Vars = {at.var: tir.Var(at.var.name, at.var.dtype) for at in loops}
    body: tuple[tir.Stmt, ...] = (realize,)
    for at in reversed(loops):
        body = (replace(at, var=fresh[at.var], body=body),)
    return substitute(body, fresh)


def _replace_in_nest(
    loops: list[tir.For], removed: set[tir.Var], old: tir.BlockRealize, new: tir.BlockRealize
) -> tuple[tir.Stmt, ...]:
    """The old nest with another block in it and without some loops; other blocks of these loops stay."""
    rebuilt: tuple[tir.Stmt, ...] = (new,)
    inner: tir.Stmt = old
    for loop in reversed(loops):
        body = tuple(part for stmt in loop.body for part in (rebuilt if stmt is inner else (stmt,)))
        rebuilt = body if loop.var in removed else (replace(loop, body=body),)
        inner = loop
    return rebuilt
