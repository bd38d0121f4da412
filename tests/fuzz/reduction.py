"""Small programs for what campaigns find, each written within a time limit.

    python -m tests.fuzz.reduction MODULE:FUNCTION FILE.mlc [WORD...]

runs a check on a program again, with the script FILE.mls if there is one: the first line of every reduced program is
the command for it. A check is a function of a `Program` and words; it raises where something is wrong. MLCC_FUZZ_REDUCE
bounds the seconds of each reduction; 0 turns them off.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcc.errors import MlccError
from mlcc.ir.module import IRModule
from mlcc.reduce.outcomes import OK, TIMEOUT, describe_crash, run_apart
from mlcc.reduce.program import Program
from mlcc.reduce.reducer import Reducer

DEFAULT_SECONDS = 10.0
MOST_REDUCED = 3  # findings of a campaign
_LEAST_SECONDS = 5.0  # for one candidate


def seconds_allowed() -> float:
    """Return the time for one reduction, by MLCC_FUZZ_REDUCE; 0 if there is to be none."""
    return float(os.environ.get("MLCC_FUZZ_REDUCE", DEFAULT_SECONDS))


@dataclass(frozen=True)
class Check:
    """A check of programs: `function`, as MODULE:FUNCTION, called with the program and `words`."""

    function: str
    words: tuple[str, ...] = ()

    def __call__(self, program: Program) -> None:
        module, _, name = self.function.partition(":")
        getattr(importlib.import_module(module), name)(program, *self.words)

    def outcome(self, program: Program) -> str:
        """Return OK, or what the check raises for a program, without the numbers in it."""
        try:
            self(program)
        except Exception as exc:
            return kind_of(exc)
        return OK

    @property
    def command(self) -> list[str]:
        """The command that repeats it, with FILE in place of the program."""
        return ["python", "-m", "tests.fuzz.reduction", self.function, "FILE", *self.words]


def kind_of(exc: Exception) -> str:
    """Return what failures of one kind have in common: a code, a place in mlcc, or the beginning of a message."""
    if isinstance(exc, MlccError):
        return str(exc.diagnostics[0].code)
    if isinstance(exc, AssertionError) or type(exc).__module__.startswith(("tests.", "__main__")):
        return f"{type(exc).__name__}: {beginning(str(exc).strip())}"
    return describe_crash(exc)


def beginning(message: str) -> str:
    """Return a message up to its first number or name; what follows the names if it begins with one."""
    return re.split(r"[:`\d\n]", message, maxsplit=1)[0].strip() or message.split("`")[-1].strip()[:20]


@contextlib.contextmanager
def reduced(module: IRModule, check: Check) -> Iterator[None]:
    """Let a failure of the body name a small program, made of `module`, for which the check fails likewise."""
    try:
        yield
    except Exception as exc:
        exc.add_note(note(Program(module), check))
        raise


def note(program: Program, check: Check) -> str:
    """Reduce a program for which a check fails. Return a line with the path of what was written."""
    path = reduce_program(program, check.outcome, check.command)
    return "not reduced" if path is None else f"a small program: {path}"


def reduce_program(program: Program, outcome: Callable[[Program], str], command: Sequence[str]) -> Path | None:
    """Write a small program with the same outcome to a new file, its script beside it, and return the path.

    `command`, the first line, has FILE in place of the path. None if nothing fails in a process of its own, or
    reductions are turned off.
    """
    best, found = smallest(program, outcome)
    if found in (OK, TIMEOUT):
        return None
    from mlcc.cli.reduction import program_text

    handle, name = tempfile.mkstemp(prefix="mlcc-reduced-", suffix=".mlc")
    with open(handle, "w", encoding="utf-8") as file:
        file.write(program_text(best, found, [name if word == "FILE" else word for word in command]))
    path = Path(name)
    if best.script is not None:
        path.with_suffix(".mls").write_text("".join(f"{line}\n" for line in best.script))
    return path


def smallest(program: Program, outcome: Callable[[Program], str]) -> tuple[Program, str]:
    """Return the smallest program that is found with the outcome of a given one, and that outcome.

    Each candidate runs in a process of its own. OK if nothing fails, or reductions are turned off.
    """
    seconds = seconds_allowed()
    if seconds <= 0:
        return program, OK
    end = time.monotonic() + seconds

    def observe(candidate: Program, most: float) -> str:
        return str(run_apart(lambda: quietly(outcome, candidate), most))

    wanted = observe(program, seconds)
    left = end - time.monotonic()
    if wanted in (OK, TIMEOUT):
        return program, wanted
    most = max(_LEAST_SECONDS, 4 * (seconds - left))
    reducer = Reducer(program, lambda p: observe(p, min(most, max(end - time.monotonic(), 0.1))), wanted, left)
    with contextlib.suppress(Exception):  # a fault of the search: what was found matters more
        reducer.run()
    return reducer.best, wanted


def quietly(outcome: Callable[[Any], str], candidate: Any) -> str:
    """Return an outcome that commands neither reduce by themselves nor find in a cache."""
    os.environ["MLCC_REDUCE"] = os.environ["MLCC_CACHE"] = "0"
    return outcome(candidate)


def read_program(path: Path) -> Program:
    """Read a program that `reduce_program` wrote."""
    import mlcc

    script = path.with_suffix(".mls")
    lines = tuple(script.read_text().splitlines()) if script.exists() else None
    return Program(mlcc.parse(path.read_text(), name=str(path)), None, lines)


def main(argv: Sequence[str]) -> int:
    function, path, *words = argv
    found = Check(function, tuple(words)).outcome(read_program(Path(path)))
    print(found)
    return int(found != OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
