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
    "E0874": (
        "a fault in native code",
        "Compiled code touched memory that the process does not have (SIGSEGV, SIGBUS), overflowed its stack, or did "
        "what the CPU refuses. The message names the kernel, or the function of a graph that it became a part of. "
        "Compiled code does not check indices unless it is asked to: `mlcc run --sanitize` runs code that does, and "
        "names the buffer, the index and the line. `mlcc run` and `mlcc bench` end with exit code 128 plus the number "
        "of the signal: 139 for SIGSEGV. Programs that use mlcc as a library get the signal as it is.",
    ),
}
