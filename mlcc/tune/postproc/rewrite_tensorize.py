"""Tensorize the blocks that rules have tiled for a tensor intrinsic."""

from __future__ import annotations

from mlcc.errors import CompileError
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.postproc.postproc import Postproc
from mlcc.tune.schedulable import functions_with_blocks, post_order
from mlcc.tune.schedule_rule.analysis import python_value

_KEY = "meta_schedule.auto_tensorize"


class RewriteTensorize(Postproc):
    """Tensorizes blocks with `meta_schedule.auto_tensorize`; a block that does not match keeps its loops.

    With `vectorize_init_loop` the inits of such blocks, whose annotation is empty, are vectorized. TVM:
    `RewriteTensorize`.
    """

    def __init__(self, vectorize_init_loop: bool = False) -> None:
        self.vectorize_init_loop = vectorize_init_loop

    def apply(self, sch: Schedule) -> bool:
        marked = [
            (func_name, block.name, str(python_value(block.annotations[_KEY])))
            for func_name in functions_with_blocks(sch)
            for block in post_order(sch.state.func(func_name).body)
            if _KEY in block.annotations
        ]
        for func_name, name, intrin in marked:
            if intrin or self.vectorize_init_loop:
                block = sch.get_block(name, func_name)
                sch.unannotate(block, _KEY)
                self._rewrite(sch, block, intrin)
        return True

    def _rewrite(self, sch: Schedule, block: BlockRV, intrin: str) -> None:
        if not intrin:
            (child,) = sch.get_child_blocks(block)
            (loop,) = sch.get_loops(child)
            sch.vectorize(loop)
            return
        try:
            sch.tensorize(block, intrin)
        except CompileError:
            return
