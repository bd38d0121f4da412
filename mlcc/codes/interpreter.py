"""Diagnostic codes: what the reference interpreter finds while a program runs."""

CODES: dict[str, tuple[str, str]] = {
    "E0870": (
        "index out of bounds",
        "A buffer was accessed outside its shape. The interpreter finds it, and code built with `--sanitize`; other "
        "compiled code does not look, and would touch other memory.",
    ),
    "E0871": (
        "memory read before it was written",
        "Memory of a new buffer is undefined until it is written; a program that reads it has no defined result.",
    ),
    "E0873": (
        "iterations of a parallel loop meet",
        "Two iterations of a `T.parallel` loop touch one element, and at least one of them writes it (another value). "
        "They may run in any order and at once, so that the result is undefined. Make the loop serial, or give each "
        "iteration elements of its own. Code built with `--sanitize` looks for it, running the iterations in order.",
    ),
    "E0872": (
        "the interpreter cannot run this",
        "The program uses something that only another machine can run, or that has no value here.",
    ),
}
