"""Removal of a block from its scope, with the loops that become empty."""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.tree import Tree


def removable_statement(tree: Tree, block: tir.Block) -> tir.Stmt:
    """Return the outermost statement of the scope of `block` that holds nothing else.

    Refuses (E0647) the only block of a scope.
    """
    at: tir.Stmt = tree.realize(block)
    for up in tree.ancestors(at):
        if isinstance(up, tir.Block):
            if len(up.body) > 1:
                return at
            what = "of the function" if tree.scope(up) is None else f"in block `{up.name}`"
            raise Refusal(
                "E0647",
                f"block `{block.name}` is the only one {what}, so it cannot be removed",
                (block,),
            )
        if not _holds_only(up, at):
            break
        at = up
    return at


def _holds_only(up: tir.Stmt, child: tir.Stmt) -> bool:
    match up:
        case tir.IfThenElse(then_body=then, else_body=other):
            return len(then) + len(other or ()) == 1
        case tir.For() | tir.While() | tir.AttrStmt():
            return len(up.body) == 1
    return False
