"""Decompose reductions: move their inits to separate loop nests."""

from __future__ import annotations

from mlcc.ir.tir import IterKind
from mlcc.passes.schedule.analysis.bindings import bound_vars, loop_iter_kind
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.tree import Tree
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.schedulable import functions_with_blocks
from mlcc.tune.schedule_rule.analysis import annotation

_TENSORIZE, _TENSORIZE_INIT = "meta_schedule.auto_tensorize", "meta_schedule.auto_tensorize_init"


class RewriteReductionBlock(Postproc):
    """Decomposes every reduction except cross-thread ones, before its first loop that is not spatial. TVM:
    `RewriteReductionBlock`."""

    def apply(self, sch: Schedule) -> bool:
        changed = True
        while changed:
            reductions = [(name, block) for name in functions_with_blocks(sch) for block in _reductions(sch, name)]
            changed = sum(self._decompose(sch, name, block) for name, block in reductions) > 0
        return True

    def _decompose(self, sch: Schedule, func_name: str, name: str) -> bool:
        tree = sch.state.tree(func_name)
        depth = _depth(tree, name)
        if depth is None:
            return False
        block = sch.get_block(name, func_name)
        init = sch.decompose_reduction(block, sch.get_loops(block)[depth])
        if annotation(sch, block, _TENSORIZE) is not None:
            sch.unannotate(init, _TENSORIZE)
            of_init = annotation(sch, block, _TENSORIZE_INIT)
            sch.annotate(init, _TENSORIZE, of_init or "")
            if of_init is not None:
                sch.unannotate(block, _TENSORIZE_INIT)
                sch.unannotate(init, _TENSORIZE_INIT)
        return True


def _reductions(sch: Schedule, name: str) -> list[str]:
    """Return the names of the blocks with an init whose reduction axes are not bound to threads."""
    tree = sch.state.tree(name)
    threads = {loop.var for loop in tree.loops if (loop.thread or "").startswith(("threadIdx", "blockIdx"))}
    return [
        realize.block.name
        for realize in tree.realizes
        if realize.block.init is not None and not bound_vars(realize, IterKind.REDUCE) & threads
    ]


def _depth(tree: Tree, name: str) -> int | None:
    """Return the position of the outermost loop around the block that is not spatial."""
    (block,) = tree.blocks_named(name)
    loops = tree.loops_above(block)
    return next((at for at, loop in enumerate(loops) if loop_iter_kind(tree, loop) is not IterKind.SPATIAL), None)
