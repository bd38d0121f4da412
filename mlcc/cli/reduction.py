"""Reduction on behalf of commands: progress on a terminal, and the best program so far where it is interrupted."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlcc.reduce.outcomes import Run
    from mlcc.reduce.program import Program

Observe = Callable[["Program", float], str]

_LEAST_SECONDS = 10.0  # for one candidate
_TIMES_FIRST = 4  # a candidate may take so many times as long as the program itself


def outcome_observer(run: Run) -> Observe:
    """Return what observes the outcome of a program in a process of its own, within some seconds."""
    from mlcc.reduce.outcomes import run_apart

    return lambda program, seconds: str(run_apart(lambda: run.outcome(program), seconds))


def reduce_and_save(
    program: Program, observe: Observe, outcome: str, took: float, seconds: float, save: Callable[[Program], None],
    output: str,
) -> None:  # fmt: skip
    """Reduce a program with an outcome, which it took `took` seconds to observe, and save the smallest one found.

    Ctrl-C ends the search, as a failure of its own does, and is raised again after the result is saved.
    """
    from mlcc.cli import signals
    from mlcc.reduce.reducer import Reducer

    limit = max(_LEAST_SECONDS, _TIMES_FIRST * took)
    reducer = Reducer(program, lambda p: observe(p, limit), outcome, seconds, _progress(time.monotonic()))
    stopped: BaseException | None = None
    with signals.graceful_first_signal():
        try:
            reducer.run()
        except (signals.Stopped, KeyboardInterrupt, Exception) as exc:  # noqa: BLE001 - raised again
            stopped = exc
        _clear_progress()
        save(reducer.best)
        reason = "" if reducer.is_finished else "; stopped before the end, it may become smaller"
        tell(f"{output}: {describe(reducer.best)}, after {reducer.tried} candidates{reason}")
    if stopped is not None:
        raise stopped


def program_text(program: Program, outcome: str, command: Sequence[str]) -> str:
    """Return the text of a program, with the command that shows its outcome in the first line."""
    lines = [f"# {shlex.join(command)}", f"# {outcome}"]
    lines += [] if program.passes is None else [f"# PASSES: {','.join(program.passes)}"]
    return "\n".join(" ".join(line.split()) for line in lines) + "\n" + program.module.script()


def describe(program: Program) -> str:
    """Return the size of a program in words."""
    functions, nodes, steps = program.size()
    parts = [f"{functions} function{'' if functions == 1 else 's'}", f"{nodes} nodes"]
    if program.passes is not None or program.script is not None:
        parts.append(f"{steps} steps")
    return ", ".join(parts)


def tell(line: str) -> None:
    """Write a line to stderr, unless the command is to be quiet."""
    from mlcc.cli.options import echo_stderr
    from mlcc.cli.terminal import QUIET, verbosity

    if verbosity() != QUIET:
        echo_stderr(line)


def _progress(started: float) -> Callable[[int, Program], None] | None:
    """Return what shows the progress on a terminal; None where stderr is none."""
    from mlcc.cli.terminal import QUIET, is_terminal, verbosity

    if not is_terminal(sys.stderr) or verbosity() == QUIET:
        return None

    def show(tried: int, best: Program) -> None:
        seconds = time.monotonic() - started
        sys.stderr.write(f"\r\033[K{seconds:.0f} s, {tried} candidates: {describe(best)}")
        sys.stderr.flush()

    return show


def _clear_progress() -> None:
    from mlcc.cli.terminal import is_terminal

    if is_terminal(sys.stderr):
        sys.stderr.write("\r\033[K")
