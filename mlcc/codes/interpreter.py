"""Diagnostic codes: errors that the reference interpreter finds while a program runs."""

CODES: dict[str, tuple[str, str]] = {
    "E0870": (
        "index out of bounds",
        "A buffer was accessed outside its shape. The interpreter reports this, and so does code built with "
        "`--sanitize`; other compiled code does not check, and would access other memory.",
    ),
    "E0871": (
        "memory read before it was written",
        "Memory of a new buffer is undefined until it is written; a program that reads it has no defined result.",
    ),
    "E0873": (
        "data race between iterations of a parallel loop",
        "Two iterations of a `T.parallel` loop access the same element, and at least one of them changes it. "
        "They may run in any order and concurrently, so the result is undefined. Make the loop serial, or give each "
        "iteration its own elements. Code built with `--sanitize` checks for this; it runs the iterations in order.",
    ),
    "E0872": (
        "the interpreter cannot run this",
        "The program uses something that only another machine can run, or that has no value here.",
    ),
    "E0876": (
        "this cannot be profiled, traced or observed",
        "`mlcc bench --profile` compiles a text with counters around the calls of its kernels, for this CPU, and "
        "`mlcc run --trace` one with a log of what happens, `--check-nan` one that shows its tensors. An artifact that "
        "is compiled already has none of these. Code for a GPU has no counters; its launches can be traced and their "
        "tensors checked.",
    ),
    "E0877": (
        "a kernel makes a NaN or an infinity",
        "`mlcc run --check-nan` looks at the tensors of every call of a kernel or packed function while the program "
        "runs. It names the first call whose result has a NaN while none of its inputs has one, or an infinity while "
        "its inputs are finite, with the element, the inputs, and the place in the text; the exit code is 3. Common "
        "reasons: a division by 0, the logarithm or root of a negative number, an `exp` that overflows, a sum that is "
        "too large for float16, infinity minus infinity. `--allow-inf` looks for NaNs alone, for models that mask by "
        "infinities.",
    ),
    "E0874": (
        "a crash in native code",
        "Compiled code accessed memory that the process does not have (SIGSEGV, SIGBUS), overflowed its stack, or ran "
        "an instruction that the CPU rejects. The message names the kernel, or the function of a graph that it became "
        "a part of. Compiled code does not check indices unless it is asked to: `mlcc run --sanitize` runs code that "
        "does, and names the buffer, the index and the line. `mlcc run` and `mlcc bench` end with exit code 128 plus "
        "the number of the signal: 139 for SIGSEGV. Programs that use mlcc as a library get the signal as it is.",
    ),
}
