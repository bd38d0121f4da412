"""Diagnostic codes: schedules, stages."""

CODES: dict[str, tuple[str, str]] = {
    "E0640": (
        "a buffer that several blocks write",
        "A cache of a buffer is filled after the only block that writes it, or replaces that block's output. This is "
        "not possible with several writers in the scope.",
    ),
    "E0641": (
        "an unknown storage scope",
        "A storage scope is a kind of memory: `global`, `shared`, `local`, `warp`, `wmma.matrix_a`, ... It may have a "
        "tag, as in `shared.dyn` and `global.vtcm`.",
    ),
    "E0642": (
        "a buffer that is read before all of it is written",
        "What blocks read of a buffer must have been written by its producer, where both meet. Only then can a copy "
        "of what the producer writes replace the buffer.",
    ),
    "E0643": (
        "an access that a cache cannot replace",
        "To give a block other memory, every access to the old one must be known: loads and stores at indices that the "
        "primitive can rewrite, not the buffer's pointer; `reindex` and the reindexed caches need one element at a "
        "time, always at the same indices.",
    ),
    "E0644": (
        "a block that does not access the buffer as required",
        "`cache_inplace` takes a buffer that the block both reads and writes; `cache_write` the block that writes it; "
        "`read_at` and `write_at` a loop below which it is read, or written without gaps, in one run.",
    ),
    "E0645": (
        "a block that cannot be inlined",
        "A block can be inlined if a single expression gives each element of its buffer: its body is one store, "
        "without an init, and the indices determine the iteration of each element. Into its producer it goes if it "
        "reads one buffer of the scope, always at the same indices, which determine its axes, and if it runs for "
        "everything that it covers. A block that accumulates can be moved with `compute_at` instead.",
    ),
    "E0646": (
        "a buffer that cannot be removed",
        "An inlined block takes its buffer with it, so nothing else may need that buffer: no use by pointer, no region "
        "of it matched to another buffer, and, when a consumer moves into its producer, no other reader or writer.",
    ),
    "E0647": (
        "the only block of a scope",
        "Moving or inlining the only block would leave an empty scope, which is not allowed.",
    ),
    "E0648": (
        "a block and a loop that are not in the same scope",
        "A block moves to a loop that stands in the same block (or function) as itself, and not to a loop around it; "
        "one that uses the variables of loops around it without axes (a part of a partitioned loop) stays in them.",
    ),
    "E0649": (
        "a location that does not cover all producers or consumers",
        "Below the loop at which a producer is computed must be everything that reads its output; below the loop to "
        "which a consumer moves, everything that writes what it reads. Otherwise a reader would read elements that "
        "were not written.",
    ),
    "E0650": (
        "no position below a loop keeps the order of stages",
        "A block must be after the last of its producers and before the first of its consumers. `index=` counts the "
        "statements of the loop's body; -1 is the last position that is legal, -2 the first.",
    ),
    "E0651": (
        "a region that cannot be turned into loops",
        "To compute only what one iteration of a loop needs, the axes must follow from the indices: each index is an "
        "axis, an axis times a factor, or a quotient or remainder of one, or all indices together are a one-to-one "
        "map of the axes. A reduction that runs under a condition that does not follow from its axes cannot be moved "
        "either: the new loops would run for all of each axis.",
    ),
    "E0652": (
        "an epilogue that cannot be fused into a reduction",
        "The epilogue of a sum can be computed by the sum itself if it only adds to it: `D[i] = C[i] + bias[i]` starts "
        "at the bias instead of at 0. Scaling would be applied at every step. Clipping (`max(..., 0)`) is, and gives "
        "other results unless every partial sum stays within the limits.",
    ),
    "E0653": (
        "an index map that does not fit a block's access",
        "The map of `reindex_cache_read` and `reindex_cache_write` takes the axes of the block to an index of the "
        "cache. It must use the axes on which the access depends, and only these, and put different elements in "
        "different places: `lambda i, j, k: (k, i)` for `A[vi, vk]`.",
    ),
}
