"""Diagnostic codes: warnings, on what is legal and certainly not meant. `--warnings=off` leaves them out."""

CODES: dict[str, tuple[str, str]] = {
    "W0301": (
        "iterations of a parallel loop meet",
        "Two iterations of a `T.parallel` loop certainly touch one element, and at least one of them writes it. They "
        "may run in any order and at once, so the result is undefined (where mlcc sees it, it runs the loop serially). "
        "Make the loop serial, or give each iteration elements of its own. `mlcc run --sanitize` also finds what "
        "depends on data.",
    ),
    "W0302": (
        "memory is read before anything is written to it",
        "In the first iteration of the loops around, a buffer that the function allocates is read, and no statement "
        "before has written to it. Its content is undefined. A reduction starts with `T.init()`, or with a store.",
    ),
    "W0303": (
        "unused parameter",
        "Nothing in the function uses the parameter, nor a size that only its shape tells. Remove it, or let its name "
        "begin with `_` where the signature has to be as it is.",
    ),
    "W0305": (
        "a store rounds its value",
        "The value has a wider float dtype than the buffer, or a float one where the buffer has integers, and nothing "
        "in the statement says that it is converted: a float64 constant makes a whole expression float64. Write "
        "`T.Cast` where that is meant. Numbers without a dtype, such as `A[i] * 2.0`, take that of what they stand "
        "beside.",
    ),
    "W0304": (
        "code for another machine than the module was lowered for",
        "The steps of lowering go by what the machine has: the width of its vectors, masks, dot products. A lowered "
        "module says for what that was (`mlcc.target`). Code for another machine of the same kind is right, and may be "
        "slower than what is lowered for it: name the same target, or lower from the blocks.",
    ),
}
