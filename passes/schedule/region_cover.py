"""Does what producers write cover what consumers read, and are the blocks of a scope stages of a pipeline?"""

from __future__ import annotations

from mlcc.ir import tir
from mlcc.passes.schedule.scope import DepKind, scope_info
from mlcc.passes.schedule.tree import Tree


def stage_pipeline_violation(tree: Tree, scope: tir.Block) -> tuple[str, tuple[tir.Block, ...]] | None:
    """Why the blocks of `scope` are no pipeline of stages, and the blocks to look at; None if they are one."""
    for dep in scope_info(tree, scope).deps:
        if dep.kind is DepKind.WAR:
            words = f"`{dep.dst.name}` writes `{dep.buffer.name}` after `{dep.src.name}` has read it"
            return words, (dep.src, dep.dst)
    return None


def is_stage_pipeline(tree: Tree, scope: tir.Block) -> bool:
    return stage_pipeline_violation(tree, scope) is None
