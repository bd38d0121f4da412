"""Diagnostic codes: schedules, memory."""

CODES: dict[str, tuple[str, str]] = {
    "E0670": (
        "a buffer that no block allocates",
        "Memory, type and strides of a function's parameters are the caller's, and those of a view the source's. "
        "`cache_read` and `cache_write` make a buffer inside the function that stands in for a parameter.",
    ),
    "E0671": (
        "an alignment that cannot be",
        "`storage_align` takes an axis that the buffer has, counted from 0 or back from -1, and a positive factor.",
    ),
    "E0672": (
        "no type of data",
        "A buffer holds scalars: `float16`, `float32`, `int8`, `bool`, `bfloat16`, ...",
    ),
    "E0681": (
        "a buffer with several writers, or written again after it was read",
        "The primitive takes a buffer that one block writes and others read afterwards, and nothing else.",
    ),
    "E0682": (
        "no window rolls over the buffer",
        "`rolling_buffer` needs a loop that holds the writer and all readers and in each iteration moves a window of "
        "constant size over one dimension, by less than its size: `i * 4 .. i * 4 + 6`. The loop is serial and starts "
        "at 0, for each iteration keeps what the one before it left.",
    ),
    "E0673": (
        "padding that does not go with the axes",
        "`pad_einsum` takes one positive number for each axis of the block, in order; 1 leaves an axis as it is.",
    ),
    "E0674": (
        "not an einsum",
        "An einsum block indexes each of its buffers, once, by axes or constants alone (`A[vi, vk]`), and to be padded "
        "each axis must be driven by one loop, with no other block in these loops.",
    ),
    "E0675": (
        "padding with zeros would show in the result",
        "Buffers are padded with zeros at their end. A sum of products does not change if one factor is zero; other "
        "reductions do, and so does a sum whose axis ends before the buffer does.",
    ),
    "E0676": (
        "not a padding block",
        "`decompose_padding` takes a block that stores `T.if_then_else(condition, value, constant)`, where the "
        "condition bounds each axis by itself, such as `vi >= 2 and vi < 14`, and holds for some elements.",
    ),
}
