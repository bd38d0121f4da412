"""Reduced programs that commands write when they fail, within a time limit, in the folder for temporary files."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlcc.ir.module import IRModule
    from mlcc.reduce.outcomes import Run
    from mlcc.reduce.program import Program

DEFAULT_SECONDS = 10.0
VARIABLE = "MLCC_REDUCE"


def seconds_allowed() -> float:
    """Return the time for a reduction, by MLCC_REDUCE; 0 if there is to be none."""
    from mlcc.runtime.settings import is_off

    text = os.environ.get(VARIABLE, "").strip()
    if is_off(VARIABLE):
        return 0.0
    return float(text) if text.isascii() and text.isdigit() else DEFAULT_SECONDS


def reduce_failure(
    module: IRModule, passes: Sequence[str] | None, run: Run, command: Sequence[str], *, sought: str = ""
) -> str | None:
    """Write a small program with the same failure to a new file, announce it on stderr, and return its path.

    `command` has FILE in place of the file, and may have PASSES for the passes that remain; it is the first line of the
    program. `sought` begins the outcome that is to be reduced, any failure by default. Returns None, and writes
    nothing, if the failure does not show on random arrays, within the time, or if reductions are turned off. Never
    raises but for an interruption.
    """
    from mlcc.reduce.program import Program

    seconds = seconds_allowed()
    if seconds <= 0:
        return None
    try:
        return _reduced(Program(module, None if passes is None else tuple(passes)), run, command, sought, seconds)
    except Exception:  # noqa: BLE001 - the failure itself has been reported, and another one would hide it
        return None


def reduce_difference(
    module: IRModule, passes: Sequence[object] | None, target: str, func: str, rtol: float, atol: float,
    level: int | None = None, *, is_compiled: bool = False,
) -> None:  # fmt: skip
    """Write a small program whose results differ after passes, or where code is compiled from it."""
    from mlcc.plugins import loaded_paths
    from mlcc.reduce.outcomes import DIFFERS, MACHINE_CODE, PASSES, Run

    texts = None if passes is None else [str(one) for one in passes]
    run = Run(target, level, MACHINE_CODE if is_compiled else PASSES, func, rtol, atol)
    loads = [word for path in loaded_paths() for word in ("--load", os.path.abspath(path))]
    levels = [] if level is None or passes is not None else ["-O", str(level)]
    reduce_failure(module, texts, run, ["mlcc", "bisect", "FILE", "-t", target, *levels, *loads], sought=DIFFERS)


def _reduced(program: Program, run: Run, command: Sequence[str], sought: str, seconds: float) -> str | None:
    from mlcc.cli.reduction import describe, outcome_observer, reduce_and_save, tell
    from mlcc.reduce.outcomes import OK, TIMEOUT

    started = time.monotonic()
    observe = outcome_observer(run)
    outcome = observe(program, seconds)
    took = time.monotonic() - started
    if outcome in (OK, TIMEOUT) or not outcome.startswith(sought):
        return None
    tell(f"reducing it for up to {seconds:g} s ({VARIABLE}=0 turns this off): {describe(program)}")
    handle, path = tempfile.mkstemp(prefix="mlcc-reduced-", suffix=".mlc")
    os.close(handle)

    def save(best: Program) -> None:
        from mlcc.cli.reduction import program_text

        with open(path, "w", encoding="utf-8") as file:
            words = {"FILE": path, "PASSES": ",".join(best.passes or ())}
            file.write(program_text(best, outcome, [words.get(word, word) for word in command]))

    try:
        reduce_and_save(program, observe, outcome, took, seconds - took, save, path)
    finally:
        if os.path.getsize(path) == 0:
            os.unlink(path)
    return path
