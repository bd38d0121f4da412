"""`blockize`: combine a loop and everything below it, or several adjacent blocks, into one block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.conditions import conjunct_operands
from mlcc.arith.intset import Domains, Interval, eval_range, from_range, to_range, union
from mlcc.arith.iter_nodes import IterMark, IterSum, normalize_to_expr
from mlcc.arith.proofs import is_one
from mlcc.arith.subspace import Subspaces, subspace_divide
from mlcc.ir import construct as c
from mlcc.ir import tir
from mlcc.ir.equal import structural_equal
from mlcc.ir.node import map_children, replace
from mlcc.ir.visit import Substitute, substitute, used_vars
from mlcc.passes.schedule.analysis.block_access import with_loads_declared
from mlcc.passes.schedule.analysis.checks import check_single_child, scope_root
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.registry import primitive
from mlcc.passes.schedule.state import BlockRef, LoopRef, State
from mlcc.passes.schedule.tree import Rebuild, Tree

Reuse = dict[tir.Block, tir.Block]


@primitive()
def blockize(state: State, target: list[BlockRef] | LoopRef, preserve_unit_iters: bool = True) -> BlockRef:
    """Make one block `X_o` of the loop `target` and everything below it, which must hold a single block `X`; or one
    block `outer_A_B_` of several adjacent blocks.

    The outer block's axes are the parts of `X`'s axes that the loops outside drive; the init of a reduction over them
    moves out. `preserve_unit_iters` keeps axes that only take one value. Refused if the axes do not fall apart into
    an outer and an inner part (E0685), for loops that do not hold exactly one block (E0655), and for blocks that do
    not make one (E0686).
    """
    if isinstance(target, LoopRef):
        func_name, tree = target.func_name, target.tree
        realize, reuse = blockize_loop(tree, target.loop, preserve_unit_iters)
        edit = Rebuild(tree)
        edit.put(target.loop, realize)
    else:
        if not target:
            raise Refusal("E0686", "the list of blocks is empty")
        func_name, tree = target[0].func_name, target[0].tree
        if any(b.func_name != func_name for b in target):
            raise Refusal("E0686", "the blocks are in different functions")
        realize, edit, reuse = _join_blocks(tree, [b.block for b in target], preserve_unit_iters)
    state.update(func_name, edit, reuse)
    return state.block_ref(func_name, realize.block)


# ---------------------------------------------------------------- one loop


def blockize_loop(tree: Tree, loop: tir.For, preserve_unit_iters: bool) -> tuple[tir.BlockRealize, Reuse]:
    """Return the block that replaces a loop and its body, and the map from old blocks to those that live on."""
    scope_root(tree, loop)
    inner = check_single_child(tree, loop)
    block = inner.block
    loops = _loops_down_to(tree, loop, inner)
    outside = tree.loops_above(loop)
    division = _division(inner, outside, loops, preserve_unit_iters)
    if division is None:
        raise _not_divisible(loop, inner, outside)
    axes = _Axes(preserve_unit_iters)
    axes.split(block, division, [*outside, *loops])
    _check_loops_beyond(tree, inner, division, axes)
    analyzer = Analyzer()
    for axis in axes.inner:
        analyzer.bind(axis.var, axis.dom)
    reuse: Reuse = {}
    substituted = _substitute_axes(block, axes.values, analyzer, reuse)
    domains = {axis.var: from_range(axis.dom) for axis in axes.inner}
    reads, writes = _relax_regions(substituted.reads, domains), _relax_regions(substituted.writes, domains)
    continues = substituted.init is not None and any(a.kind is tir.IterKind.REDUCE for a in axes.outer)
    inner_block = replace(
        substituted,
        iter_vars=tuple(axes.inner),
        init=None,
        reads=(*substituted.writes, *substituted.reads) if continues else substituted.reads,
    )
    reuse[block] = inner_block
    realize = tir.BlockRealize(tuple(axes.inner_values), division.inner_predicate, inner_block, span=inner.span)
    loops = _loops_over_axes(loops, outside, axes)
    init = None if substituted.init is None else (_lift_init(substituted.init, realize, loops, f"{block.name}_init"),)
    outer = tir.Block(
        f"{block.name}_o", tuple(axes.outer), reads, writes, (_nest(realize, loops),), init, span=block.span
    )
    return tir.BlockRealize(tuple(axes.outer_values), division.outer_predicate, outer, span=inner.span), reuse


def _loops_over_axes(loops: list[tir.For], outside: list[tir.For], axes: _Axes) -> list[tir.For]:
    """The loops inside, whose ranges name axes of the outer block in place of loops. Refuses (E0685) other ranges."""
    known = {v: a.var for v, a in zip(axes.outer_values, axes.outer, strict=True) if isinstance(v, tir.Var)}
    ranged = [replace(at, min=substitute(at.min, known), extent=substitute(at.extent, known)) for at in loops]
    for at in ranged:
        for above in outside:
            if above.var in used_vars(at.min) | used_vars(at.extent):
                raise Refusal(
                    "E0685",
                    f"the range of loop `{at.var.name}` depends on loop `{above.var.name}`, which is not an axis of the"
                    " block",
                    tuple(loop for loop in (*loops, above) if loop.var in (at.var, above.var)),
                )  # fmt: skip
    return ranged


def _loops_down_to(tree: Tree, loop: tir.For, inner: tir.BlockRealize) -> list[tir.For]:
    """The loops from `loop` to the block, outermost first. Refuses (E0685) anything else in between."""
    loops: list[tir.For] = []
    at: tir.Stmt = loop
    while at is not inner:
        if not isinstance(at, tir.For) or len(at.body) != 1:
            raise Refusal(
                "E0685", f"between the loop `{loop.var.name}` and block `{inner.block.name}` there are statements other"
                " than loops",
                (loop, inner.block, at),
            )  # fmt: skip
        loops.append(at)
        (at,) = at.body
    return loops


def _check_loops_beyond(tree: Tree, realize: tir.BlockRealize, division: Subspaces, axes: _Axes) -> None:
    """Refuse (E0685) inner axes driven by a loop around the enclosing block, which the outer block's axes would hide.

    `loop_partition` makes such blocks: the enclosing block has no axes, so that what it holds may use loops around it.
    """
    if not axes.outer:
        return
    inside = used_vars((*axes.inner_values, division.inner_predicate))
    scope = next(at for at in tree.ancestors(realize) if isinstance(at, tir.Block))
    for at in tree.ancestors(scope):
        if isinstance(at, tir.For) and at.var in inside:
            raise Refusal(
                "E0685",
                f"loop `{at.var.name}` around block `{scope.name}` drives the inner axes of block"
                f" `{realize.block.name}`, where the axes of the outer block hide it",
                (at, realize.block),
            )  # fmt: skip


def _not_divisible(loop: tir.For | None, inner: tir.BlockRealize, outside: list[tir.For]) -> Refusal:
    """Return the refusal of a division; `loop` is the first of the inner part, None if that is the block alone."""
    name = inner.block.name
    part = f"the loops from `{loop.var.name}` on" if loop is not None else "no loops"
    bound = ", ".join(f"{a.var.name} = {v}" for a, v in zip(inner.block.iter_vars, inner.values, strict=True))
    guard = "" if is_one(inner.predicate) else f" where {inner.predicate}"
    names = ", ".join(f"`{above.var.name}`" for above in outside) or "no loops"
    return Refusal(
        "E0685",
        f"the axes of block `{name}` cannot be divided into a part driven by {names} outside and a part driven by"
        f" {part}: {bound}{guard}",
        (loop or inner, inner.block),
        "split by factors that divide, and reorder so that the loops of the inner part are innermost: "
        "sch.reorder(outer0, outer1, inner0, inner1)",
    )


# ---------------------------------------------------------------- several blocks


def _join_blocks(
    tree: Tree, blocks: list[tir.Block], preserve_unit_iters: bool
) -> tuple[tir.BlockRealize, Rebuild, Reuse]:
    """Return the block that replaces adjacent blocks, with the edit that inserts it."""
    parent, statements = _neighbours(tree, blocks)
    outside = [*tree.loops_above(parent), parent] if isinstance(parent, tir.For) else []
    axes: _Axes | None = None
    analyzer, reuse = Analyzer(), Reuse()
    reads: list[tir.BufferRegion] = []
    writes: list[tir.BufferRegion] = []
    body: list[tir.Stmt] = []
    predicate: tir.Expr = tir.TRUE
    for block, statement in zip(blocks, statements, strict=True):
        realize = tree.realize(block)
        loops = _loops_down_to(tree, statement, realize) if isinstance(statement, tir.For) else []
        division = _division(realize, outside, loops, preserve_unit_iters)
        if division is None:
            raise _not_divisible(loops[0] if loops else None, realize, outside)
        block_axes = _Axes(preserve_unit_iters, axes)
        if not block_axes.split(block, division, [*outside, *loops]):
            assert axes is not None
            raise Refusal(
                "E0686", f"blocks `{blocks[0].name}` and `{block.name}` are not bound in the same way to the loops"
                " above",
                (blocks[0], block),
            )  # fmt: skip
        _check_loops_beyond(tree, realize, division, block_axes)
        axes = axes or block_axes
        predicate = division.outer_predicate
        outer_vars = {v: a.var for v, a in zip(axes.outer_values, axes.outer, strict=True) if isinstance(v, tir.Var)}
        domains: dict[tir.Var, Interval] = {}
        for axis in block_axes.inner:
            span = substitute(axis.dom, outer_vars)
            domains[axis.var] = from_range(span)
            analyzer.bind(axis.var, span)
        substituted = _substitute_axes(block, block_axes.values, analyzer, reuse)
        reads += _relax_regions(substituted.reads, domains)
        writes += _relax_regions(substituted.writes, domains)
        inner_block = reuse[block] = replace(substituted, iter_vars=tuple(block_axes.inner))
        inner = tir.BlockRealize(
            tuple(block_axes.inner_values), division.inner_predicate, inner_block, span=realize.span
        )
        nest = [replace(loop, extent=substitute(loop.extent, outer_vars)) for loop in loops]
        body.append(_nest(inner, nest))
    assert axes is not None
    name = f"outer_{''.join(f'{b.name}_' for b in blocks)}"
    outer = tir.Block(name, tuple(axes.outer), _union(reads), _union(writes), tuple(body))
    result = tir.BlockRealize(tuple(axes.outer_values), predicate, outer)
    edit = Rebuild(tree)
    edit.put(statements[0], result)
    for statement in statements[1:]:
        edit.put(statement)
    return result, edit, reuse


def _neighbours(tree: Tree, blocks: list[tir.Block]) -> tuple[tir.For | tir.Block, list[tir.Stmt]]:
    """Return the parent of adjacent blocks, and the statements in it that hold one each, in order. Refuses (E0686)."""
    marks = tuple(blocks)
    for block in blocks:
        scope_root(tree, block)
        if block.init is not None:
            help = f'separate its start value first: sch.decompose_reduction("{block.name}", loop)'
            raise Refusal("E0686", f"block `{block.name}` is a reduction with an init", block, help)
    parents = [list(tree.ancestors(tree.realize(b))) for b in blocks]
    shared = [at for at in parents[0] if all(any(at is p for p in others) for others in parents[1:])]
    parent = next((at for at in shared if isinstance(at, (tir.For, tir.Block))), None)
    if len(blocks) < 2 or parent is None or shared[0] is not parent or len(set(map(id, blocks))) != len(blocks):
        alone = "sch.blockize(loop) takes a single block" if len(blocks) < 2 else None
        raise Refusal("E0686", "several adjacent blocks are needed", marks, alone)
    statements = [tree.child_of(parent, tree.realize(b)) for b in blocks]
    places = [next((i for i, s in enumerate(parent.body) if s is statement), -1) for statement in statements]
    if places != list(range(places[0], places[0] + len(places))) or places[0] < 0:
        names = ", ".join(f"`{b.name}`" for b in blocks)
        raise Refusal("E0686", f"the blocks {names} are not adjacent in this order", marks)
    return parent, statements


def _union(regions: Sequence[tir.BufferRegion]) -> tuple[tir.BufferRegion, ...]:
    """Return the union of the regions of each buffer; the last buffer comes first, as mostly in TVM."""
    boxes: dict[tir.Buffer, list[Interval]] = {}
    analyzer = Analyzer()
    for region in regions:
        parts = [from_range(span) for span in region.region]
        known = boxes.get(region.buffer)
        boxes[region.buffer] = (
            parts if known is None else [union(a, b, analyzer) for a, b in zip(known, parts, strict=True)]
        )
    united = []
    for buffer, parts in reversed(boxes.items()):
        spans = []
        for part in parts:
            assert part.low is not None and part.high is not None
            spans.append(tir.Range(part.low, c.sub(c.add(part.high, 1), part.low)))
        united.append(tir.BufferRegion(buffer, tuple(spans)))
    return tuple(united)


# ---------------------------------------------------------------- axes


def _division(
    realize: tir.BlockRealize, outside: list[tir.For], inside: list[tir.For], preserve_unit_iters: bool
) -> Subspaces | None:
    """Divide every axis, then the predicate, into an outer and an inner part; None if that is not possible."""
    if not realize.values and not is_one(realize.predicate):
        return None
    iters = {loop.var: tir.Range(loop.min, loop.extent) for loop in (*reversed(inside), *reversed(outside))}
    analyzer = Analyzer()
    for var, span in iters.items():
        analyzer.bind(var, span)
    subspaces = None
    # a condition that fusing loops made long may tell more when it is short
    for predicate in dict.fromkeys((realize.predicate, analyzer.simplify(realize.predicate))):
        subspaces = subspace_divide(
            realize.values, iters, [loop.var for loop in inside], predicate, "surjective",
            simplify_trivial=not preserve_unit_iters,
        )  # fmt: skip
        division = _complete_division(subspaces, realize, predicate, outside, inside) if subspaces else None
        if division is not None:
            return division
    return None if subspaces else _trivial_division(realize, outside, inside)


def _complete_division(
    division: Subspaces, realize: tir.BlockRealize, predicate: tir.Expr, outside: list[tir.For], inside: list[tir.For]
) -> Subspaces | None:
    """Complete a division with all conditions of the predicate; None if it does not cover the iterations exactly.

    A bound of a single loop only narrows what the division takes the loop to run over, and a condition on loops that
    drive no axis does not show in it at all: both must be said again. A bound inside an index is replaced where the
    division goes through the same values in another order, `i * 4 + j < 12` for `i * 3 + j` with `j < 3`.
    """
    analyzer = Analyzer()
    for loop in (*outside, *inside):
        analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
    reordered_vars: set[tir.Var] = set()  # what drives axes whose values come in another order
    for axis, value, (outer, inner) in zip(realize.block.iter_vars, realize.values, division.pairs, strict=True):
        if not analyzer.prove_equal(c.mul(outer.extent, inner.extent), axis.dom.extent):
            return None
        high, low = normalize_to_expr(outer.source), normalize_to_expr(inner.source)
        if not analyzer.prove_equal(c.add(c.mul(high, inner.extent), low), value):
            reordered_vars |= used_vars(value)
    if reordered_vars and predicate is not realize.predicate:
        return None
    stated = [*conjunct_operands(division.outer_predicate), *conjunct_operands(division.inner_predicate)]
    sides = [division.outer_predicate, division.inner_predicate]
    others = [{loop.var for loop in inside}, {loop.var for loop in outside}]
    for part in conjunct_operands(predicate):
        used = {v for v in used_vars(part) if v not in analyzer.values}
        replaced = bool(used & reordered_vars) and any(used <= used_vars(known) for known in stated)
        if replaced or any(_same_bound(part, known, analyzer) for known in stated) or analyzer.prove(part):
            continue
        side = next((n for n, other in enumerate(others) if not used_vars(part) & other), None)
        if side is None or used & reordered_vars:
            return None
        sides[side] = c.logical_and(sides[side], part)
    return Subspaces(division.pairs, sides[0], sides[1])


def _same_bound(a: tir.Expr, b: tir.Expr, analyzer: Analyzer) -> bool:
    if isinstance(a, tir.CompareOp) and type(a) is type(b):
        assert isinstance(b, tir.CompareOp)
        return analyzer.prove_equal(c.sub(a.lhs, a.rhs), c.sub(b.lhs, b.rhs))
    return structural_equal(a, b)


def _trivial_division(realize: tir.BlockRealize, outside: list[tir.For], inside: list[tir.For]) -> Subspaces | None:
    """Divide axes that only outer, or only inner, loops drive, by any expression; None if an axis has both.

    An axis that neither drive, but perhaps a loop around the enclosing block, goes to the outer part.
    """
    if not is_one(realize.predicate):
        return None
    outer_vars, inner_vars = {loop.var for loop in outside}, {loop.var for loop in inside}
    pairs: list[tuple[IterMark, IterMark]] = []
    for axis, value in zip(realize.block.iter_vars, realize.values, strict=True):
        used = used_vars(value)
        dtype = axis.var.dtype
        unit = IterMark(IterSum((), c.const(0, dtype)), c.const(1, dtype))
        mark = IterMark(value if isinstance(value, tir.Var) else IterSum((), value), axis.dom.extent)
        if used & outer_vars and used & inner_vars:
            return None
        inner = used & inner_vars
        pairs.append((unit, mark) if inner else (unit if tir.const_int(value) == 0 else mark, unit))
    return Subspaces(tuple(pairs))


class _Axes:
    """The axes of the outer and the inner block, and what the axes of the block are in their terms.

    With `shared`, the outer axes are those of another division.
    """

    def __init__(self, preserve_unit_iters: bool, shared: _Axes | None = None) -> None:
        self._preserve = preserve_unit_iters
        self._shared = shared
        self.outer: list[tir.IterVar] = []
        self.outer_values: list[tir.Expr] = []
        self.inner: list[tir.IterVar] = []
        self.inner_values: list[tir.Expr] = []
        self.values: dict[tir.Var, tir.Expr] = {}

    def split(self, block: tir.Block, division: Subspaces, loops: Sequence[tir.For]) -> bool:
        """Take over a division; False if it does not agree with the shared outer axes. `loops` are those around."""
        domain = Analyzer()
        for loop in loops:
            domain.bind(loop.var, tir.Range(loop.min, loop.extent))
        variables = {loop.var for loop in loops}
        shared = self._shared
        if shared is not None and len(shared.outer) < len(block.iter_vars):
            return False
        for number, (axis, (outside, inside)) in enumerate(zip(block.iter_vars, division.pairs, strict=True)):
            value = normalize_to_expr(outside.source)
            if is_one(inside.extent):  # in a part of a loop, its one value may be other than 0
                only = domain.simplify(normalize_to_expr(inside.source))
                value = value if used_vars(only) & variables else c.add(value, only)
            if shared is None:
                outer = _axis(axis, "_o", outside.extent, value, domain)
            else:
                outer, analyzer = shared.outer[number], Analyzer()
                if not analyzer.prove_equal(outer.dom.extent, outside.extent):
                    return False
                if not analyzer.prove_equal(shared.outer_values[number], value):
                    return False
            self.outer.append(outer)
            self.outer_values.append(value)
            self.values[axis.var] = self._value(axis, outer, outside, inside, domain)
        return True

    def _value(
        self, axis: tir.IterVar, outer: tir.IterVar, outside: IterMark, inside: IterMark, domain: Analyzer
    ) -> tir.Expr:
        if is_one(inside.extent):
            if is_one(outside.extent) and not self._preserve:
                return outer.dom.min
            return outer.var
        value = normalize_to_expr(inside.source)
        inner = _axis(axis, "_i", inside.extent, value, domain)
        self.inner.append(inner)
        self.inner_values.append(value)
        if is_one(outside.extent):
            return inner.var
        return c.add(c.mul(outer.var, inside.extent), inner.var)


def _axis(axis: tir.IterVar, suffix: str, extent: tir.Expr, value: tir.Expr, domain: Analyzer) -> tir.IterVar:
    """A part of an axis, bound to `value`: from 0 on, unless the axis starts elsewhere (in a partitioned loop)."""
    low = 0 if tir.const_int(axis.dom.min) == 0 else domain.bound(value).min
    dom = tir.Range(tir.IntImm(extent.dtype, low), extent)
    return tir.IterVar(tir.Var(axis.var.name + suffix, axis.var.dtype), dom, axis.kind)


# ---------------------------------------------------------------- statements


class _AxisSubstitute(Substitute):
    """Substitution that simplifies every expression that it changes and notes the blocks that it copies."""

    def __init__(self, values: Mapping[tir.Var, tir.Expr], analyzer: Analyzer, reuse: Reuse) -> None:
        super().__init__({old: analyzer.simplify(new) for old, new in values.items()})
        self._analyzer, self._reuse = analyzer, reuse

    def visit(self, node: Any) -> Any:
        known = self._memo.get(id(node))
        if known is not None:
            return known[1]
        rewritten = map_children(node, self.visit)
        if rewritten is not node and isinstance(node, tir.Expr):
            rewritten = self._analyzer.simplify(rewritten)
        elif rewritten is not node and isinstance(node, tir.Block):
            self._reuse[node] = rewritten
        self._memo[id(node)] = (node, rewritten)
        return rewritten


def _substitute_axes(
    block: tir.Block, values: Mapping[tir.Var, tir.Expr], analyzer: Analyzer, reuse: Reuse
) -> tir.Block:
    """The block with its axes replaced. Its `iter_vars` are left to the caller, and so is its place in `reuse`."""
    return _AxisSubstitute(values, analyzer, reuse).visit(replace(block, iter_vars=()))  # type: ignore[no-any-return]


def _relax_regions(regions: Sequence[tir.BufferRegion], domains: Domains) -> tuple[tir.BufferRegion, ...]:
    """Return the union of each region over the domains of the axes."""
    relaxed = []
    for region in regions:
        analyzer = Analyzer()
        spans = []
        for span, extent in zip(region.region, region.buffer.shape, strict=True):
            high = analyzer.simplify(c.add(span.min, c.sub(span.extent, 1)))
            low = span.min if tir.const_int(span.extent) != 1 else high
            whole = tir.Range(c.const(0, extent.dtype), extent)
            spans.append(to_range(eval_range(low, high, domains, analyzer), whole, analyzer))
        relaxed.append(tir.BufferRegion(region.buffer, tuple(spans)))
    return tuple(relaxed)


def _nest(inner: tir.Stmt, loops: Sequence[tir.For]) -> tir.Stmt:
    for loop in reversed(loops):
        inner = replace(loop, body=(inner,))
    return inner


def _lift_init(init: tuple[tir.Stmt, ...], inner: tir.BlockRealize, loops: Sequence[tir.For], name: str) -> tir.Stmt:
    """Return the init of a reduction as a separate block, under copies of the loops that it needs."""
    mentioned = used_vars(init)
    renamed: dict[tir.Var, tir.Expr] = {}
    axes, values = [], []
    for axis, value in zip(inner.block.iter_vars, inner.values, strict=True):
        if axis.kind is tir.IterKind.SPATIAL and axis.var in mentioned:
            var = renamed[axis.var] = tir.Var(f"{axis.var.name}_init", axis.var.dtype)
            axes.append(tir.IterVar(var, axis.dom, axis.kind))
            values.append(value)
    driving = used_vars(tuple(values))
    kept = [loop for loop in loops if loop.var in driving]
    left_out = {loop.var for loop in loops} - driving
    predicate: tir.Expr = tir.TRUE
    for part in conjunct_operands(inner.predicate):
        if not used_vars(part) & left_out:
            predicate = part if predicate is tir.TRUE else c.logical_and(predicate, part)
    block = with_loads_declared(tir.Block(name, tuple(axes), (), inner.block.writes, init))
    nest = _nest(tir.BlockRealize(tuple(values), predicate, block), kept)
    for loop in kept:
        renamed[loop.var] = tir.Var(loop.var.name, loop.var.dtype)
    return substitute(nest, renamed)
