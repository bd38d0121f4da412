"""A progress line on the terminal for long compilations."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

import click

from mlcc.cli.terminal import QUIET, VERBOSE, is_terminal, verbosity
from mlcc.progress import Listener, Work, listening

DELAY_SECONDS = 1.0  # before the line appears
REFRESH_SECONDS = 0.1  # between two updates
_CLEAR = "\r\033[K"


class ProgressLine(Listener):
    """A line on a terminal, updated in place: the stage, the finished and all kernels, the seconds left, the kernel."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._next = clock() + DELAY_SECONDS
        self._since: dict[str, float] = {}  # start of each stage: LLVM already runs while kernels are emitted
        self._shown = False

    def started(self, work: Work) -> None:
        self._show(work, work.at)

    def done(self, work: Work, seconds: float) -> None:
        self._show(work, work.at + 1)

    def _show(self, work: Work, finished: int) -> None:
        now = self._clock()
        began = self._since.setdefault(work.stage, now)
        if now < self._next:
            return
        self._next = now + REFRESH_SECONDS
        width = shutil.get_terminal_size().columns
        self._stream.write(f"{_CLEAR}{_text(work, finished, now - began)[: max(width - 1, 20)]}")
        self._stream.flush()
        self._shown = True

    def close(self) -> None:
        """Remove the line."""
        if self._shown:
            self._stream.write(_CLEAR)
            self._stream.flush()


def _text(work: Work, finished: int, seconds: float) -> str:
    text = f"{work.stage} {finished}/{work.count}" if work.count > 1 else work.stage
    if 0 < finished < work.count:
        text += f", about {max(round(seconds / finished * (work.count - finished)), 1)} s left"
    return f"{text}: {work.kernel}" if work.kernel else text


class WorkLines(Listener):
    """A line for each piece of work that is done, and what it took of one core: for --verbose."""

    def done(self, work: Work, seconds: float) -> None:
        click.echo(f"{_text(work, work.count, seconds)}: {seconds * 1e3:.1f} ms", err=True)


@contextmanager
def progress_shown() -> Iterator[None]:
    """Show the progress of long work inside the `with`: with --verbose each piece of it, else a line on a terminal."""
    if verbosity() == VERBOSE:
        with listening(WorkLines()):
            yield
        return
    if verbosity() == QUIET or not is_terminal(sys.stderr):
        yield
        return
    line = ProgressLine(sys.stderr)
    try:
        with listening(line):
            yield
    finally:
        line.close()
