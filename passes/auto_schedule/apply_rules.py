"""Application of the rules: try them in order, and record the outcome for each function."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from mlcc import plugins
from mlcc.errors import CompileError, Diagnostic, Severity
from mlcc.ir import relax, tir
from mlcc.ir.module import IRModule
from mlcc.ir.versions import version_names
from mlcc.machine.cpu_tables import CpuFacts
from mlcc.machine.gpu_tables import GpuFacts
from mlcc.passes.auto_schedule.eligibility import why_ineligible
from mlcc.passes.auto_schedule.kernel import AnyKernel, Bounds, RuleNotApplicable
from mlcc.passes.auto_schedule.rule import Rule
from mlcc.passes.auto_schedule.rules import rules_for
from mlcc.passes.auto_schedule.tuning_choices import RequestedChoices, TuningChoice
from mlcc.passes.auto_schedule.widen_half import compute_halves_in_float32
from mlcc.passes.schedule.trace import Trace
from mlcc.progress import working
from mlcc.recursion import gc_disabled
from mlcc.relax.queries import all_bindings, tir_callee

Facts = CpuFacts | GpuFacts


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome for one function: the rule that scheduled it, and why the others did not.

    `rule` is None if none applied. `offers` are the choices that the rule made, `passed` the rules that refused, each
    with its reason, and `broken` is the exception of a rule that failed because of a bug.
    """

    name: str
    rule: str | None
    why: str
    choices: tuple[str, ...] = ()
    passed: tuple[tuple[str, str], ...] = ()
    broken: Exception | None = None
    func: tir.PrimFunc | None = None
    trace: Trace | None = None
    offers: tuple[TuningChoice, ...] = ()


def schedule_module(
    module: IRModule, facts: Facts | Callable[[tir.PrimFunc], Facts], rules: Sequence[Rule] | None = None
) -> list[RuleOutcome]:
    """Schedule each TIR function of a module by the first rule that takes it; return the outcomes.

    `rules` defaults to those for the kind of machine. `facts` describes the machine, or is a function that returns the
    facts for a TIR function.
    """
    functions = {n: f for n, f in module.functions.items() if isinstance(f, tir.PrimFunc)}
    constants = constant_parameters(module)
    outcomes: list[RuleOutcome] = []
    with gc_disabled():  # collecting garbage among live trees took a fifth of the time
        for at, (name, func) in enumerate(functions.items()):
            function_facts = facts(func) if callable(facts) else facts
            with working("auto-schedule", name, at, len(functions)):
                outcomes.append(
                    schedule_function(
                        func,
                        name,
                        function_facts,
                        rules,
                        constants.get(name, frozenset()),
                    )
                )
            if at % _GC_INTERVAL == _GC_INTERVAL - 1:
                gc.collect(1)
    return outcomes


_GC_INTERVAL = 32  # functions between garbage collections: each leaves 0.2 MB


def constant_parameters(module: IRModule) -> dict[str, frozenset[int]]:
    """Return, for private functions, the indices of the parameters that are constants in every `call_tir`.

    Versions of a function have those of the function.
    """
    constants: dict[str, frozenset[int]] = {}
    for func in module.functions.values():
        for binding, _ in all_bindings(func.body) if isinstance(func, relax.Function) else ():
            call = binding.value  # type: ignore[attr-defined]
            name = tir_callee(call)
            callee = module.functions.get(name or "")
            if name is None or callee is None or not callee.is_private:
                continue
            arguments = call.args[1].fields if isinstance(call.args[1], relax.Tuple) else ()
            constant_indices = frozenset(n for n, a in enumerate(arguments) if isinstance(a, relax.Constant))
            for version in (name, *version_names(callee)):
                constants[version] = constants.get(version, constant_indices) & constant_indices
    return constants


def schedule_function(
    func: tir.PrimFunc, name: str, facts: Facts, rules: Sequence[Rule] | None = None,
    constants: frozenset[int] = frozenset(), sizes: Mapping[str, Bounds] = MappingProxyType({}),
) -> RuleOutcome:  # fmt: skip
    """Schedule a function by the first rule that takes it, unless it is left alone.

    `constants` and `sizes`: see `AnyKernel.of`. `rules` defaults to those for the kind of machine.
    """
    ineligible = why_ineligible(func)
    if ineligible is not None:
        return RuleOutcome(name, None, f"left alone: {ineligible}")
    tried = rules_for(facts) if rules is None else rules
    return apply_first_rule(prepare_kernel(func, name, facts, constants, sizes), tried)


def apply_first_rule(
    start: AnyKernel[Any], rules: Sequence[Rule], wanted: RequestedChoices | None = None
) -> RuleOutcome:
    """Schedule a copy of a prepared kernel by the first of `rules` that takes it. `wanted`: the requested choices."""
    name = start.name
    refusals: list[tuple[str, str]] = []
    failure: Exception | None = None
    for rule in rules:
        kernel = start.copy_for_rule(wanted)
        try:
            why = rule.function()(kernel)
            kernel.sch.mark_scheduled(func_name=name)
        except RuleNotApplicable as exc:
            refusals.append((rule.name, str(exc)))
        except CompileError as exc:
            first = exc.diagnostics[0]
            refusals.append((rule.name, f"a step was refused: {first.code}: {first.message}"))
        except (RecursionError, MemoryError):
            raise
        except Exception as exc:
            # a bug in a rule must not break compilation: the remaining rules are tried
            failure = failure or exc
            refusals.append((rule.name, f"failed: {type(exc).__name__}: {exc}"))
        else:
            trace, offers = kernel.sch.trace.simplified(), tuple(kernel.offers)
            return RuleOutcome(
                name, rule.name, why, tuple(kernel.notes), tuple(refusals), failure, kernel.func, trace, offers
            )
    return RuleOutcome(name, None, "no rule takes it", (), tuple(refusals), failure)


def prepare_kernel(
    func: tir.PrimFunc, name: str, facts: Facts, constants: frozenset[int] = frozenset(),
    sizes: Mapping[str, Bounds] = MappingProxyType({}),
) -> AnyKernel[Facts]:  # fmt: skip
    """Return the kernel of an unscheduled function, as all rules see it. `constants`, `sizes`: see `AnyKernel.of`."""
    kernel = AnyKernel.of(func, name, facts, constants, sizes)
    widened = kernel.copy_for_rule()
    try:
        return widened if compute_halves_in_float32(widened) else kernel
    except CompileError:  # a step was refused: keep the kernel unchanged
        return kernel


def report(outcomes: Sequence[RuleOutcome], origins: Mapping[str, str] = MappingProxyType({})) -> str:
    """List for each function the rule that took it and why, and the reasons of the rules that did not.

    `origins` names the part of the source model that a function comes from.
    """
    lines = ["# --- why schedule"]
    for outcome in outcomes:
        lines.append(
            f"{outcome.name}: {outcome.why}"
            if outcome.rule is None
            else f"{outcome.name}: rule {outcome.rule}: {outcome.why}"
        )
        lines += [f"  from {origins[outcome.name]}"] if outcome.name in origins else []
        lines += [f"  {choice}" for choice in outcome.choices]
        lines += [f"  not {rule}: {why}" for rule, why in outcome.passed]
    return "\n".join(lines) + "\n"


def foreign_failures(outcome: RuleOutcome) -> list[Diagnostic]:
    """Return a warning (W0503) for a rule from outside mlcc that failed because of a bug."""
    found = [] if outcome.broken is None else [plugins.failure(outcome.broken, f"a rule failed on `{outcome.name}`")]
    help = "the kernel went to the next rule; `--why-schedule` shows to which"
    return [
        replace(d, code="W0503", severity=Severity.WARNING, help=help)
        for exc in found
        if exc is not None
        for d in exc.diagnostics
    ]
