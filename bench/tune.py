"""`python -m bench tune`: what tuning gains on the workloads of `bench speed`, and that it never loses.

Every workload is tuned by `mlcc tune`; then the default's object and the tuned one are measured afresh, in turn, in new
processes that know nothing of the search, by CPU time where one thread runs. Objects that are the same need no
measuring. A tuned module that takes more than 1.01 of the default's time is a loss: `slower` is what processes agree
on, and what they do not agree on is `unclear`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.measure import machine
from bench.speed.session import ROOT, write_arrays
from bench.speed.workloads import Workload, suite
from mlcc.runtime import elf

FOLDER = ROOT / "build" / "bench" / "tune"
LOSS = 1.01
CHANCE = 0.05  # that processes agree by luck
LEAST, SAMPLES = 5, 15  # processes before a verdict, and samples in each
TARGET = "llvm{cpu=native}"
SAME, FINE, SLOWER, UNCLEAR = "the same code", "not slower", "slower", "unclear"


@dataclass(frozen=True)
class Measured:
    """The time of the tuned module over the default's: what the search expected, and each fresh process's median; none
    where the code is the same."""

    expected: float
    fresh: tuple[float, ...]
    report: dict[str, Any]

    @property
    def ratio(self) -> float:
        return statistics.median(self.fresh) if self.fresh else 1.0

    @property
    def verdict(self) -> str:
        return verdict(self.fresh) if self.fresh else SAME


def verdict(fresh: Sequence[float]) -> str:
    """What medians of processes say about LOSS: how many lie on one side of it is more than chance."""
    above = sum(ratio > LOSS for ratio in fresh)
    if _chance(above, len(fresh)) < CHANCE:
        return SLOWER
    return FINE if _chance(len(fresh) - above, len(fresh)) < CHANCE else UNCLEAR


def _chance(some: int, count: int) -> float:
    """That at least `some` of `count` lie on one side of their median."""
    return sum(math.comb(count, n) for n in range(some, count + 1)) / 2**count


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench tune", description="What tuning gains, measured afresh.")
    parser.add_argument("--only", help="workloads whose names contain one of these, separated by commas")
    parser.add_argument("--budget", default="20s", help="for each workload; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", default="0,1,2", help="of 13 drawn kernels each; default: %(default)s")
    parser.add_argument("--processes", type=int, default=12, help="that measure afresh, at most; default: %(default)s")
    parser.add_argument("--kernels", action="store_true", help="show each kernel that was searched")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    chosen = suite(tuple(int(s) for s in options.seeds.split(",") if s))
    words = options.only.split(",") if options.only else [""]
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}; {options.threads} threads, {options.budget} a workload")
    verdicts: dict[str, list[str]] = {}
    for workload in (w for w in chosen if any(word in w.name for word in words)):
        found = measured(workload, options.budget, options.threads, options.processes)
        print(line(workload.name, found), flush=True)
        if options.kernels:
            print("\n".join(kernels(found.report)), flush=True)
        verdicts.setdefault(found.verdict, []).append(workload.name)
    print(", ".join(f"{len(names)} {word}" for word, names in verdicts.items()))
    losses = verdicts.get(SLOWER, [])
    print(f"slower than the default: {', '.join(losses) or 'none'}")
    return 1 if losses else 0


def line(name: str, found: Measured) -> str:
    """A row of the table."""
    if not found.fresh:
        return f"{name:32} 1.000  {SAME}"
    spread = f"{min(found.fresh):.3f} to {max(found.fresh):.3f} in {len(found.fresh)} processes"
    return f"{name:32} {found.ratio:.3f}  {found.verdict} ({spread}; by the search {found.expected:.3f})"


def measured(workload: Workload, budget: str, threads: int, processes: int) -> Measured:
    """Tune a workload, and measure what comes out in new processes, until they agree."""
    write_arrays(workload, FOLDER)
    name = workload.name
    bind = f"bind-params{{params={name}.weights.npz}}" if workload.text.weights else ""
    _mlcc("passes", f"{name}.mlc", "-p", bind, "-o", f"{name}.bound.mlc", "--force")
    _mlcc(
        "tune", f"{name}.bound.mlc", "--budget", budget, "--threads", str(threads), "-t", TARGET, "--db", "tune.db",
        "-o", f"{name}.tuned.mlc", "--report", f"{name}.json", "--force",
    )  # fmt: skip
    for kind in ("bound", "tuned"):
        _mlcc("compile", f"{name}.{kind}.mlc", "-t", TARGET, "-o", f"{name}.{kind}.o")
    report = json.loads((FOLDER / f"{name}.json").read_text())
    fresh: list[float] = []
    while not _is_same(name) and len(fresh) < processes:
        fresh.append(_fresh(name, threads, len(fresh) % 2))
        if len(fresh) >= LEAST and verdict(fresh) != UNCLEAR:
            break
    return Measured(report["ratio"], tuple(fresh), report)


def kernels(report: dict[str, Any]) -> list[str]:
    """A line for each kernel that was searched: its share of the time, its gain, and how many candidates that took."""
    searched = sorted((k for k in report["kernels"] if k["trials"]), key=lambda k: -k["share"])
    return [
        f"    {k['names'][0]:40} {k['share']:6.1%} of the time, {k['ratio'] or 1.0:.3f} after {k['trials']} candidates"
        for k in searched
    ]


def _is_same(name: str) -> bool:
    """Whether the machine code is: as a rule, because no schedule was replaced by another one."""
    usual, tuned = ((FOLDER / f"{name}.{kind}.o").read_bytes() for kind in ("bound", "tuned"))
    return _text(usual) == _text(tuned)


def _text(content: bytes) -> list[bytes]:
    obj = elf.read_object(content)
    return [bytes(obj.bytes_of(section)) for section in obj.sections if section.name.startswith(".text")]


def _fresh(name: str, threads: int, first: int) -> float:
    """The median of the ratios in a new process; the default (0) or the tuned object (1) comes first."""
    files = [f"{name}.{kind}.o" for kind in ("bound", "tuned")]
    text = _python("-m", "bench.tune_pair", *files, f"{name}.in.npz", str(threads), str(SAMPLES), str(first))
    return statistics.median(json.loads(text))


def _mlcc(*args: str) -> str:
    return _python("-m", "mlcc", *args)


def _python(*args: str) -> str:
    """What a command prints; its messages go where ours go."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, *args], cwd=FOLDER, env=env, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()
