"""Diagnostic codes: schedules, loops."""

CODES: dict[str, tuple[str, str]] = {
    "E0620": (
        "a loop with annotations, a thread axis or a step",
        "A loop with annotations, bound to a thread axis, or counting in steps cannot be split, fused, partitioned or "
        "merged: the loops that replace it could not keep these properties. Transform it first, then annotate or bind "
        "the result.",
    ),
    "E0621": (
        "factors that do not fit the loop",
        "The factors of `split` are positive and multiply to the extent or more; those of `loop_partition` add up to "
        "less than it. One of them may be None and is then computed; with a symbolic extent one must be.",
    ),
    "E0622": (
        "loops that are not directly nested",
        "`fuse` takes loops from the outermost to the innermost, each of which is the only statement in the one before "
        "it. `reorder` can bring loops together.",
    ),
    "E0623": (
        "a loop's range depends on another loop",
        "Loops whose extents depend on each other do not form a box, so they cannot be fused; and a loop cannot be "
        "outside one on which its range depends.",
    ),
    "E0624": (
        "a loop is given twice",
        "Each loop can occur only once in the new order.",
    ),
    "E0625": (
        "loops that are not in one chain",
        "Loops can be exchanged if there is nothing else between them: from the outermost to the innermost, each is "
        "the only statement in the one above. A nest that branches can be divided with `compute_at` or "
        "`decompose_reduction`, or each branch reordered by itself.",
    ),
    "E0626": (
        "a block whose iterations have a fixed order",
        "Only blocks whose axes are spatial or reduce (`T.axis.spatial`, `T.axis.reduce`) give the same result in any "
        "order of their loops.",
    ),
    "E0627": (
        "a loop whose iterations depend on each other",
        "Iterations that run concurrently must write to different elements: each axis of a block inside that depends "
        "on the loop must be spatial. A reduce axis accumulates into one element; `rfactor` computes partial results "
        "instead, and `threadIdx.*` threads can reduce together.",
    ),
    "E0628": (
        "an unknown thread axis",
        "The axes of GPU threads are `blockIdx.x`, `blockIdx.y`, `blockIdx.z`, `threadIdx.x`, `threadIdx.y`, "
        "`threadIdx.z`, and `vthread.x`, `vthread.y`, `vthread.z` for threads that are unrolled in one.",
    ),
    "E0629": (
        "a loop that cannot be partitioned",
        "`loop_partition` needs a loop with a constant start and extent. A reduce axis that is the loop cannot be "
        "partitioned while its block has an init: every part would start the reduction again. `decompose_reduction` "
        "separates the init first.",
    ),
    "E0630": (
        "nests that cannot be merged",
        "`merge` takes loops of different nests: equally deep below the point where the nests diverge, with equal "
        "extents, in the same block. The bodies come in the order in which the loops are given.",
    ),
    "E0631": (
        "an order that is not a permutation",
        "`reorder_block_iter_var` takes each number from 0 to the count of axes less 1 exactly once: `[1, 0, 2]`.",
    ),
    "E0632": (
        "a loop around the root block",
        "The root block of a function cannot be in a loop. `add_unit_loop` takes any block inside it, or a loop.",
    ),
    "E0633": (
        "another order would change what is computed",
        "An element is written in one iteration and used in another, and the step would reverse their order. It is "
        "allowed if every such pair provably stays in order, or is in one iteration.",
    ),
    "E0634": (
        "a thread axis that is already bound",
        "A thread has one index on each axis. Two loops, one inside the other, that are bound to the same axis would "
        "have the same value in each thread: most of their iterations would never run.",
    ),
    "E0635": (
        "a vector of unknown length",
        "The iterations of a vectorized loop become the lanes of vectors, whose number is in the machine code. The "
        "extent of the loop must be a constant; the inner loop of a split with a constant factor has one.",
    ),
}
