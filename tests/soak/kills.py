"""Commands killed by SIGKILL at any moment.

Every output is whole, or as it was; what the cache gives is right; a database of the tuner can be read; and no process
that the command began goes on.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import time
from pathlib import Path
from typing import NoReturn

from tests.soak.programs import COMMANDS, FILES, read_outputs, set_up, write_sources

TUNING = 0.08  # of the cases kill the tuner
OLD = b"what was there before"
ORPHAN_SECONDS = 20.0
AGAIN = 4  # every so often the command runs once more, to its end


def prepare(folder: Path) -> None:
    """Write the sources and the outputs of commands that nobody kills."""
    write_sources(folder)


def case(folder: Path, seed: str, number: int) -> str:
    rng = random.Random(f"kills/{seed}/{number}")
    for name in FILES:
        shutil.copy(folder / name, name)
    if rng.random() < TUNING:
        return _tuner(rng)
    words = rng.choice(COMMANDS)
    old = set_up(words, OLD if rng.random() < 0.5 else None)
    # the cache outlives the cases, so that some begin with it warm and some of its entries are written as they end
    cache = Path("../cache") if rng.random() < 0.7 else Path("cache")
    pause = rng.random() * rng.choice((0.01, 0.1, 0.3))
    status = _killed((*words, "--force") if words[0] in ("compile", "passes") else words, cache, pause)
    want = read_outputs(words, folder)
    for name, data in read_outputs(words).items():
        if data != want[name] and data != old.get(name):
            return f"mlcc {' '.join(words)} killed after {pause:.3f} s ({status}) left {len(data)} bytes in {name}"
    if number % AGAIN:
        return ""
    set_up(words)
    if _killed(words, cache, None) != 0:
        return f"mlcc {' '.join(words)} fails after one that was killed"
    if read_outputs(words) != want:
        return f"mlcc {' '.join(words)} gives other outputs after one that was killed"
    return ""


def _tuner(rng: random.Random) -> str:
    words = ("tune", "kernel.mlc", "--trials", "8", "--db", "tune.db", "-o", "tuned.mlc", "--force")
    pause = rng.random() * 6
    group: list[int] = []
    _killed(words, Path("../cache"), pause, group)
    end = time.monotonic() + ORPHAN_SECONDS
    while left := _session(group[0]):
        if time.monotonic() > end:
            for pid in left:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            return f"{len(left)} processes of a tuner go on {ORPHAN_SECONDS:.0f} s after it was killed"
        time.sleep(0.05)
    if not os.path.exists("tune.db"):
        return ""
    with contextlib.closing(sqlite3.connect("tune.db")) as connection:
        (verdict,) = connection.execute("PRAGMA integrity_check").fetchone()
    if verdict != "ok":
        return f"the database of a killed tuner: {verdict}"
    if _killed(("tune", "--db", "tune.db", "--list"), Path("../cache"), None) != 0:
        return "the database of a killed tuner is not read"
    return ""


def _killed(words: tuple[str, ...], cache: Path, pause: float | None, group: list[int] | None = None) -> int:
    """Run a command in a child, and kill that after `pause` seconds. Return its exit code, -9 if it was killed."""
    child = os.fork()
    if child == 0:
        _command(words, cache)
    if group is not None:
        group.append(child)
    if pause is not None:
        time.sleep(pause)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _command(words: tuple[str, ...], cache: Path) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.environ.update(MLCC_CACHE="1", MLCC_CACHE_DIR=str(cache.absolute()))
        silent = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        from mlcc.cli.main import run

        code = run(list(words))
    finally:
        os._exit(code)


def _session(leader: int) -> list[int]:
    """The processes of a session that are left."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, IndexError):
                with open(f"/proc/{name}/stat") as file:
                    state, _, _, session = file.read().rpartition(")")[2].split()[:4]
                if int(session) == leader and state != "Z":
                    found.append(int(name))
    return found
