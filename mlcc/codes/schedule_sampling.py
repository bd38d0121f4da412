"""Diagnostic codes: schedules, sampling."""

CODES: dict[str, tuple[str, str]] = {
    "E0695": (
        "a decision that does not fit",
        "A tiling decided on beforehand must have as many factors as the step asks for, and they must multiply to the "
        "loop's extent: `sample_perfect_tile` splits without remainder. The decision of `sample_categorical` is an "
        "index of its candidates.",
    ),
    "E0696": (
        "nothing can be sampled so",
        "Sampling needs at least one factor (two under a limit), a loop of 1 to 2**31 - 1 iterations, and weights that "
        "are not all zero.",
    ),
}
