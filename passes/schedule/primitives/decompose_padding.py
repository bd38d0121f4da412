"""decompose_padding: fill a padded buffer with its constant, then copy the inside without a condition."""

from __future__ import annotations

from dataclasses import dataclass

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.arith.iter_map import detect_iter_map
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.intrinsics import Effect, effect_of
from mlcc.ir.node import replace, walk
from mlcc.ir.visit import substitute
from mlcc.passes.schedule.analysis.checks import check_complete_block, scope_root
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild, child_realizes


@dataclass(frozen=True, slots=True)
class _Padding:
    """A padding block: `store` stores `inside` where `predicate` (over loops) holds, else `pad`, on `region` of the
    axes.
    """

    store: tir.BufferStore
    predicate: tir.Expr
    inside: tir.Expr
    pad: tir.Expr
    region: tuple[tir.Range, ...]


@primitive()
def decompose_padding(state: State, block: BlockRef, loop: LoopRef) -> BlockRef:
    """Split `B[...] = T.if_then_else(condition, x, constant)` into block `B_pad_const`, before `loop`, which fills
    all that the loop covers with the constant, and `B`, which stores `x` where the condition holds.

    Returns the filling block. Refused: a block that is not complete (E0656), a loop that is not around it (E0661), a
    body of another form or a condition that is no box (E0676). TVM: `decompose_padding`.
    """
    tree, old, realize = block.tree, block.block, block.realize
    check_complete_block(tree, old, scope_root(tree, old))
    loops = tree.loops_above(old)
    if loop.loop not in loops:
        names = ", ".join(f"`{at.var.name}`" for at in loops) or "none"
        message = f"loop `{loop.var.name}` is not around block `{old.name}`"
        raise Refusal("E0661", message, (loop.loop, old), f"the loops around the block: {names}")
    if len(loops[-1].body) != 1:
        message = f"block `{old.name}` is not alone in its innermost loop `{loops[-1].var.name}`"
        raise Refusal("E0676", message, (loops[-1], old))
    padding = _match(realize, loops)
    filled = loops[loops.index(loop.loop) :]
    top = len(loops) - 1  # the outermost loop, at or below the given one, that holds nothing but this block
    while top > loops.index(loop.loop) and len(loops[top - 1].body) == 1:
        top -= 1
    const_nest = _const_nest(realize, padding, loops, filled)
    inner = _copy_nest(realize, padding, loops, loops[top:])
    edit = Rebuild(tree)
    edit.put(loops[top], inner)
    edit.before(loop.loop, const_nest)
    new = child_realizes(inner)[0].block
    state.update(block.func_name, edit, {old: new})
    return state.block_ref(block.func_name, child_realizes(const_nest)[0].block)


@primitive(traced=False)
def can_decompose_padding(state: State, block: BlockRef, loop: LoopRef) -> bool:
    """Return whether `decompose_padding` accepts the block and the loop. Changes nothing."""
    try:
        decompose_padding(state, block, loop)
    except Refusal:
        return False
    return True


def _match(realize: tir.BlockRealize, loops: list[tir.For]) -> _Padding:
    block = realize.block

    def refusal(words: str) -> Refusal:
        return Refusal("E0676", f"block `{block.name}` is not a padding block: {words}", block)

    if len(block.body) != 1 or not isinstance(block.body[0], tir.BufferStore):
        raise refusal("its body is more than one store")
    store = block.body[0]
    if block.init is not None or block.alloc_buffers or block.match_buffers or len(block.writes) != 1:
        raise refusal("it has an init or allocates buffers")
    match store.value:
        case tir.Call(op=tir.Op(name="tir.if_then_else"), args=(condition, inside, pad)):
            pass
        case _:
            raise refusal(f"it stores `{store.value}`, not `T.if_then_else(condition, value, constant)`")
    if not isinstance(pad, (tir.IntImm, tir.FloatImm)):
        raise refusal(f"outside it stores `{pad}`, which is not a constant")
    if any(isinstance(n, tir.Call) and effect_of(n) > Effect.READ for n in walk(inside)):
        raise refusal(f"`{inside}` does more than compute a value")
    values = {a.var: v for a, v in zip(block.iter_vars, realize.values, strict=True)}
    analyzer = Analyzer()
    ranges = {at.var: tir.Range(at.min, at.extent) for at in loops}
    for var, span in ranges.items():
        analyzer.bind(var, span)
    predicate: tir.Expr = tir.TRUE
    for part in conjunct_operands(c.logical_and(substitute(condition, values), realize.predicate)):
        predicate = c.logical_and(predicate, _without_likely(part))
    predicate = analyzer.simplify(predicate)
    if tir.const_int(predicate) == 1:
        raise refusal("its condition always holds")
    if tir.const_int(predicate) == 0:
        raise refusal("its condition never holds")
    mapped = detect_iter_map(realize.values, ranges, predicate, "surjective", analyzer)
    if not mapped:
        raise refusal(f"the condition `{predicate}` does not bound each axis by itself: {mapped.reason}")
    region = []
    for axis, index in zip(block.iter_vars, mapped.indices, strict=True):
        if not index.args:
            region.append(tir.Range(index.base, c.const(1, index.base.dtype)))
        elif len(index.args) == 1 and analyzer.prove_equal(index.args[0].scale, c.const(1, axis.var.dtype)):
            region.append(tir.Range(index.base, index.args[0].extent))
        else:
            raise refusal(f"axis `{axis.var.name}` skips values")
    return _Padding(store, predicate, inside, pad, tuple(region))


def _without_likely(condition: tir.Expr) -> tir.Expr:
    """Return the condition without a `T.likely` around it."""
    match condition:
        case tir.Call(op=tir.Op(name="tir.likely"), args=(inner,)):
            return inner
    return condition


def _const_nest(realize: tir.BlockRealize, padding: _Padding, around: list[tir.For], loops: list[tir.For]) -> tir.Stmt:
    """Return the block `X_pad_const` in serial copies of `loops`, the inner ones of those around."""
    block = realize.block
    fresh: dict[tir.Var, tir.Expr] = {a.var: tir.Var(a.var.name, a.var.dtype) for a in block.iter_vars}
    axes = tuple(tir.IterVar(fresh[a.var], a.dom, tir.IterKind.SPATIAL) for a in block.iter_vars)  # type: ignore[arg-type]
    analyzer = Analyzer()
    for at in around:
        if at not in loops:
            analyzer.bind(at.var, tir.Range(at.min, at.extent))
    new_loops: dict[tir.Var, tir.Expr] = {at.var: tir.Var(at.var.name, at.var.dtype) for at in loops}
    fresh.update(new_loops)
    writes = _regions(block.writes, fresh, analyzer)
    indices = tuple(analyzer.simplify(substitute(i, fresh)) for i in padding.store.indices)
    body = (tir.BufferStore(padding.store.buffer, padding.pad, indices),)
    const_block = tir.Block(f"{block.name}_pad_const", axes, (), writes, body)
    values = tuple(analyzer.simplify(substitute(v, fresh)) for v in realize.values)
    nest: tir.Stmt = tir.BlockRealize(values, analyzer.simplify(substitute(realize.predicate, fresh)), const_block)
    for at in reversed(loops):
        nest = tir.For(new_loops[at.var], at.min, at.extent, tir.ForKind.SERIAL, (nest,))  # type: ignore[arg-type]
    return nest


def _copy_nest(realize: tir.BlockRealize, padding: _Padding, loops: list[tir.For], own: list[tir.For]) -> tir.Stmt:
    """Return the block over the box alone, in the loops `own`; a loop that drives an axis runs over the box."""
    block = realize.block
    ranges = {at.var: tir.Range(at.min, at.extent) for at in own}
    moved: dict[tir.Var, tir.Expr] = {}
    axes: list[tir.IterVar] = []
    raw: list[tuple[tir.Expr, tir.Expr | None]] = []
    for axis, span, value in zip(block.iter_vars, padding.region, realize.values, strict=True):
        var = tir.Var(axis.var.name, axis.var.dtype)
        new = tir.Range(c.const(0, var.dtype), span.extent)
        axes.append(tir.IterVar(var, new, tir.IterKind.SPATIAL))
        moved[axis.var] = c.add(var, span.min)
        if isinstance(value, tir.Var) and value in ranges:
            ranges[value] = new
            moved[value] = c.add(value, span.min)
            raw.append((value, None))
        else:
            raw.append((value, span.min))
    analyzer = Analyzer()
    for at in loops:
        analyzer.bind(at.var, ranges.get(at.var, tir.Range(at.min, at.extent)))
    values = tuple(v if low is None else analyzer.simplify(c.sub(v, low)) for v, low in raw)
    reads, writes = (_regions(r, moved, analyzer) for r in (block.reads, block.writes))
    indices = tuple(analyzer.simplify(substitute(i, moved)) for i in padding.store.indices)
    value = analyzer.simplify(substitute(padding.inside, moved))
    inner = tir.Block(block.name, tuple(axes), reads, writes, (tir.BufferStore(padding.store.buffer, value, indices),))
    nest: tir.Stmt = tir.BlockRealize(values, analyzer.simplify(substitute(padding.predicate, moved)), inner)
    for at in reversed(own):
        nest = replace(at, min=ranges[at.var].min, extent=ranges[at.var].extent, body=(nest,))
    return nest


def _regions(
    regions: tuple[tir.BufferRegion, ...], values: dict[tir.Var, tir.Expr], analyzer: Analyzer
) -> tuple[tir.BufferRegion, ...]:
    return tuple(
        tir.BufferRegion(r.buffer, tuple(
            tir.Range(analyzer.simplify(substitute(s.min, values)), analyzer.simplify(substitute(s.extent, values)))
            for s in r.region
        ))
        for r in regions
    )  # fmt: skip
