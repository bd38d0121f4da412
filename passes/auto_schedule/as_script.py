"""The schedules that rules chose as a script (`.mls`) that replays: by its steps, or by the choices of the rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mlcc.grammar.printer.literals import quote
from mlcc.passes.auto_schedule.choose import Answer, Facts
from mlcc.passes.auto_schedule.offers import Offer
from mlcc.passes.auto_schedule.plans import Planned

SHARPNESS = 8  # the power of the expected times that options are drawn by


def as_script(found: Sequence[Answer], facts: Facts, target: str) -> str:
    """One function of the script for each function of the module, and an entry that calls them in order."""
    lines = [f"# chosen for {target}: {facts}", ""]
    taken: dict[str, Answer] = {}
    for one in found:
        if one.trace is None:
            lines += [f"# {one.name}: {one.why}", ""]
            continue
        name = _unused("schedule_" + re.sub(r"\W", "_", one.name), taken)
        taken[name] = one
        lines += ["", f"# {one.name}: rule {one.rule}: {one.why}"]
        lines += [f"#   {choice}" for choice in one.choices]
        lines += [f"def {name}(sch):", *("    " + line for line in one.trace.as_python(defaults=False)), ""]
    lines += ["", "def apply(sch):", *(f"    {name}(sch)" for name in taken or ("pass",))]
    text = "\n".join(lines) + "\n"
    return text if taken else text.replace("pass(sch)", "pass")


def plans_as_script(found: Mapping[str, Sequence[Planned]], target: str) -> str:
    """One function of the script for each plan of each function of the module, best first, and an entry that applies
    the first ones. Every choice of a plan is a decision, which may be changed, or left away to be drawn."""
    lines = [f"# plans for {target}, with the times that rules expect, relative to the first of each function", ""]
    first = []
    taken: dict[str, Planned] = {}
    for name, plans in found.items():
        for planned in plans:
            function_name = _unused("plan_" + re.sub(r"\W", "_", name), taken)
            if planned is plans[0]:
                first.append(function_name)
            taken[function_name] = planned
            lines += ["", f"# {name}: {planned.predicted:.3f}, rule {planned.plan.rule}: {planned.answer.why}"]
            lines += [f"def {function_name}(sch):", *("    " + line for line in _plan(planned, name, target)), ""]
    lines += ["", "def apply(sch):", *([f"    {name}(sch)" for name in first] or ["    pass"])]
    return "\n".join(lines) + "\n"


def _plan(planned: Planned, name: str, target: str) -> list[str]:
    """A plan as statements: its choices, and the rule."""
    lines = [line for offer in planned.answer.offers for line in (f"# {offer.about}", _sample(offer))]
    choices = ", ".join(f"{quote(offer.name)}: {offer.name}" for offer in planned.answer.offers)
    rule, text = quote(planned.plan.rule), f"func_name={quote(name)}, target={quote(target)}"
    return [*lines, f"choices = {{{choices}}}", f"sch.schedule_by_rule({rule}, choices, {text})"]


def _sample(offer: Offer) -> str:
    """A choice as the step that makes it; what takes long is drawn rarely."""
    weights = [cost**-SHARPNESS for cost in offer.costs]
    probs = ", ".join(f"{weight / sum(weights):.3g}" for weight in weights)
    given = f"candidates={list(offer.options)}, probs=[{probs}], decision={offer.options.index(offer.taken)}"
    return f"{offer.name} = sch.sample_categorical({given})"


def _unused(name: str, taken: Mapping[str, object]) -> str:
    number, candidate = 1, name
    while candidate in taken or candidate == "apply":
        candidate, number = f"{name}_{number}", number + 1
    return candidate
