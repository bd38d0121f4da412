"""Runs mutated sources through the command line in one process:

    python -m tests.fuzz.worker FOLDER SEED START COUNT SECONDS

Writes each case to FOLDER/case.mlc before it runs, so that a crash leaves its input. Prints a line per finding, one for
its reduced file, and `done N` at the end.
"""

from __future__ import annotations

import random
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import file_reduction
from tests.fuzz.commands import judged
from tests.fuzz.mutate import mutate
from tests.fuzz.reduction import MOST_REDUCED

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = (
    ("check",), ("check",), ("fmt",), ("passes", "-O2"), ("passes", "-p", "canonicalize,fold-constants,dead-code"),
    ("passes", "-p", "fuse,lower-to-tir,fuse-tir"), ("compile", "-O2", "-o", "OUT"), ("compile", "-O0", "-o", "OUT"),
)  # fmt: skip
DOCUMENTED = (0, 1)
SCRIPTS = 0.25  # of the cases mutate a schedule script, and run it on the kernel beside it


def sources() -> list[str]:
    """The texts that are mutated: samples and the inputs of other tests."""
    found = [*sorted((ROOT / "samples").rglob("*.mlc")), *sorted((ROOT / "tests").rglob("*.mlc"))]
    return [p.read_text() for p in found]


def scripts() -> list[tuple[str, Path]]:
    """Schedule scripts, each with the kernel that it is for: the text beside it that its name begins with."""
    found = []
    for path in [*sorted((ROOT / "samples").rglob("*.mls")), *sorted((ROOT / "tests").rglob("*.mls"))]:
        kernels = [k for k in path.parent.glob("*.mlc") if path.stem.startswith(k.stem)]
        found += [(path.read_text(), kernel) for kernel in kernels]
    return found


@dataclass(frozen=True)
class Pools:
    """What is mutated: texts, and schedule scripts with their kernels."""

    texts: list[str]
    scripts: list[tuple[str, Path]]

    @staticmethod
    def read() -> Pools:
        return Pools(sources(), scripts())


def case(pools: Pools, seed: str, number: int, folder: Path) -> list[str]:
    """Write the mutated text of a number to FOLDER/case.mlc, the command for it to FOLDER/argv, and return that."""
    path, out = folder / "case.mlc", folder / "case.o"
    rng = random.Random(f"{seed}/{number}")
    if rng.random() < SCRIPTS:
        text, kernel = rng.choice(pools.scripts)
        raw = mutate(text, [s for s, _ in pools.scripts], f"{seed}:{number}")
        argv = ["schedule", str(kernel), "--script", str(path), "-o", str(folder / "made.mlc")]
    else:
        raw = mutate(rng.choice(pools.texts), pools.texts, f"{seed}:{number}")
        words = rng.choice(COMMANDS)
        argv = [words[0], str(path), *(str(out) if w == "OUT" else w for w in words[1:])]
    path.write_bytes(raw)
    (folder / "argv").write_text(" ".join(argv))
    return argv


def reduce_left(folder: Path) -> str:
    """Reduce the case that ended its process. Return a line with the path."""
    return file_reduction.note(folder / "case.mlc", (folder / "argv").read_text().split(), DOCUMENTED)


def main(folder: Path, seed: str, start: int, count: int, seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
    pools = Pools.read()
    limit, ran, found = time.monotonic() + seconds, 0, 0
    for number in range(start, start + count):
        if time.monotonic() > limit:
            break
        argv = case(pools, seed, number, folder)
        problem, said = judged(argv, DOCUMENTED)
        ran += 1
        if problem:
            kept = folder / f"found-{seed}-{number}.mlc"
            kept.write_bytes((folder / "case.mlc").read_bytes())
            last = said.strip().splitlines()[-4:]
            print(f"{number}: {problem}: mlcc {' '.join(argv)} (kept as {kept.name}): {' | '.join(last)}", flush=True)
            found += 1
            if found <= MOST_REDUCED:
                words = [str(kept) if word == str(folder / "case.mlc") else word for word in argv]
                print(f"  {file_reduction.note(kept, words, DOCUMENTED)}", flush=True)
    print(f"done {ran}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
