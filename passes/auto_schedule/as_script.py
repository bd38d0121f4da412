"""The schedules that rules chose as a script (`.mls`) that replays."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mlcc.passes.auto_schedule.choose import Answer, Facts


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


def _unused(name: str, taken: dict[str, Answer]) -> str:
    number, made = 1, name
    while made in taken or made == "apply":
        made, number = f"{name}_{number}", number + 1
    return made
