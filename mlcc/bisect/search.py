"""The search: the first pass whose result is wrong, the changes of it that matter, the kernel; or machine code."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from mlcc.bisect.changes import Changes
from mlcc.bisect.judge import RACES, Judge, Judgement, alone, is_lowered
from mlcc.bisect.primitives import schedule_steps
from mlcc.errors import MlccError
from mlcc.ir import tir
from mlcc.ir.module import IRModule
from mlcc.passes.manage.manager import Observer, Pass, PassContext, PassFailed, Pipeline, run_pipeline
from mlcc.reduce.outcomes import OK

RESULTS, RACE, CRASH, CODE = "results", "race", "crash", "machine code"
_Item = TypeVar("_Item")
_CODE = re.compile(r"E\d{4}: ")  # begins a judgement that is an error
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """The changes of a pass that make a module wrong: `needed` of `total`.

    `good` is the module after the pass without those changes, `wrong` the one with the first of them alone. If the pass
    schedules, `statement` is the first one of its schedule after which the module is wrong, and `number` its place
    among `statements`.
    """

    total: int
    needed: int
    good: IRModule
    wrong: IRModule
    statement: str = ""
    number: int = 0
    statements: int = 0


@dataclass(frozen=True)
class Finding:
    """What was found: the kind of fault, in which pass (None: in none of them), in which kernels.

    `module` is what the pass was given; that which code was generated from, for machine code; or the original.
    """

    kind: str
    problem: Judgement
    module: IRModule
    at: int | None = None
    culprit: Pass | None = None
    step: Step | None = None
    kernels: tuple[str, ...] = ()


@dataclass
class _Stages(Observer):
    """Keeps the module before the first pass and after each one."""

    modules: list[IRModule] = field(default_factory=list)

    def start(self, pipeline: Pipeline, module: IRModule) -> None:
        self.modules.append(module)

    def after(self, at: int, current: Pass, before: IRModule, module: IRModule) -> None:
        self.modules.append(module)


def bisect(
    module: IRModule, pipeline: Pipeline, ctx: PassContext, judge: Judge, tell: Tell = lambda line: None
) -> Finding | None:
    """Find what makes a function of a module compute something else, crash or race; None if nothing does.

    Each pass is judged as if monotone: once a result is wrong, it stays wrong. Raises CompileError for faulty input,
    and for passes after which no code can be generated.
    """
    stages = _Stages()
    failure: Exception | None = None
    try:
        run_pipeline(pipeline, module, ctx, [stages])
    except PassFailed as exc:
        failure = exc
    except MlccError as exc:
        if len(stages.modules) <= 1 or len(stages.modules) > len(pipeline.passes):
            raise
        failure = exc
    modules = stages.modules
    judged = _first_judgement(judge, modules[-1])
    if judged is not None:
        kind, problem = judged
        if failure is None and kind == RESULTS and _CODE.match(problem):
            judge.require_code(modules[-1])
        judgement = judge.results if kind == RESULTS else judge.race
        at = _first_wrong(modules, lambda m: judgement(m) != OK, tell)
        if at == 0:
            return Finding(kind, problem, module, kernels=_kernels_alone(judge, kind, module))
        before, after = modules[at - 1], modules[at]
        tell(f"pass {at} of {len(pipeline.passes)}, `{pipeline.passes[at - 1].name}`: looking for the change")
        step = _step(before, after, lambda m: judgement(m) == OK)
        kernels = () if step is None else _kernels_that_differ(step.good, after)
        if step is not None:
            step = _with_statement(step, pipeline.passes[at - 1], before, ctx, kernels, lambda m: judgement(m) != OK)
        return Finding(kind, judgement(after), before, at, pipeline.passes[at - 1], step, kernels)
    if failure is not None:
        at = len(modules)
        return Finding(CRASH, str(failure), modules[-1], at, pipeline.passes[at - 1])
    if judge.is_emulated:
        judge.require_code(modules[-1])  # the emulator has run the kernels already, if there are any
        return None
    race = judge.race(module)  # whose loops lowering made serial
    if race != OK:
        return Finding(RACE, race, module, kernels=_kernels_alone(judge, RACE, module))
    tell("all passes agree: looking at the machine code")
    return _machine_code(judge, modules[-1])


def _first_judgement(judge: Judge, module: IRModule) -> tuple[str, Judgement] | None:
    results = judge.results(module)
    if results != OK:
        return (RACE if results.startswith(RACES) else RESULTS), results
    race = judge.race(module)
    return None if race == OK else (RACE, race)


def _first_wrong(modules: Sequence[IRModule], is_wrong: Callable[[IRModule], bool], tell: Tell) -> int:
    """Return the first module that is wrong, by binary search; the last one is."""
    low, high = -1, len(modules) - 1
    while high - low > 1:
        middle = (low + high) // 2
        tell(f"{middle} of {len(modules) - 1} passes")
        if is_wrong(modules[middle]):
            high = middle
        else:
            low = middle
    # modules that a pass left alone are one
    while high > 0 and modules[high].functions == modules[high - 1].functions:
        high -= 1
    return high


def _step(before: IRModule, after: IRModule, is_right: Callable[[IRModule], bool]) -> Step | None:
    """Find the fewest changes that have to be undone for a right module; None if only all of them do.

    First those of whole functions are left undone, then single ones.
    """
    changes = Changes(before, after)
    functions = list(dict.fromkeys(c.function for c in changes.all))

    def right_without(names: Sequence[str]) -> bool:
        return is_right(changes.without([c for c in changes.all if c.function in names]))

    names = minimal_subset(functions, right_without)
    undone = [c for c in changes.all if c.function in names]
    undone = minimal_subset(undone, lambda some: is_right(changes.without(some)))
    if not undone:
        return None
    return Step(len(changes.all), len(undone), changes.without(undone), changes.without(undone[1:]))


def _with_statement(
    step: Step, current: Pass, before: IRModule, ctx: PassContext, kernels: Sequence[str],
    is_wrong: Callable[[IRModule], bool],
) -> Step:  # fmt: skip
    """Return a step with the first statement of the pass's schedule after which the module is wrong."""
    steps = schedule_steps(current, before, ctx, kernels)
    if not steps or not is_wrong(steps[-1][1]):
        return step
    low, high = -1, len(steps) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if is_wrong(steps[middle][1]):
            high = middle
        else:
            low = middle
    good = steps[high - 1][1] if high else before
    return replace(
        step, statement=steps[high][0], number=high + 1, statements=len(steps), good=good, wrong=steps[high][1]
    )


def minimal_subset(items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Return a subset that has a property which all items have, and loses it without any one of its items (ddmin)."""
    kept = list(items)
    size = max(len(kept) // 2, 1)
    while size >= 1 and kept:
        at = 0
        while at < len(kept):
            rest = kept[:at] + kept[at + size :]
            if rest and holds(rest):
                kept = rest
            else:
                at += size
        size = min(size, len(kept)) // 2 if size > 1 else 0
    return kept


def _kernels_that_differ(good: IRModule, wrong: IRModule) -> tuple[str, ...]:
    """Return the TensorIR functions that two modules do not share; those that differing graph functions call."""
    from mlcc.report.module_diff import compare_modules

    names = [d.name for d in compare_modules(good, wrong) if d.kind != "only left" and d.name in wrong.functions]
    return tuple(name for name in names if isinstance(wrong[name], tir.PrimFunc))


def _kernels_alone(judge: Judge, kind: str, module: IRModule) -> tuple[str, ...]:
    if kind != RACE:
        return ()
    return tuple(name for name, func in module.functions.items() if isinstance(func, tir.PrimFunc))


def _machine_code(judge: Judge, lowered: IRModule) -> Finding | None:
    problem = judge.machine_code(lowered)
    if problem == OK:
        return None
    if is_lowered(lowered):
        for call in judge.kernel_calls(lowered):
            wrong = judge.kernel_code(lowered, call)
            if wrong != OK:
                return Finding(CODE, wrong, alone(lowered, call.name), kernels=(call.name,))
    return Finding(CODE, problem, lowered)
