"""Diagnostic codes: schedules, reductions."""

CODES: dict[str, tuple[str, str]] = {
    "E0661": (
        "a loop that is not around the block",
        "The primitive takes a block and one of the loops around it: one of `sch.get_loops(block)`.",
    ),
    "E0662": (
        "an init below a reduction loop",
        "`decompose_reduction` puts the init before the given loop. If a loop further out drives a reduce axis, the "
        "init would run again in each of its iterations and discard what has been accumulated. Reorder the spatial "
        "loops to the outside, or decompose at an outer loop.",
    ),
    "E0663": (
        "a single init is not enough",
        "The init is to run once before the loop instead of at the start of each reduction. If the loop (or one below "
        "it) starts the same reduction several times, each start needs its own init.",
    ),
    "E0664": (
        "rfactor cannot factor this loop",
        "The loop must be serial and drive reduce axes only (or nothing, with one iteration), a loop around the block "
        "must not drive both spatial and reduce axes, the block must be the first one below its outermost loop and "
        "the only one below its outermost reduction loop, and loops inside that drive nothing must have one "
        "iteration.",
    ),
    "E0665": (
        "factor_axis is out of range",
        "It is the place of the new dimension in the buffer of partial results: 0 to the number of dimensions of the "
        "output, or negative, counted from the end.",
    ),
}
