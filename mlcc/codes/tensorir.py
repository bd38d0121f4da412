"""Diagnostic codes: TensorIR."""

CODES: dict[str, tuple[str, str]] = {
    "E0300": (
        "misplaced expression",
        "The expression is well formed but has no meaning here, such as a lambda in a loop bound.",
    ),
}
