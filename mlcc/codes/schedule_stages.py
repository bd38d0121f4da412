"""Diagnostic codes: schedules, stages."""

CODES: dict[str, tuple[str, str]] = {
    "E0640": (
        "a buffer that several blocks write",
        "A cache of a buffer is filled after the one block that writes it, or takes the place of that block's output. "
        "With several writers in the scope there is no such place.",
    ),
    "E0641": (
        "an unknown storage scope",
        "A storage scope says where memory lives: `global`, `shared`, `local`, `warp`, `wmma.matrix_a`, ... It may go "
        "on with a tag, as in `shared.dyn` and `global.vtcm`.",
    ),
    "E0642": (
        "a buffer that is read before all of it is written",
        "What blocks read of a buffer must have been written by its producer, where both meet. Only then can a copy of "
        "what the producer writes stand for the buffer.",
    ),
    "E0643": (
        "an access that a cache cannot take the place of",
        "To give a block other memory, every access to the old one must be known: loads and stores at indices that the "
        "primitive can rewrite, not the buffer's pointer; `reindex` and the reindexed caches need one element at a "
        "time, always at the same indices.",
    ),
    "E0644": (
        "a block that does not use the buffer in the way that is needed",
        "`cache_inplace` takes a buffer that the block both reads and writes; `cache_write` the block that writes it; "
        "`read_at` and `write_at` a loop below which it is read, or written, in one run.",
    ),
    "E0645": (
        "a block that has no form that can be inlined",
        "A block disappears into others if one expression says what each element of its buffer is: its body is one "
        "store, without an init, and the indices tell which iteration an element belongs to. Into its producer it goes "
        "if it reads one buffer of the scope, always at the same indices, which determine its axes, and if it runs for "
        "everything that it covers. A block that accumulates can be moved with `compute_at` instead.",
    ),
    "E0646": (
        "a buffer that cannot go away",
        "An inlined block takes its buffer with it, so nothing else may need that buffer: no use by pointer, no region "
        "of it matched to another buffer, and, when a consumer moves into its producer, no other reader or writer.",
    ),
    "E0647": (
        "the only block of a scope",
        "Moving or inlining a block takes it from where it is, and a function or block without anything in it means "
        "nothing.",
    ),
    "E0648": (
        "a block and a loop that are not apart in one scope",
        "A block moves to a loop that stands in the same block (or function) as itself, and not to a loop around it; "
        "one that uses the variables of loops around it without axes (a part of a partitioned loop) stays in them.",
    ),
    "E0649": (
        "a place that does not reach all producers or consumers",
        "Below the loop at which a producer is computed must be everything that reads its output; below the loop to "
        "which a consumer moves, everything that writes what it reads. Otherwise some reader would find nothing.",
    ),
    "E0650": (
        "no position below a loop keeps the order of stages",
        "A block stands behind the last of its producers and before the first of its consumers. `index=` counts the "
        "statements of the loop's body; -1 is the last position that is legal, -2 the first.",
    ),
    "E0651": (
        "a region that cannot be turned into loops",
        "To compute only what one iteration of a loop needs, the axes must follow from the indices: each index is an "
        "axis, an axis times a factor, or a quotient or remainder of one, or all indices together are a one-to-one map "
        "of the axes. A reduction that runs under a condition which its axes do not tell stays, too: the new loops "
        "would run for all of each axis.",
    ),
    "E0652": (
        "an epilogue that cannot become part of a reduction",
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
