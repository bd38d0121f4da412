"""Diagnostic codes: schedules, tensors."""

CODES: dict[str, tuple[str, str]] = {
    "E0685": (
        "the loops do not fall into an outer and an inner part",
        "`blockize` makes a block of a loop and all below it. Every axis of the block must then be an outer part times "
        "an extent plus an inner part, one driven by the loops outside alone and the other by those inside; and only "
        "loops may stand between. Split by factors that divide, and `reorder` so that the inner parts are inside.",
    ),
    "E0686": (
        "these blocks do not make one",
        "`blockize` of a list takes blocks that stand beside each other in one body, all bound to the loops above "
        "them in the same way, in the order in which they stand, and without an init.",
    ),
    "E0687": (
        "no tensor intrinsic of this name",
        "`tensorize` names an intrinsic that was registered before: by `mlcc.register_tensor_intrin(name, desc, impl)` "
        'in Python, or by `register_tensor_intrin(name, file="intrinsic.mlc")` in a script.',
    ),
    "E0688": (
        "a tensor intrinsic that does not fit together",
        "The description and the implementation are PrimFuncs whose body is one block. They take the same buffers in "
        "the same order, with the same dtypes, dimensions and scopes, and their outermost block states what it reads "
        "and writes of each.",
    ),
    "E0689": (
        "the block does not match the description of the intrinsic",
        "`tensorize` compares loops, axes, regions and expressions one by one. Names do not count, nor where in the "
        "buffers the regions begin; scopes, dtypes, extents, the order of regions and of operands do. A block with an "
        "init is matched without it where `blockize` has lifted it out; decompose the reduction first.",
    ),
    "E0692": (
        "ranges that do not fit the buffer",
        "The function given to `annotate_buffer_access` takes the axes of the block and returns one entry for each "
        "dimension of the buffer: an index, or a pair of the start and the end of a range.",
    ),
    "E0693": (
        "an annotation that is not there, or not a value",
        "Annotations map names to numbers, strings, and lists and maps of them. `unannotate` takes the name of one "
        "that the loop or block has.",
    ),
}
