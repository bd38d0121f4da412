"""Diagnostic codes: schedules, tensors."""

CODES: dict[str, tuple[str, str]] = {
    "E0685": (
        "loops that cannot be divided into an outer and an inner part",
        "`blockize` makes a block of a loop and all below it. Every axis of the block must then be an outer part "
        "times an extent plus an inner part, one driven by the loops outside alone and the other by those inside; and "
        "there must be only loops between. Split by factors that divide, and `reorder` so that the inner parts are "
        "inside.",
    ),
    "E0686": (
        "blocks that cannot be combined",
        "`blockize` of a list takes adjacent blocks of one body, all bound to the loops above them in the same way, "
        "in program order, and without an init.",
    ),
    "E0687": (
        "no tensor intrinsic of this name",
        "`tensorize` takes the name of a registered intrinsic: by `mlcc.register_tensor_intrin(name, desc, impl)` in "
        'Python, or by `register_tensor_intrin(name, file="intrinsic.mlc")` in a script.',
    ),
    "E0688": (
        "an inconsistent tensor intrinsic",
        "The description and the implementation are PrimFuncs whose body is one block. They take the same buffers in "
        "the same order, with the same dtypes, dimensions and scopes, and their outermost block declares what it "
        "reads and writes of each.",
    ),
    "E0689": (
        "the block does not match the description of the intrinsic",
        "`tensorize` compares loops, axes, regions and expressions one by one. Names are ignored, and so is the start "
        "of the regions; scopes, dtypes, extents, and the order of regions and operands must match. A block with an "
        "init is matched without it if `blockize` moved it out; otherwise decompose the reduction first.",
    ),
    "E0692": (
        "ranges that do not fit the buffer",
        "The function given to `annotate_buffer_access` takes the axes of the block and returns one entry for each "
        "dimension of the buffer: an index, or a pair of the start and the end of a range.",
    ),
    "E0693": (
        "an unknown annotation, or an invalid value",
        "Annotations map names to numbers, strings, and lists and maps of them. `unannotate` takes the name of one "
        "that the loop or block has.",
    ),
}
