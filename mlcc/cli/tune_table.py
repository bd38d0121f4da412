"""The progress displays of `mlcc tune`: a table redrawn in place on a terminal, else a line a minute."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from mlcc.cli.cmd_bench import format_time

if TYPE_CHECKING:
    from mlcc.tune.engine import Tuning
    from mlcc.tune.kernel_search import KernelSearch

REFRESH_SECONDS = 0.5  # between two updates of the table
LINE_SECONDS = 60.0
_HEAD = ("kernel", "share", "default", "best", "gain", "of roofline", "trials", "")


def table(made: Tuning, rows: int | None = None, final: bool = False) -> list[str]:
    """Return a line on each kernel, the most expensive first, and one on the whole module.

    At most `rows` kernels are shown. A `final` table states for each kernel why its search ended.
    """
    kernels = sorted(made.kernels, key=lambda k: -k.share)
    shown = kernels if rows is None else kernels[:rows]
    cells = [_HEAD, *(_cells(made, kernel, final) for kernel in shown)]
    lines = _aligned(cells)
    if len(shown) < len(kernels):
        lines.append(f"and {len(kernels) - len(shown)} kernels more")
    return [*lines, summary(made, final)]


def summary(made: Tuning, final: bool = False) -> str:
    """Return one line on the whole search; a `final` one includes the gains of earlier searches."""
    loop = made.loop
    ratio = made.ratio if final else loop.ratio
    left = f", {_duration(loop.seconds_left)} left" if loop.seconds_left and not loop.why_done else ""
    why = f"; {loop.why_done}" if loop.why_done else ""
    tried = f"{loop.trials} candidate{'s' if loop.trials != 1 else ''} in {_duration(loop.elapsed)}"
    return f"{tried}{left}: {ratio:.3f} of the default's time{why}"


def _cells(made: Tuning, kernel: KernelSearch, final: bool) -> tuple[str, ...]:
    ratio = kernel.ratio
    if final:
        record = made.winner(kernel)
        ratio = None if record is None else record.ratio
    known = kernel.default_seconds is not None
    failed = ", ".join(f"{count} {what}" for what, count in kernel.failed.items())
    why = "; ".join(word for word in (kernel.why_done if final else "", failed) if word)
    return (
        kernel.name + (f" x {kernel.task.calls}" if kernel.task.calls > 1 else ""),
        f"{kernel.share:.0%}" if known else "",
        format_time(kernel.default_seconds).strip() if kernel.default_seconds is not None else "",
        format_time(kernel.default_seconds * (ratio or 1.0)).strip() if kernel.default_seconds is not None else "",
        f"{1 - (ratio or 1.0):.1%}" if known else "",
        f"{kernel.roofline_share:.0%}" if kernel.roofline_share is not None else "",
        str(kernel.trials),
        why,
    )


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Align the cells: names left, figures right, remarks at the end."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *figures, words in rows:
        middle = "  ".join(figure.rjust(width) for figure, width in zip(figures, widths[1:], strict=False))
        lines.append(f"{name:{widths[0]}}  {middle}  {words}".rstrip())
    return lines


def _duration(seconds: float | None) -> str:
    whole = round(seconds or 0.0)
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


class LiveTable:
    """A table at the end of a terminal, updated in place."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock = stream, clock
        self._next = 0.0
        self._height = 0

    def changed(self, made: Tuning) -> None:
        now = self._clock()
        if now < self._next:
            return
        self._next = now + REFRESH_SECONDS
        size = shutil.get_terminal_size()
        lines = [line[: size.columns - 1] for line in table(made, max(size.lines - 5, 1))]
        self.close()
        self._stream.write("\n".join(lines) + "\n")
        self._stream.flush()
        self._height = len(lines)

    def close(self) -> None:
        """Remove the table."""
        if self._height:
            self._stream.write(f"\033[{self._height}A\033[J")
            self._stream.flush()
        self._height = 0


class LineAMinute:
    """A display of one line a minute, for logs."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._next = clock() + LINE_SECONDS

    def changed(self, made: Tuning) -> None:
        if self._clock() >= self._next:
            self._next = self._clock() + LINE_SECONDS
            self._write(summary(made))

    def close(self) -> None:
        """Do nothing: lines of a log stay."""
