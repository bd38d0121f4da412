"""Commands in too little memory: they end with a diagnostic, or do what they do with enough."""

from __future__ import annotations

import contextlib
import io
import os
import random
import resource
import shutil
import traceback
from pathlib import Path
from typing import Any

from tests.soak.programs import COMMANDS, FILES, read_outputs, set_up, write_sources

LEAST, MOST = 16 << 20, 256 << 20  # bytes beyond what the process has; Python itself fails with less


def prepare(folder: Path) -> None:
    """Write the sources, and the outputs of each command with enough memory."""
    write_sources(folder)


def case(folder: Path, seed: str, number: int) -> str:
    rng = random.Random(f"limits/{seed}/{number}")
    words = COMMANDS[number % len(COMMANDS)]
    extra = LEAST + int((MOST - LEAST) * rng.random() ** 2)
    for name in FILES:
        shutil.copy(folder / name, name)
    before = set_up(words)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _limited(words, extra, writer)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    Path("said").write_text(said)
    shown = f"mlcc {' '.join(words)} with {extra >> 20} MiB"
    if code == 0:
        made = read_outputs(words)
        return "" if made == read_outputs(words, folder) else f"{shown}: other outputs"
    if code == 1 and "[E" in said:
        return "" if read_outputs(words) == before else f"{shown}: it failed and changed its outputs"
    return f"{shown}: exit code {code}: {said.strip()[-500:]}"


def _limited(words: tuple[str, ...], extra: int, out: int) -> Any:
    code = 70
    try:
        from mlcc.cli.main import run

        os.environ["MLCC_CACHE"] = "0"
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize() + extra
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        stdout = io.TextIOWrapper(io.BytesIO())
        with (
            open(out, "w", closefd=False) as stderr,
            contextlib.redirect_stdout(stdout),
            contextlib.redirect_stderr(stderr),
        ):
            code = run(list(words))
    except BaseException:
        os.write(out, traceback.format_exc().encode())
    finally:
        os._exit(code)
