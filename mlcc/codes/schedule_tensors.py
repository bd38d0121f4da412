"""Diagnostic codes: schedules, tensors."""

CODES: dict[str, tuple[str, str]] = {
    "E0693": (
        "an annotation that is not there, or not a value",
        "Annotations map names to numbers, strings, and lists and maps of them. `unannotate` takes the name of one that "
        "the loop or block has.",
    ),
}
