"""Diagnostic codes: warnings, on code that is legal but certainly not intended. `--warnings=off` turns them off."""

CODES: dict[str, tuple[str, str]] = {
    "W0301": (
        "data race between iterations of a parallel loop",
        "Two iterations of a `T.parallel` loop certainly access the same element, and at least one of them writes it. "
        "They may run in any order and concurrently, so the result is undefined (a loop with a detected race runs "
        "serially). Make the loop serial, or give each iteration its own elements. `mlcc run --sanitize` also finds "
        "races that depend on data.",
    ),
    "W0302": (
        "memory is read before anything is written to it",
        "In the first iteration of the enclosing loops, a buffer that the function allocates is read, and no statement "
        "before it has written to the buffer. Its content is undefined. A reduction starts with `T.init()`, or with a "
        "store.",
    ),
    "W0303": (
        "unused parameter",
        "Nothing in the function uses the parameter, nor a size that only its shape gives. Remove it, or let its name "
        "begin with `_` where the signature has to be as it is.",
    ),
    "W0305": (
        "a store rounds its value",
        "The value has a wider float dtype than the buffer, or a float one where the buffer has integers, and nothing "
        "in the statement says that it is converted: a float64 constant makes a whole expression float64. Write "
        "`T.Cast` where that is meant. Numbers without a dtype, such as `A[i] * 2.0`, take that of what they stand "
        "beside.",
    ),
    "W0306": (
        "a value that is computed in a loop is lost",
        "A name never changes its value. `s = s + A[i]` in a loop makes a new `s` in each iteration, from the one "
        "before the loop, and nothing reads it: after the loop `s` is what it was. Keep the sum in a buffer, or "
        "write the loop as a block with a reduction axis and `T.init()`.",
    ),
    "W0304": (
        "code for a different machine than the module was lowered for",
        "Lowering depends on what the machine has: the width of its vectors, masks, dot products. A lowered "
        "module names that machine (`mlcc.target`). Code for another machine of the same kind is correct, but may be "
        "slower than code lowered for it: name the same target, or lower from the blocks.",
    ),
}
