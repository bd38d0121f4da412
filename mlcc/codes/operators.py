"""Diagnostic codes: relax operators (E0440 to E0479)."""

CODES: dict[str, tuple[str, str]] = {
    "E0440": (
        "unknown operator",
        "A call such as `R.nn.relu(x)` names an operator that does not exist. `docs/ops.md` lists those that do.",
    ),
    "E0441": (
        "wrong arguments of a call",
        "A call has too many or too few arguments, one twice, or one by a name that the callee does not have.",
    ),
    "E0442": (
        "wrong value of an argument",
        "An argument or attribute of an operator has a value of the wrong kind: a string where axes are, a number where "
        "a dtype is, a list of the wrong length.",
    ),
}
