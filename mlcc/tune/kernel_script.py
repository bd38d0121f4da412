"""Records as readable schedule scripts (`.mls`) with the measurements in comments."""

from __future__ import annotations

import statistics

from mlcc.grammar.printer.literals import quote
from mlcc.grammar.syntax.version import version_line
from mlcc.records.record import Record
from mlcc.records.workload import MAIN

HEADER = "# tuned schedule"


def kernel_script(record: Record, name: str = MAIN, calls: int = 1) -> str:
    """Return the script that schedules the unscheduled function `name` as the record does."""
    setting = record.setting
    threads = f"{setting.threads} thread{'s' if setting.threads > 1 else ''}"
    times = f", called {calls} times" if calls > 1 else ""
    seconds = f"# {statistics.median(record.seconds) * 1e6:.4g} us a call; " if record.seconds else "# "
    bound = "" if record.bound is None else f", at most {record.bound:.3f}"
    lines = [
        f"{HEADER} of {name}{times}",
        version_line().rstrip(),
        f"{seconds}{record.ratio or 1.0:.3f} of the time of the rules' schedule{bound} ({len(record.ratios)} samples)",
        f"# {setting.target}, {threads}, -O{setting.level}, on {setting.device}",
        f"# record {record.candidate[:8]} of workload {record.workload}, mlcc {setting.compiler}, {record.made[:10]}",
    ]
    main, renamed = f"func_name={quote(MAIN)}", f"func_name={quote(name)}"
    return "\n".join([*lines, "", record.trace.replace(main, renamed)])
