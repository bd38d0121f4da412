"""Bindings of block axes to loops: loop domains, loop kinds, affine and trivial bindings."""

from __future__ import annotations

from collections.abc import Mapping

from mlcc.arith.analyzer import Analyzer
from mlcc.arith.iter_map import detect_iter_map
from mlcc.arith.proofs import is_one
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.ir.tir import Expr, IterKind
from mlcc.passes.schedule.tree import KnownLoops, Tree

Domain = dict[tir.Var, tir.Range]


def analyzer_of(tree: Tree) -> Analyzer:
    """Return an analyzer with the ranges of all loops of the function; it is shared, so leave nothing bound in it.

    It is taken over from the function before the last steps, with all that it has simplified, unless a loop runs over
    another range now. That it also knows the loops of that function does no harm.
    """
    analyzer: Analyzer | None = tree.cache.get("analyzer")
    if analyzer is None:
        known: KnownLoops = tree.earlier_analyzer or (Analyzer(), {})
        if any(known[1].get(loop.var, (loop.min, loop.extent)) != (loop.min, loop.extent) for loop in tree.loops):
            known = (Analyzer(), {})
        analyzer, bound = known
        for loop in tree.loops:
            if loop.var not in bound:
                bound[loop.var] = (loop.min, loop.extent)
                analyzer.bind(loop.var, tir.Range(loop.min, loop.extent))
        tree.cache["analyzer"], tree.earlier_analyzer = analyzer, known
    return analyzer


def iterations_key(tree: Tree, block: tir.Block) -> tuple[object, ...]:
    """Return a key for facts about the iterations of a block.

    It holds the block's binding, the loops around it, and marks where scopes end. Other statements in these loops do
    not affect it.
    """
    key: list[object] = [tree.realize(block)]
    for at in tree.ancestors(block):
        if isinstance(at, tir.For):
            key.append((at.var, at.min, at.extent, at.thread))
        elif isinstance(at, tir.Block):
            key.append(None)
    return tuple(key)


def bindings(realize: tir.BlockRealize) -> dict[tir.Var, Expr]:
    """The value of each axis variable."""
    return {a.var: v for a, v in zip(realize.block.iter_vars, realize.values, strict=True)}


def vars_of(expr: Expr) -> set[tir.Var]:
    """The variables in an expression."""
    return {expr} if isinstance(expr, tir.Var) else {n for n in walk(expr) if isinstance(n, tir.Var)}


def bound_vars(realize: tir.BlockRealize, *kinds: IterKind) -> set[tir.Var]:
    """Return the variables in the bindings of the axes of these kinds; of all axes if none is given."""
    variables: set[tir.Var] = set()
    for axis, value in zip(realize.block.iter_vars, realize.values, strict=True):
        if not kinds or axis.kind in kinds:
            variables |= vars_of(value)
    return variables


# ---------------------------------------------------------------- domains


def loop_domain(
    tree: Tree, low: tir.Stmt | None, high: tir.Stmt | None = None, extra_relax_scope: str = "global"
) -> Domain:
    """Return the ranges of the loops from `low` up to, and without, the loop or block `high`, innermost first.

    `low` is itself counted if it is a loop; the block around ends the way in any case. A storage scope other than
    global adds the thread loops further out over which memory of that scope is shared.
    """
    domain: Domain = {}
    at = low
    while at is not None and at is not high and not isinstance(at, tir.Block):
        if isinstance(at, tir.For):
            domain[at.var] = tir.Range(at.min, at.extent)
        at = tree.parent(at)
    if not extra_relax_scope.startswith("global"):
        while at is not None:
            if isinstance(at, tir.For) and at.thread and shared_by_threads(extra_relax_scope, at.thread):
                domain[at.var] = tir.Range(at.min, at.extent)
            at = tree.parent(at)
    return domain


def domain_above(tree: Tree, realize: tir.BlockRealize, high: tir.Stmt | None = None) -> Domain:
    """Return the ranges of the loops between a block and the enclosing block, or the loop `high`."""
    return loop_domain(tree, tree.parent(realize), high)


def shared_by_threads(storage: str, thread: str) -> bool:
    """Return True if all threads along the axis `thread` share the memory of scope `storage`."""
    kind = storage.partition(".")[0] or "global"
    if kind == "global":
        return True
    if thread.startswith("blockIdx"):
        return False
    return kind == "shared" or (kind in ("warp", "warpgroup") and thread == "threadIdx.x")


# ---------------------------------------------------------------- bindings


def is_trivial_binding(tree: Tree, block: tir.Block) -> bool:
    """Return True if the axes are bound to the loops above, each once and in order."""
    loops, values = tree.loops_above(block), tree.realize(block).values
    return len(loops) == len(values) and all(v is loop.var for v, loop in zip(values, loops, strict=True))


def is_affine_binding(tree: Tree, realize: tir.BlockRealize) -> bool:
    """Return True if the loops up to the enclosing block bind the axes quasi-affinely and surjectively."""
    key = ("affine", realize)
    affine = tree.cache.get(key)
    if affine is None:
        if tree.scope(realize.block) is None:
            affine = not realize.block.iter_vars
        else:
            affine = _is_affine(tree, realize) or _was_affine(tree, realize)
        tree.cache[key] = affine
    return affine


# A step that keeps the set of iterations (`split`, `fuse`, `reorder`) may make a binding so complex that it is no
# longer recognized as affine, although it still is. So a block remembers its place before such a step.
Remembered = dict[tir.Block, tuple[Tree, tir.BlockRealize]]


def remembered_bindings(tree: Tree) -> Remembered:
    """Return, by block, an earlier function and a realize in it that runs for the same iterations."""
    return tree.cache.setdefault("kept", {})  # type: ignore[no-any-return]


def remember_bindings(before: Tree, after: Tree) -> None:
    """Record that all blocks run for the same iterations as before; both functions have the same blocks in order."""
    kept = remembered_bindings(after)
    for old, new in zip(before.realizes, after.realizes, strict=True):
        if new.values:
            kept[new.block] = (before, old)


def remember_binding(after: Tree, block: tir.Block, before: Tree, realize: tir.BlockRealize) -> None:
    """Record that a block of `after` runs for the iterations that `realize` had in `before`."""
    remembered_bindings(after)[block] = (before, realize)


def inherit_bindings(before: Tree, after: Tree, follow: Mapping[tir.Block, tir.Block]) -> None:
    """Carry over the remembered bindings of blocks whose axis values and predicate have not changed."""
    kept = remembered_bindings(after)
    for block, earlier in remembered_bindings(before).items():
        now = follow[block]
        if after.has_block(now):
            old, new = before.realize(block), after.realize(now)
            if new.values is old.values and new.predicate is old.predicate:
                kept[now] = earlier


def _is_affine(tree: Tree, realize: tir.BlockRealize) -> bool:
    return tree.memoized(  # type: ignore[no-any-return]
        ("affine", realize.values, realize.predicate, *iterations_key(tree, realize.block)[1:]),
        lambda: is_affine_in(realize, domain_above(tree, realize), analyzer_of(tree)),
    )


def _was_affine(tree: Tree, realize: tir.BlockRealize) -> bool:
    earlier = remembered_bindings(tree).get(realize.block)
    while earlier is not None:
        tree, realize = earlier
        if _is_affine(tree, realize):
            return True
        earlier = remembered_bindings(tree).get(realize.block)
    return False


def is_affine_in(realize: tir.BlockRealize, domain: Mapping[tir.Var, tir.Range], analyzer: Analyzer) -> bool:
    """Return True if the binding is affine in the variables of `domain`, all others being constant."""
    return affine_violation(realize, domain, analyzer) is None


def affine_violation(realize: tir.BlockRealize, domain: Mapping[tir.Var, tir.Range], analyzer: Analyzer) -> str | None:
    """Return why the binding is not affine in the variables of `domain`, None if it is."""
    if not domain:
        return None
    if not realize.values:
        return "it has no axes, and the loops repeat it"
    iter_map = detect_iter_map(
        realize.values, domain, realize.predicate, "surjective", analyzer, simplify_trivial=False
    )
    if not iter_map:
        return iter_map.reason
    for axis, sum in zip(realize.block.iter_vars, iter_map.indices, strict=True):
        if sum.args and not is_one(sum.args[0].scale):
            return f"`{axis.var.name}` moves in steps of {sum.args[0].scale}"
    return None


# ---------------------------------------------------------------- kinds of loops


def loop_iter_kind(tree: Tree, loop: tir.For) -> IterKind:
    """Return SPATIAL if the loop drives spatial axes only, or none; REDUCE if reduce axes only; else OPAQUE."""
    key = ("kind", loop)
    kind = tree.cache.get(key)
    if kind is None:
        kinds = {
            axis.kind
            for realize in tree.child_realizes(loop.body)
            for axis, value in zip(realize.block.iter_vars, realize.values, strict=True)
            if loop.var in vars_of(value)
        }
        if kinds <= {IterKind.SPATIAL}:
            kind = IterKind.SPATIAL
        else:
            kind = IterKind.REDUCE if kinds == {IterKind.REDUCE} else IterKind.OPAQUE
        tree.cache[key] = kind
    return kind
