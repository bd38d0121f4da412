"""Diagnostic codes: schedules, memory."""

CODES: dict[str, tuple[str, str]] = {
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
}
