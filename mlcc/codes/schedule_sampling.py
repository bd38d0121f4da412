"""Diagnostic codes: schedules, sampling."""

CODES: dict[str, tuple[str, str]] = {
    "E0695": (
        "an invalid decision",
        "A given tiling must have as many factors as the step requires, and they must multiply to the loop's extent: "
        "`sample_perfect_tile` splits without remainder. The decision of `sample_categorical` is an index of its "
        "candidates.",
    ),
    "E0696": (
        "invalid parameters for sampling",
        "Sampling needs at least one factor (two under a limit), a loop of 1 to 2**31 - 1 iterations, and weights that "
        "are not all zero.",
    ),
}
