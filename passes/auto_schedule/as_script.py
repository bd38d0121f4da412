"""Rule-based schedules as a replayable script (`.mls`): by their steps, or by the choices of the rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mlcc.grammar.printer.literals import quote
from mlcc.passes.auto_schedule.apply_rules import Facts, RuleOutcome
from mlcc.passes.auto_schedule.plans import AppliedPlan
from mlcc.passes.auto_schedule.tuning_choices import TuningChoice

SHARPNESS = 8  # options are sampled by this power of their speed


def as_script(outcomes: Sequence[RuleOutcome], facts: Facts, target: str) -> str:
    """Return a script with one function for each function of the module, and an entry that calls them in order."""
    lines = [f"# chosen for {target}: {facts}", ""]
    function_names: dict[str, RuleOutcome] = {}
    for outcome in outcomes:
        if outcome.trace is None:
            lines += [f"# {outcome.name}: {outcome.why}", ""]
            continue
        name = _unique_name("schedule_" + re.sub(r"\W", "_", outcome.name), function_names)
        function_names[name] = outcome
        lines += ["", f"# {outcome.name}: rule {outcome.rule}: {outcome.why}"]
        lines += [f"#   {choice}" for choice in outcome.choices]
        lines += [f"def {name}(sch):", *("    " + line for line in outcome.trace.as_python(defaults=False)), ""]
    lines += ["", "def apply(sch):", *(f"    {name}(sch)" for name in function_names or ("pass",))]
    text = "\n".join(lines) + "\n"
    return text if function_names else text.replace("pass(sch)", "pass")


def plans_as_script(plans_by_function: Mapping[str, Sequence[AppliedPlan]], target: str) -> str:
    """Return a script with one function for each plan, best first, and an entry that applies the best of each function.

    Every choice of a plan is a sampling decision, which may be edited, or removed to be sampled again.
    """
    lines = [f"# plans for {target}, with the times that rules expect, relative to the first of each function", ""]
    default_plans = []
    function_names: dict[str, AppliedPlan] = {}
    for name, plans in plans_by_function.items():
        for planned in plans:
            function_name = _unique_name("plan_" + re.sub(r"\W", "_", name), function_names)
            if planned is plans[0]:
                default_plans.append(function_name)
            function_names[function_name] = planned
            lines += ["", f"# {name}: {planned.predicted:.3f}, rule {planned.plan.rule}: {planned.answer.why}"]
            lines += [
                f"def {function_name}(sch):",
                *("    " + line for line in _plan_statements(planned, name, target)),
                "",
            ]
    lines += ["", "def apply(sch):", *([f"    {name}(sch)" for name in default_plans] or ["    pass"])]
    return "\n".join(lines) + "\n"


def _plan_statements(planned: AppliedPlan, name: str, target: str) -> list[str]:
    """Return the statements of a plan: its choices, and the call of the rule."""
    lines = [line for offer in planned.answer.offers for line in (f"# {offer.about}", _sampling_step(offer))]
    choices = ", ".join(f"{quote(offer.name)}: {offer.name}" for offer in planned.answer.offers)
    rule, text = quote(planned.plan.rule), f"func_name={quote(name)}, target={quote(target)}"
    return [*lines, f"choices = {{{choices}}}", f"sch.schedule_by_rule({rule}, choices, {text})"]


def _sampling_step(offer: TuningChoice) -> str:
    """Return the sampling step for a choice; options with large expected times get small probabilities."""
    weights = [cost**-SHARPNESS for cost in offer.costs]
    probs = ", ".join(f"{weight / sum(weights):.3g}" for weight in weights)
    arguments = f"candidates={list(offer.options)}, probs=[{probs}], decision={offer.options.index(offer.taken)}"
    return f"{offer.name} = sch.sample_categorical({arguments})"


def _unique_name(name: str, names: Mapping[str, object]) -> str:
    number, candidate = 1, name
    while candidate in names or candidate == "apply":
        candidate, number = f"{name}_{number}", number + 1
    return candidate
