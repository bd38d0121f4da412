"""Checks of the conditions on blocks and scopes; a refusal says why and labels the places."""

from __future__ import annotations

from mlcc.arith.analyzer import Analyzer
from mlcc.ir import tir
from mlcc.ir.node import walk
from mlcc.passes.schedule.analysis.bindings import (
    affine_violation,
    analyzer_of,
    domain_above,
    is_affine_binding,
    is_trivial_binding,
    vars_of,
)
from mlcc.passes.schedule.analysis.conditions import (
    Scope,
    complete_block_violation,
    other_writer,
    reduction_block_violation,
)
from mlcc.passes.schedule.analysis.scope import escaping_write
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Tree


def _blocks_to_mark(tree: Tree, block: tir.Block, scope: Scope) -> tuple[tir.Stmt, ...]:
    other = other_writer(tree, block, scope)
    return (block,) if other is None or other[1] is block else (block, other[1])


def check_complete_block(tree: Tree, block: tir.Block, scope: Scope) -> None:
    """Refuse (E0656) a block that is not complete."""
    words = complete_block_violation(tree, block, scope)
    if words is not None:
        raise Refusal(
            "E0656",
            f"block `{block.name}` is not complete: it {words}",
            _blocks_to_mark(tree, block, scope),
            _help(block),
        )


def check_reduction_block(tree: Tree, block: tir.Block, scope: Scope) -> None:
    """Refuse (E0656) a block that is not a reduction."""
    words = reduction_block_violation(tree, block, scope)
    if words is not None:
        raise Refusal(
            "E0656", f"block `{block.name}` is not a reduction: it {words}", _blocks_to_mark(tree, block, scope)
        )


def check_complete_or_reduction_block(tree: Tree, block: tir.Block, scope: Scope) -> None:
    """Refuse (E0656) a block that is neither complete nor a reduction."""
    complete = complete_block_violation(tree, block, scope)
    if complete is None:
        return
    reduction = reduction_block_violation(tree, block, scope)
    if reduction is None:
        return
    raise Refusal("E0656", _neither_text(block, complete, reduction), _blocks_to_mark(tree, block, scope), _help(block))


def _neither_text(block: tir.Block, complete: str, reduction: str) -> str:
    if complete == reduction:
        return f"block `{block.name}` is neither complete nor a reduction: it {complete}"
    return f"block `{block.name}` is not complete: it {complete}; and not a reduction: it {reduction}"


def _help(block: tir.Block) -> str | None:
    """Return help for the common case of a reduction whose init is a branch or is missing."""
    if block.init is None and any(a.kind is tir.IterKind.REDUCE for a in block.iter_vars):
        return f"give block `{block.name}` its start value in a `with T.init():`, as a reduction needs it"
    return None


def check_subtree_compact_dataflow(tree: Tree, root: Scope) -> None:
    """Refuse (E0657) a loop or block with a child that is neither complete nor a reduction below it."""
    for realize in tree.child_realizes(root.body):
        block = realize.block
        complete = complete_block_violation(tree, block, root)
        reduction = None if complete is None else reduction_block_violation(tree, block, root)
        if complete is not None and reduction is not None:
            what = f"block `{root.name}`" if isinstance(root, tir.Block) else f"the loop `{root.var.name}`"
            raise Refusal(
                "E0657",
                f"{what} cannot be taken as one piece: {_neither_text(block, complete, reduction)}",
                (root, block),
            )


def check_not_output(tree: Tree, block: tir.Block, scope: tir.Block) -> None:
    """Refuse (E0658) a block that writes a buffer which `scope` does not allocate."""
    buffer = escaping_write(block, scope)
    if buffer is not None:
        raise Refusal(
            "E0658",
            f"block `{block.name}` writes `{buffer.name}`, which outlives block `{scope.name}`: it is an output there",
            block,
        )


# ---------------------------------------------------------------- bindings


def check_affine_binding(tree: Tree, block: tir.Block) -> None:
    """Refuse (E0638) a block whose axes the loops above do not drive affinely."""
    check_partial_affine_binding(tree, block, None)


def check_partial_affine_binding(tree: Tree, block: tir.Block, high: tir.Stmt | None) -> None:
    """Refuse (E0638) a block whose axes not even the loops below `high` drive affinely."""
    realize = tree.realize(block)
    if is_affine_binding(tree, realize):
        return
    words = affine_violation(realize, domain_above(tree, realize, high), analyzer_of(tree))
    if words is None:
        return
    where = f" below `{high.var.name}`" if isinstance(high, tir.For) else ""
    raise Refusal("E0638", f"the loops{where} do not drive the axes of block `{block.name}` affinely: {words}", block)


def check_trivial_binding(tree: Tree, block: tir.Block) -> None:
    """Refuse (E0638) a block whose axes are not the loops above, each once and in order."""
    if not is_trivial_binding(tree, block):
        names = ", ".join(loop.var.name for loop in tree.loops_above(block))
        values = ", ".join(str(v) for v in tree.realize(block).values)
        raise Refusal(
            "E0638",
            f"the axes of block `{block.name}` must be the loops above ({names or 'none'}) in order,"
            f" but are ({values or 'none'})",
            block,
        )


def check_loop_starts_at_zero(loop: tir.For, analyzer: Analyzer | None = None) -> None:
    """Refuse (E0639) a loop that does not start at 0."""
    if not (analyzer or Analyzer()).prove_equal(loop.min, tir.IntImm(loop.min.dtype, 0)):
        raise Refusal("E0639", f"the loop `{loop.var.name}` starts at {loop.min}, not at 0", loop)


# ---------------------------------------------------------------- scopes


def scope_root(tree: Tree, node: tir.Stmt, require_stage_pipeline: bool = False) -> tir.Block:
    """Return the enclosing block. Refuse (E0655) the root block, (E0659) a scope that must be a stage pipeline but is
    not.
    """
    scope = tree.scope(node)
    if scope is None:
        raise Refusal("E0655", "the root block cannot be transformed", node)
    if require_stage_pipeline:
        check_stage_pipeline(tree, scope)
    return scope


def check_stage_pipeline(tree: Tree, scope: tir.Block) -> None:
    """Refuse (E0659) a block whose children do not form a pipeline of stages."""
    from mlcc.passes.schedule.analysis.region_cover import stage_pipeline_violation

    violation = stage_pipeline_violation(tree, scope)
    if violation is not None:
        words, marks = violation
        raise Refusal("E0659", f"the blocks in `{scope.name}` are not stages of a pipeline: {words}", marks)


def check_single_child(tree: Tree, parent: Scope) -> tir.BlockRealize:
    """The one block below a loop or block; refuses (E0655) if there are none or several."""
    realizes = tree.child_realizes(parent.body)
    if len(realizes) != 1:
        what = f"block `{parent.name}`" if isinstance(parent, tir.Block) else f"the loop `{parent.var.name}`"
        names = ", ".join(f"`{r.block.name}`" for r in realizes) or "none"
        raise Refusal("E0655", f"{what} must hold exactly one block, but holds {names}", (parent, *realizes))
    return realizes[0]


def loops_used(loops: list[tir.For], realize: tir.BlockRealize) -> list[tir.For]:
    """Those of `loops` that the axes or the predicate of a block mention."""
    used = set().union(*(vars_of(v) for v in realize.values), vars_of(realize.predicate))
    return [loop for loop in loops if loop.var in used]


def has_branch(body: tuple[tir.Stmt, ...]) -> bool:
    """Return True if the statements contain a predicate, an `if`, a `Select` or an `if_then_else`."""
    for node in walk(body):
        match node:
            case tir.BlockRealize(predicate=predicate) if tir.const_int(predicate) != 1:
                return True
            case tir.IfThenElse() | tir.Select() | tir.Call(op=tir.Op(name="tir.if_then_else")):
                return True
    return False
