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
}
