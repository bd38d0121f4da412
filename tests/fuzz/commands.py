"""A command on a mutated file, and what is wrong with how it ended."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Container, Sequence

MOST_SECONDS = 20  # of processor time; of what mutations leave whole, `passes -O2` of a decoder takes longest, 9 s


def judged(argv: Sequence[str], documented: Container[int]) -> tuple[str | None, str]:
    """Run the command line in this process. Returns what is wrong with its end, if anything is, and what it wrote to
    stderr."""
    from mlcc.cli.main import run

    began, errors = time.process_time(), io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        code = run(list(argv))
    took, said = time.process_time() - began, errors.getvalue()
    if code not in documented:
        return f"exit code {code}", said
    if code == 1 and "[E" not in said:
        return "exit code 1 without a diagnostic", said
    if "Traceback" in said:
        return "a traceback", said
    return (f"{took:.1f} s" if took > MOST_SECONDS else None), said
