"""Design spaces by applying rules to each block."""

from __future__ import annotations

from collections.abc import Callable

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.schedule.handles import BlockRV
from mlcc.passes.schedule.schedule import Schedule
from mlcc.tune.schedulable import post_order
from mlcc.tune.schedule_rule import ApplyCustomRule, ScheduleRule
from mlcc.tune.schedule_rule.analysis import annotation, has_block
from mlcc.tune.space_generator.generator import FROM_TARGET, MutatorProbs, Postprocs, Rules, SpaceGenerator


class PostOrderApply(SpaceGenerator):
    """Applies every rule to every block, later blocks first; a rule with several variants makes several spaces. TVM:
    `PostOrderApply`.

    `f_block_filter(block)` selects the blocks to schedule, by default all.
    """

    def __init__(
        self, f_block_filter: Callable[[tir.Block], bool] | None = None, sch_rules: Rules = FROM_TARGET,
        postprocs: Postprocs = FROM_TARGET, mutator_probs: MutatorProbs = FROM_TARGET,
    ) -> None:  # fmt: skip
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        sch = Schedule(mod, seed=self._random.fork())
        blocks = self._collect(sch)
        schedules = [sch]
        for rule in self.sch_rules:
            schedules = _apply_to_blocks(rule, schedules, blocks)
        return schedules

    def _collect(self, sch: Schedule) -> list[BlockRV]:
        """Return the blocks in post-order. Raises ValueError for two blocks of one name."""
        working = sch.func_working_on
        names = [n for n, f in sch.mod.functions.items() if isinstance(f, tir.PrimFunc)]
        blocks = []
        for func_name in names if working is None else [working]:
            seen: set[str] = set()
            for block in post_order(sch.state.func(func_name).body):
                if block.name in seen:
                    raise ValueError(f"`{func_name}` has two blocks called `{block.name}`: rename one")
                seen.add(block.name)
                if self.f_block_filter is None or self.f_block_filter(block):
                    blocks.append(sch.get_block(block.name, func_name))
        return blocks


def _apply_to_blocks(rule: ScheduleRule, schedules: list[Schedule], blocks: list[BlockRV]) -> list[Schedule]:
    """Apply a rule to every block of the schedules, from the last block on. Return the resulting schedules."""
    waiting = [(sch, len(blocks)) for sch in schedules]
    done: list[Schedule] = []
    while waiting:
        sch, left = waiting.pop()
        if left == 0:
            done.append(sch)
            continue
        block = blocks[left - 1]
        if _applies(rule, sch, block):
            waiting += [(derived, left - 1) for derived in rule.apply(sch, block)]
        else:
            waiting.append((sch, left - 1))
    return done


def _applies(rule: ScheduleRule, sch: Schedule, block: BlockRV) -> bool:
    if not has_block(sch, block):
        return False
    return isinstance(rule, ApplyCustomRule) or annotation(sch, block, "schedule_rule") is None
