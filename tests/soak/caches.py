"""64 processes compile into one cache at once, which is too small for all: what each gets is right."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import NoReturn

from tests.soak.programs import COMMANDS, FILES, OUTPUTS, read_outputs, write_sources

PROCESSES, COMMANDS_EACH = 64, 3
CACHED = [words for words in COMMANDS if words[0] == "compile"]


def prepare(folder: Path) -> None:
    """Write the sources, and the outputs that are right."""
    write_sources(folder)


def case(folder: Path, seed: str, number: int) -> str:
    shutil.rmtree("cache", ignore_errors=True)
    limit = (1, 2, 64)[number % 3]  # MiB
    children = []
    for process in range(PROCESSES):
        child = os.fork()
        if child == 0:
            _process(folder, random.Random(f"caches/{seed}/{number}/{process}"), Path(f"p{process}"), limit)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    bad = [n for n, code in enumerate(codes) if code]
    if bad:
        said = Path(f"p{bad[0]}/said").read_text()[-400:]
        return f"{len(bad)} of {PROCESSES} processes failed (exit code {codes[bad[0]]}): {said}"
    left = [name for name in os.listdir("cache/compiled") if name.startswith(".")]
    if left:
        return f"{len(left)} temporary files are left in the cache"
    for process in range(PROCESSES):
        shutil.rmtree(f"p{process}")
    return ""


def _process(folder: Path, rng: random.Random, here: Path, limit: int) -> NoReturn:
    code = 70
    try:
        os.environ.update(
            MLCC_CACHE="1", MLCC_CACHE_DIR=str(Path("cache").absolute()), MLCC_CACHE_SIZE=str(limit), MLCC_JOBS="1"
        )
        here.mkdir()
        os.chdir(here)
        for name in FILES:
            shutil.copy(folder / name, name)
        silent = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        from mlcc.cli.main import run

        code = 0
        for _ in range(COMMANDS_EACH):
            words = rng.choice(CACHED)
            code = code or run(list(words))
            if not code and read_outputs(words) != read_outputs(words, folder):
                os.write(2, f"other outputs of mlcc {' '.join(words)}\n".encode())
                code = 3
            for name in OUTPUTS[words]:
                Path(name).unlink(missing_ok=True)
    finally:
        os._exit(code)
