"""The `mlcc` command as a process of its own: `python -m mlcc`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import threading
from typing import NoReturn

from mlcc.cli.main import main

# Objects that are made until Python looks for garbage: a short command makes few cycles, and imports make many objects
ALLOCATIONS = 100_000


def start() -> NoReturn:
    """Run the command line, and end the process with its exit code."""
    gc.set_threshold(ALLOCATIONS)
    try:
        main()
    except SystemExit as exc:
        if type(exc.code) is int:
            end(exc.code)
        raise
    raise AssertionError("main() exits")


def end(code: int) -> None:
    """End the process at once, without freeing every object and module.

    What is registered for the end of the process is called, and standard streams are flushed. Returns if other threads
    are running, or if a profiler or Python's development mode wants the usual end.
    """
    if threading.active_count() > 1 or sys.getprofile() or sys.gettrace() or sys.flags.dev_mode:
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # `main` has reported what cannot be written
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    start()
