"""Diagnostic codes: schedules, loops."""

CODES: dict[str, tuple[str, str]] = {
    "E0620": (
        "a loop that is more than its range",
        "A loop with annotations, bound to a thread axis, or counting in steps cannot be split, fused, partitioned or "
        "merged: the loops that replace it could not keep what it carries. Change its shape first and annotate or bind "
        "the result.",
    ),
    "E0621": (
        "factors that do not fit the loop",
        "The factors of `split` are positive and multiply to the extent or more; those of `loop_partition` add up to "
        "less than it. One of them may be None and is then computed; with a symbolic extent one must be.",
    ),
    "E0622": (
        "loops that are not directly inside each other",
        "`fuse` takes loops from the outermost to the innermost, each of which is the only statement in the one before "
        "it. `reorder` can bring loops together.",
    ),
    "E0623": (
        "a loop's range depends on another loop",
        "Loops whose extents depend on each other do not form a box, so they cannot be fused; and a loop cannot stand "
        "outside one on which its range depends.",
    ),
    "E0624": (
        "a loop is given twice",
        "Each loop can take one place in the new order.",
    ),
    "E0625": (
        "loops that are not in one chain",
        "Loops can change places if nothing else stands between them: from the outermost to the innermost, each is the "
        "only statement in the one above. A nest that branches can be parted with `compute_at` or "
        "`decompose_reduction`, or each branch reordered by itself.",
    ),
    "E0626": (
        "a block that runs in a fixed order",
        "Only blocks whose axes are spatial or reduce (`T.axis.spatial`, `T.axis.reduce`) give the same result in any "
        "order of their loops.",
    ),
    "E0627": (
        "a loop whose iterations depend on each other",
        "Iterations that run at once must write to different places: each axis of a block inside that depends on the "
        "loop must be spatial. A reduce axis adds up into one place; `rfactor` makes partial results out of it, and "
        "`threadIdx.*` threads can reduce together.",
    ),
    "E0628": (
        "no such thread axis",
        "The axes of GPU threads are `blockIdx.x`, `blockIdx.y`, `blockIdx.z`, `threadIdx.x`, `threadIdx.y`, "
        "`threadIdx.z`, and `vthread.x`, `vthread.y`, `vthread.z` for threads that are unrolled in one.",
    ),
    "E0629": (
        "a loop of unknown size, or one whose parts would not be the same",
        "`loop_partition` needs the start and the extent of the loop as numbers. A reduce axis that is the loop cannot "
        "be partitioned while its block has an init: every part would start the reduction again. `decompose_reduction` "
        "takes the init out first.",
    ),
    "E0630": (
        "nests that cannot be merged",
        "`merge` takes loops of different nests: equally deep below the place where the nests part, with equal "
        "extents, in the same block. The bodies come in the order in which the loops are given.",
    ),
    "E0631": (
        "an order that is no permutation",
        "`reorder_block_iter_var` takes each number from 0 to the count of axes less 1 exactly once: `[1, 0, 2]`.",
    ),
    "E0632": (
        "no place for a loop around the root block",
        "The root block of a function stands in no loop. `add_unit_loop` takes any block inside it, or a loop.",
    ),
    "E0633": (
        "another order would change what is computed",
        "An element is written in one iteration and used in another, and the step would turn their order around. It is "
        "allowed where every such pair is known to stay in order, or to be in one iteration.",
    ),
    "E0634": (
        "a thread axis that is taken",
        "A thread has one index on each axis. Two loops, one inside the other, that are bound to the same axis would "
        "have the same value in each thread: most of their iterations would never run.",
    ),
    "E0635": (
        "a vector of unknown length",
        "The iterations of a vectorized loop become the lanes of vectors, whose number is in the machine code. The "
        "extent of the loop must be a constant; the inner loop of a split with a constant factor has one.",
    ),
}
