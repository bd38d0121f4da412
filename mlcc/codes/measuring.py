"""E114: measuring candidates of the tuner."""

CODES = {
    "E1141": (
        "a kernel cannot be measured alone",
        "The tuner runs each kernel by itself, with arguments of its own. This one needs what only the whole program "
        "has: packed functions, pointers, sizes that nobody gave, or a result that is no tensor. Such a kernel keeps "
        "the schedule of the rules.",
    ),
    "E1142": (
        "there is nothing to compare candidates with",
        "Candidates are compared with the schedule that is in use, and their results with those of the unscheduled "
        "function. One of the two cannot be built or run; the message says why.",
    ),
}
