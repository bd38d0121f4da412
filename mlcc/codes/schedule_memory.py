"""Diagnostic codes: schedules, memory."""

CODES: dict[str, tuple[str, str]] = {
    "E0679": (
        "a buffer that no block allocates",
        "Memory, type and strides of a function's parameters are the caller's, and those of a view the source's. "
        "`cache_read` and `cache_write` make a buffer inside the function that stands in for a parameter.",
    ),
    "E0680": (
        "an invalid axis or factor for an alignment",
        "`storage_align` takes an axis that the buffer has, counted from 0 or back from -1, and a positive factor.",
    ),
    "E0683": (
        "an invalid data type",
        "A buffer holds scalars: `float16`, `float32`, `int8`, `bool`, `bfloat16`, ... `widen` takes one that can "
        "represent every value of the buffer's type: float16 as float32, but not the reverse.",
    ),
    "E0690": (
        "not a sum of products of bytes",
        "`flip_sign` takes a block that adds up products as integers of 16 bits or more, where one factor is an "
        "element of the int8 or uint8 buffer, cast, and that stores by its axes: "
        '`C[vi, vj] = C[vi, vj] + T.Cast("int32", A[vi, vk]) * T.Cast("int32", B[vk, vj])`.',
    ),
    "E0691": (
        "a conversion to an integer that may change the result",
        "`unsafe_compute_in` rounds less often, which is what it is for; where a float is truncated to an integer, a "
        "difference in the last bit may give another integer.",
    ),
    "E0681": (
        "a buffer with several writers, or written again after it was read",
        "The primitive takes only buffers that one block writes and others read afterwards.",
    ),
    "E0682": (
        "the buffer is not accessed by a rolling window",
        "`rolling_buffer` needs a loop that holds the writer and all readers and in each iteration moves a window of "
        "constant size over one dimension, by less than its size: `i * 4 .. i * 4 + 6`. The loop is serial and starts "
        "at 0, since each iteration reuses data of the previous one.",
    ),
    "E0673": (
        "padding that does not match the axes",
        "`pad_einsum` takes one positive number for each axis of the block, in order; 1 leaves an axis as it is.",
    ),
    "E0674": (
        "not an einsum",
        "An einsum block indexes each of its buffers, once, by axes or constants alone (`A[vi, vk]`), and to be padded "
        "each axis must be driven by one loop, with no other block in these loops.",
    ),
    "E0675": (
        "padding with zeros would change the result",
        "Buffers are padded with zeros at their end. A sum of products does not change if one factor is zero; other "
        "reductions do, and so does a sum whose axis ends before the buffer does. Outputs are copied "
        "back from their padded copies whole, so that the block's axes must run over all of them.",
    ),
    "E0676": (
        "not a padding block",
        "`decompose_padding` takes a block that stores `T.if_then_else(condition, value, constant)`, where the "
        "condition bounds each axis by itself, such as `vi >= 2 and vi < 14`, and holds for some elements.",
    ),
    "E0670": (
        "an index map that does not match the buffer or block",
        "An index map takes as many indices as the buffer has dimensions (the block has axes) and gives integers made "
        "of them by sums, products, quotients and remainders with constants: `lambda i, j: (j, i // 4, i % 4)`. Two "
        "elements must not be stored in one place; `assume_injective_transform=True` asserts that where it cannot be "
        "proved.",
    ),
    "E0671": (
        "padding without a value",
        "The new layout has places to which no element goes: 10 rows in groups of 4 make 3 groups, and the last lacks "
        "2. Set their value with `pad_value=`, a value of the buffer's dtype, or choose a map without padding.",
    ),
    "E0672": (
        "a view prevents the change of a buffer",
        "A block matched a region of the buffer to another buffer (`T.match_buffer`), whose shape and strides would no "
        "longer fit. Change the layout of the buffer itself, before blocks take views of it.",
    ),
    "E0677": (
        "the map of a block's axes is not one-to-one",
        "Each point of the old axes must go to its own point of the new ones, and each of these come from one: "
        "`lambda i, j: (i // 4, i % 4, j)` does if 4 divides the extent of i.",
    ),
    "E0678": (
        "an axis made of spatial and reduce axes",
        "A new axis is spatial if it is made of spatial axes, reduce if of reduce axes; a mixture is not allowed.",
    ),
}
