"""Inlining of element-wise stages into their consumers or producers."""

from __future__ import annotations

from collections.abc import Sequence

from mlcc.ir import tir
from mlcc.passes.schedule.analysis.checks import has_branch, scope_root
from mlcc.passes.schedule.analysis.conditions import complete_block_violation
from mlcc.passes.schedule.analysis.scope import consumers, is_output, producers
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.primitives.inline import can_inline, can_reverse_inline
from mlcc.passes.schedule.refusal import Refusal
from mlcc.passes.schedule.schedule import Schedule
from mlcc.passes.schedule.state import BlockRef
from mlcc.tune.schedule_rule.analysis import block_of, calls_any, is_spatial_func, python_value, read_pattern
from mlcc.tune.schedule_rule.rule import ScheduleRule


class AutoInline(ScheduleRule):
    """Inlines a block into its consumers (`into_consumer`) or its only producer (`into_producer`). TVM: `AutoInline`.

    In functions with reductions, blocks are not inlined if they branch (`disallow_if_then_else`), call an operator of
    `disallow_op` ("tir.exp"), or read at indices that do not use those of the write at most once each
    (`require_injective`) and in order (`require_ordered`). With `inline_const_tensor` constant tensors are always
    inlined.
    """

    def __init__(
        self, into_producer: bool, into_consumer: bool, inline_const_tensor: bool, disallow_if_then_else: bool,
        require_injective: bool, require_ordered: bool, disallow_op: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        self.into_producer, self.into_consumer = into_producer, into_consumer
        self.inline_const_tensor = inline_const_tensor
        self.disallow_if_then_else = disallow_if_then_else
        self.require_injective, self.require_ordered = require_injective, require_ordered
        self.disallow_op = [name.replace("tirx.", "tir.") for name in disallow_op or ()]

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        ref = block_of(sch, block)
        if len(ref.block.writes) == 1:
            if self._is_inlined_constant(ref) or (self._is_cheap(ref) and self._into_consumer(ref)):
                sch.compute_inline(block)
            elif self._is_cheap(ref) and self._into_producer(ref):
                sch.reverse_compute_inline(block)
        return [sch]

    def _is_inlined_constant(self, ref: BlockRef) -> bool:
        return self.inline_const_tensor and not ref.block.reads and _goes_into_consumers(ref)

    def _is_cheap(self, ref: BlockRef) -> bool:
        """Return True if inlining the block into its consumers repeats no work and keeps them easy to tile."""
        block = ref.block
        if (
            python_value(block.annotations.get("meta_schedule.inline_rule")) == "disable"
            or ref.tree.scope(block) is None
        ):
            return False
        if is_spatial_func(ref.tree):
            return True
        if self.disallow_op and calls_any(ref.realize, self.disallow_op):
            return False
        if self.disallow_if_then_else and has_branch((ref.realize,)):
            return False
        patterns = [read_pattern(read, block.writes[0]) for read in block.reads]
        return all(
            (injective or not self.require_injective) and (ordered or not self.require_ordered)
            for injective, ordered in patterns
        )

    def _into_consumer(self, ref: BlockRef) -> bool:
        return self.into_consumer and _goes_into_consumers(ref)

    def _into_producer(self, ref: BlockRef) -> bool:
        writers = producers(ref.tree, ref.block)
        scope = ref.tree.scope(ref.block)
        return (
            self.into_producer
            and scope is not None
            and len(writers) == 1
            and complete_block_violation(ref.tree, writers[0], scope) is None
            and can_reverse_inline(ref)
            and "meta_schedule.auto_tensorize" not in writers[0].annotations
        )


class InlineConstantScalars(ScheduleRule):
    """Inlines blocks that compute a constant scalar. TVM: `InlineConstantScalars`."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        ref = block_of(sch, block)
        if _is_constant_scalar(ref.block) and not _is_output(ref):
            sch.compute_inline(block)
        return [sch]


def _goes_into_consumers(ref: BlockRef) -> bool:
    return bool(consumers(ref.tree, ref.block)) and can_inline(ref.state, ref)


def _is_constant_scalar(block: tir.Block) -> bool:
    return not block.reads and len(block.writes) == 1 and not block.writes[0].buffer.shape


def _is_output(ref: BlockRef) -> bool:
    try:
        scope = scope_root(ref.tree, ref.block, require_stage_pipeline=True)
    except Refusal:
        return True
    return is_output(ref.tree, ref.block, scope)
