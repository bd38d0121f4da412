"""The pass `version-sizes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.target import Target
from mlcc.passes.auto_schedule.apply_rules import (
    Facts,
    RuleOutcome,
    constant_parameters,
    foreign_failures,
    prepare_kernel,
    schedule_function,
)
from mlcc.passes.auto_schedule.eligibility import SCHEDULED, why_ineligible
from mlcc.passes.auto_schedule.size_versions import SizeRange, joined, size_ranges, specialized
from mlcc.passes.lowering.symbols import symbols_of
from mlcc.passes.lowering.versions import function_facts
from mlcc.passes.manage.manager import Pass, PassContext
from mlcc.recursion import gc_disabled


@dataclass(frozen=True)
class VersionSizes(Pass):
    """Schedule TIR functions of unknown sizes several times, for ranges of a size, between which each call chooses.

    Products of operands that vary have a version for one row, one for few and one for more; reductions of rows of
    unknown length have one for a single element, one for less than a vector, and two for more. Each is scheduled by the
    rules as if compiled for its sizes. Adjacent ranges that get the same schedule have one version. Other functions are
    left to `auto-schedule`.

    Before:  for i, j, k in T.grid(n, 512, 512): ...
    After:   if n == 1: ...         # rule matvec
             elif n < 4: ...        # rule matmul, wide tiles
             else: ...              # rule matmul
    """

    name: ClassVar[str] = "version-sizes"
    needs_blocks: ClassVar[bool] = True

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        scheduled = module.copy()
        for outcome in versioned_functions(module, ctx.target):
            ctx.warned.extend(foreign_failures(outcome))
            if outcome.func is not None:
                scheduled.update_func(outcome.name, outcome.func)
        return scheduled


def versioned_functions(module: IRModule, target: Target) -> list[RuleOutcome]:
    """Return the outcomes for the functions that get versions."""
    constants = constant_parameters(module)
    outcomes = []
    for name, func in module.functions.items():
        if isinstance(func, tir.PrimFunc):
            facts = function_facts(func, target)
            outcomes.append(schedule_versions(func, name, facts, constants.get(name, frozenset())))
    return [outcome for outcome in outcomes if outcome is not None]


def schedule_versions(
    func: tir.PrimFunc, name: str, facts: Facts, constants: frozenset[int] = frozenset()
) -> RuleOutcome | None:
    """Schedule a function for each range of its size; None if it is left alone, or one schedule is enough.

    `constants`: see `AnyKernel.of`.
    """
    if not isinstance(facts, CpuFacts) or not symbols_of(func) or why_ineligible(func) is not None:
        return None
    versions: list[tuple[SizeRange, RuleOutcome]] = []
    with gc_disabled():
        for span in size_ranges(prepare_kernel(func, name, facts, constants)):
            sizes = {span.var.name: (span.low, span.high)}
            outcome = schedule_function(specialized(func, span), name, facts, None, constants, sizes)
            if outcome.func is None:
                return None
            if versions and not versions[-1][0].single and _plan(versions[-1][1]) == _plan(outcome):
                span = SizeRange(span.var, versions.pop()[0].low, span.high)
            versions.append((span, outcome))
    if len(versions) < 2:
        return None
    funcs = [(span, outcome.func) for span, outcome in versions if outcome.func is not None]
    last = versions[-1][1]
    return replace(
        last,
        why=f"{len(versions)} versions, by the size `{versions[0][0].var.name}` of a call",
        choices=tuple(line for span, outcome in versions for line in _described(span, outcome)),
        passed=(),
        broken=next((outcome.broken for _, outcome in versions if outcome.broken is not None), None),
        func=joined(func, funcs).with_attr(SCHEDULED, True),
        trace=None,
        offers=(),
    )


def _plan(outcome: RuleOutcome) -> tuple[object, ...]:
    """Return what tells one schedule of a function from another."""
    return outcome.rule, outcome.choices


def _described(span: SizeRange, outcome: RuleOutcome) -> list[str]:
    """Return the lines of a report on a version."""
    return [f"{span}: rule {outcome.rule}: {outcome.why}", *(f"  {choice}" for choice in outcome.choices)]
