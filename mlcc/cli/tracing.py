"""`--trace FILE`: write a trace when the command ends, however it ends."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mlcc.cli import signals

if TYPE_CHECKING:
    from mlcc.outputs import Outputs
    from mlcc.report.trace_events import Trace


@contextlib.contextmanager
def traced(trace: Trace, path: str, outputs: Outputs) -> Iterator[None]:
    """Write the trace to a file at the end of the `with`, and also if it fails or a signal ends the process.

    Raises CompileError if the file cannot be written and nothing else failed.
    """
    lock = threading.Lock()
    is_written = False

    def write() -> None:
        nonlocal is_written
        with lock:
            if not is_written:
                is_written = True
                outputs.save({path: trace.text()})

    with signals.at_end(write):
        try:
            yield
        except BaseException:
            with contextlib.suppress(Exception):  # the failure is what counts
                write()
            raise
        write()
