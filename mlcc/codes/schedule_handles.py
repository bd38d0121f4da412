"""Diagnostic codes: schedules, what every primitive shares: names, handles and arguments."""

CODES: dict[str, tuple[str, str]] = {
    "E0610": (
        "a schedule has no such primitive",
        "The primitives are those of TVM's `Schedule`; docs/schedules.md lists them. Look-ups such as `get_loops` are "
        "primitives too.",
    ),
    "E0611": (
        "a block or loop that no longer exists",
        "A step that replaces a loop (`split`, `fuse`) or removes a block (`compute_inline`) invalidates its "
        "variables. Use what that step returned, or look the block or its loops up again.",
    ),
    "E0612": (
        "the arguments do not fit the primitive's parameters",
        "A required argument is missing, one is given twice, or there is no parameter of that name.",
    ),
    "E0613": (
        "an argument of the wrong type",
        "The primitive takes something else there: a block (or its name), a loop, an integer, a list. Loops come from "
        "`sch.get_loops(block)` or from the step that made them.",
    ),
    "E0614": (
        "a buffer that the block does not access",
        "Buffers are given by their place in the block's `T.reads` or `T.writes`, counted from 0, or by name.",
    ),
    "E0615": (
        "no block of that name, or several",
        "`get_block` takes the name of exactly one block of a function. `mlcc schedule FILE --script - < /dev/null "
        "--show-each` shows the blocks; `get_child_blocks` and `get_consumers` reach blocks that share a name.",
    ),
    "E0616": (
        "an ambiguous function",
        "In a module of several functions a look-up needs `func_name=...`, or `sch.work_on(...)` before it, unless one "
        "of them is called `main`.",
    ),
}
