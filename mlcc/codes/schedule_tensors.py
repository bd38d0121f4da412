"""Diagnostic codes: schedules, tensors."""

CODES: dict[str, tuple[str, str]] = {
    "E0692": (
        "ranges that do not fit the buffer",
        "The function given to `annotate_buffer_access` takes the axes of the block and returns one entry for each "
        "dimension of the buffer: an index, or a pair of the start and the end of a range.",
    ),
    "E0693": (
        "an annotation that is not there, or not a value",
        "Annotations map names to numbers, strings, and lists and maps of them. `unannotate` takes the name of one "
        "that the loop or block has.",
    ),
}
