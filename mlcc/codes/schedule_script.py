"""Diagnostic codes: schedules, the script language."""

CODES: dict[str, tuple[str, str]] = {
    "W0601": (
        "a script without steps",
        "The script applied no primitive, so the module stays as it is: the script is empty, or its last function "
        "does nothing.",
    ),
    "E0600": (
        "a name that the script does not define",
        "A script knows `sch`, its own variables and functions, and a few functions such as `range` and `len`; "
        "docs/schedules.md lists them. Imports have no effect: `from tvm import tir` is accepted for annotations.",
    ),
    "E0601": (
        "not part of the script language",
        "Scripts look like Python and are not: no classes, decorators, `with`, formatting or attributes beyond those "
        "that docs/schedules.md lists, and lambdas only as index maps. The result of a script is the schedule; "
        "`sch.mod` and `sch.trace` are for Python, and for `mlcc schedule -o` and `--trace`.",
    ),
    "E0602": (
        "the script exceeds its limits",
        "The execution of a script is limited: it may evaluate 1,000,000 expressions (a primitive counts as 100 and "
        "one for each loop and block, what is made counts by its size), make lists and strings of 100,000 elements, "
        "integers of 1024 bits and nests of 200 loops, and call its functions 200 deep. An endless loop is reported "
        "here.",
    ),
    "E0603": (
        "an assignment with the wrong number of values",
        "`i, j = sch.get_loops(block)` needs exactly two loops. The message lists the actual ones; `*outer, last = "
        "...` takes any number, and `[-1]` or `[-2:]` picks some.",
    ),
    "E0604": (
        "the script has no main function",
        "The last `def` of a script is called with the schedule alone, unless the top-level statements use `sch` "
        "themselves. Its first parameter takes the schedule, all others need defaults.",
    ),
    "E0605": (
        "the arguments do not fit the function",
        "A function of the script, or a predefined one, is called with too many or too few arguments, or with a name "
        "that is not one of its parameters.",
    ),
    "E0606": (
        "a value of the wrong type",
        "The operation needs another kind of value: a known integer for an index, a list for a loop. A sampled value "
        "is symbolic in a script: it can be a factor, and take part in `+ - * // %`, but not decide an `if`; "
        "`sch.get(v)` is the integer that was chosen.",
    ),
    "E0607": (
        "an assertion of the script fails",
        "The condition of an `assert` was false. The module stays as it was.",
    ),
}
