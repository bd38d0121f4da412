"""Diagnostic codes: schedules by rules."""

CODES: dict[str, tuple[str, str]] = {
    "E0697": (
        "a function that rules do not schedule",
        "Rules schedule functions whose blocks are bound one to one by plain serial loops, as lowering leaves them. A "
        "function that is already scheduled, or that has the attribute tir.is_scheduled, has no plans. "
        "`schedule_by_rule` comes before other steps.",
    ),
    "E0698": (
        "a rule that does not apply to a function",
        "`schedule_by_rule` names one of the rules of its target, which docs/auto-schedule.md lists; each takes "
        "kernels of one kind. The message says why it does not take this one. `mlcc schedule FILE --plans N` "
        "prints plans of all rules that do.",
    ),
    "E0699": (
        "a choice that a rule does not offer",
        "The legal choices depend on the kernel, the target and the previous choices: how many rows a tile may have, "
        "for example, from how many vectors it has. The help lists what is offered here; a choice that is omitted is "
        "made by the rule.",
    ),
}
