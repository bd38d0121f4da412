"""Diagnostic codes: what the reference interpreter finds while a program runs."""

CODES: dict[str, tuple[str, str]] = {
    "E0870": (
        "index out of bounds",
        "A buffer was accessed outside its shape. Compiled code does not check this: it would touch other memory.",
    ),
    "E0871": (
        "memory read before it was written",
        "Memory of a new buffer is undefined until it is written; a program that reads it has no defined result.",
    ),
    "E0872": (
        "the interpreter cannot run this",
        "The program uses something that only another machine can run, or that has no value here.",
    ),
}
