"""Diagnostic codes: what schedules find out about blocks and loops."""

CODES: dict[str, tuple[str, str]] = {
    "E0638": (
        "loops do not drive a block's axes affinely",
        "The values of a block's axes must be quasi-affine in the loops around: sums of loops, and of quotients and "
        "remainders of loops by constants, such as `i0 * 4 + i1` and `f // 8`, which use every loop in one place and "
        "leave no gap. Only then is it known that each point of the block is reached once.",
    ),
    "E0639": (
        "a loop does not start at 0",
        "The primitive counts iterations from 0. `for i in T.serial(1, n)` runs over the same as `for j in T.serial("
        "n - 1)` with `j + 1` in place of `i`.",
    ),
    "E0655": (
        "the block or loop is not valid for the primitive",
        "The root block has no block around it, so it cannot be moved, inlined or cached. Some primitives take a loop "
        "or a block that holds exactly one block.",
    ),
    "E0656": (
        "a block is not complete, or not a reduction",
        "A complete block has only spatial axes, is the only block of its scope that writes its output, and does not "
        "read it. A reduction block has an init (`with T.init():`) and spatial and reduce axes, driven affinely by the "
        "loops; it too is the only writer, and indexes its output by spatial axes alone. Of such blocks it is known "
        "when their output is finished, so that they can be moved and split.",
    ),
    "E0657": (
        "a subtree does not have compact dataflow",
        "Every block directly below must be complete or a reduction there; see E0656.",
    ),
    "E0658": (
        "a block writes an output",
        "The buffer that the block writes is a parameter of the function, or allocated further out, so others may "
        "read it: it cannot be removed, made smaller or moved to other memory.",
    ),
    "E0659": (
        "the blocks of a scope are not stages of a pipeline",
        "In a pipeline each block reads only what blocks before it have written in full (the regions that producers "
        "write cover those that it reads), and none writes what an earlier one has read.",
    ),
    "E0668": (
        "a reduction is not in the form that can be split",
        "The init stores a start value to each output, and the body stores once to each, at the same indices: "
        "`C[i] = C[i] + x`. With several outputs, such as a maximum and its position, the new values are first bound "
        "to variables, one per output, and then stored.",
    ),
    "E0669": (
        "a reduction with an unknown combiner",
        "The combiner and its start value must be known to be associative and commutative: a sum from 0, a product "
        "from 1, a minimum from the type's largest value, a maximum from its smallest one, the position of a minimum "
        "or maximum, or several sums.",
    ),
}
