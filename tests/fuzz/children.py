"""Cases of a campaign run in children of this process, so that a signal, or a case that hangs, ends one case only."""

from __future__ import annotations

import ast
import os
import select
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

PATIENCE = 120.0


class NoSubject(Exception):
    """This seed gives nothing to compile."""


def in_children(
    run: Callable[[Any, Counter[str]], str], cases: Sequence[tuple[Any, ...]], end: float, counts: Counter[str],
    note: str = "", patience: float = PATIENCE,
) -> list[str]:  # fmt: skip
    """What `run(case, counts)` says of each case, but for the empty; after a case that ended a child another goes on.

    `counts` gets one for the first word of each case that was run, `none` for each that raised NoSubject, and what
    `run` counted. No case begins after `end`.
    """
    found: list[str] = []
    left = list(cases)
    while left and time.monotonic() < end:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            try:
                _child(run, left, end, writer)
            finally:
                os._exit(0)
        os.close(writer)
        text, hung = b"", False
        while True:
            ready, _, _ = select.select([reader], [], [], patience)
            if not ready:
                os.kill(child, signal.SIGKILL)
                hung = True
            data = os.read(reader, 65536)
            if not data:
                break
            text += data
        os.close(reader)
        _, status = os.waitpid(child, 0)
        started = 0
        case = ""
        for line in text.decode().splitlines():
            word, _, rest = line.partition(" ")
            if word == "start":
                case, started = f"{rest}{note}", started + 1
            elif word == "none":
                counts["none"] += 1
                case = ""
            else:
                counts[case.split()[0]] += 1
                said, counted = ast.literal_eval(rest)
                counts.update(counted)
                if said:
                    found.append(f"{case}: {said}")
                case = ""
        if case:
            how = f"hung for {patience:.0f} s" if hung else f"ended with {os.waitstatus_to_exitcode(status)}"
            found.append(f"{case}: {how}")
        elif status == 0:
            return found
        left = left[max(started, 1) :]
    return found


def _child(
    run: Callable[[Any, Counter[str]], str], cases: Sequence[tuple[Any, ...]], end: float, out: int
) -> None:  # fmt: skip
    for case in cases:
        if time.monotonic() > end:
            break
        os.write(out, f"start {' '.join(map(str, case))}\n".encode())
        counted: Counter[str] = Counter()
        try:
            said = run(case, counted)
        except NoSubject:
            os.write(out, b"none\n")
            continue
        except BaseException as exc:
            lines = traceback.format_exc().strip().splitlines()
            place = next((text for text in reversed(lines) if text.startswith("  File")), "")
            said = f"{type(exc).__name__}: {exc} ({place.strip()})"
        os.write(out, f"done {(said, dict(counted))!r}\n".encode())
