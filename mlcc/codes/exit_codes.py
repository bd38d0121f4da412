"""The exit codes of the command, as `mlcc --help` and `mlcc explain exit-codes` state them."""

from __future__ import annotations

EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "the input is wrong",
    2: "wrong usage",
    3: "results differ (diff, --expect, --compare, --check-each), or are not finite (--check-nan)",
    6: "the artifact does not fit this machine",
    70: "a bug of ours",
    129: "ended by SIGHUP",
    130: "ended by Ctrl-C (SIGINT)",
    143: "ended by SIGTERM",
}
SIGNALS = "128 plus its number where compiled code ran into a signal"
