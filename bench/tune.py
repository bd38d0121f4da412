"""`python -m bench tune`: what tuning gains on the workloads of `bench speed`, and that it never loses.

Every workload is tuned by `mlcc tune`; then the default's object and the tuned one are measured afresh, interleaved, in
processes that know nothing of the search. A tuned module that takes more than 1.01 of the default's time is a loss.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from bench.measure import machine
from bench.speed.session import ROOT, write_arrays
from bench.speed.workloads import Workload, suite

FOLDER = ROOT / "build" / "bench" / "tune"
LOSS = 1.01
TARGET = "llvm{cpu=native}"


@dataclass(frozen=True)
class Measured:
    """The time of the tuned module over the default's: what the search expected, and each fresh process's median."""

    expected: float
    fresh: tuple[float, ...]
    report: dict[str, Any]

    @property
    def ratio(self) -> float:
        return statistics.median(self.fresh)


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench tune", description="What tuning gains, measured afresh.")
    parser.add_argument("--only", help="workloads whose names contain one of these, separated by commas")
    parser.add_argument("--budget", default="60s", help="for each workload; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", default="0", help="of the drawn shapes, separated by commas; 30 need some")
    parser.add_argument("--processes", type=int, default=5, help="that measure afresh; default: %(default)s")
    parser.add_argument("--kernels", action="store_true", help="show each kernel that was searched")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    chosen = suite(tuple(int(s) for s in options.seeds.split(",")))
    words = options.only.split(",") if options.only else [""]
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}; {options.threads} threads, {options.budget} a workload")
    losses = []
    for workload in (w for w in chosen if any(word in w.name for word in words)):
        found = measured(workload, options.budget, options.threads, options.processes)
        spread = f"{min(found.fresh):.3f} to {max(found.fresh):.3f}"
        print(f"{workload.name:24} {found.ratio:.3f} ({spread}), by the search {found.expected:.3f}", flush=True)
        if options.kernels:
            print("\n".join(kernels(found.report)), flush=True)
        if found.ratio > LOSS:
            losses.append(workload.name)
    print(f"slower than the default: {', '.join(losses) or 'none'}")
    return 1 if losses else 0


def measured(workload: Workload, budget: str, threads: int, processes: int) -> Measured:
    """Tune a workload, and measure what comes out in new processes."""
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
    return Measured(report["ratio"], tuple(_fresh(name, threads, n % 2) for n in range(processes)), report)


def kernels(report: dict[str, Any]) -> list[str]:
    """A line for each kernel that was searched: its share of the time, its gain, and how many candidates that took."""
    searched = sorted((k for k in report["kernels"] if k["trials"]), key=lambda k: -k["share"])
    return [
        f"    {k['names'][0]:40} {k['share']:6.1%} of the time, {k['ratio'] or 1.0:.3f} after {k['trials']} candidates"
        for k in searched
    ]


def _fresh(name: str, threads: int, first: int) -> float:
    """The ratio of the first deciles, which a busy machine moves least, in a new process; the default (0) or the
    tuned object (1) comes first."""
    order = ("bound", "tuned")[:: -1 if first else 1]
    files = [f"{name}.{kind}.o" for kind in order]
    text = _mlcc("bench", *files, "--in", f"{name}.in.npz", "--threads", str(threads), "--json")
    samples = dict(zip(order, (competitor["seconds"] for competitor in json.loads(text)), strict=True))
    usual, tuned = (statistics.quantiles(samples[kind], n=10)[0] for kind in ("bound", "tuned"))
    return tuned / usual


def _mlcc(*args: str) -> str:
    """What a command prints; its messages go where ours go."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, "-m", "mlcc", *args], cwd=FOLDER, env=env, stdout=subprocess.PIPE, check=True
    )
    return done.stdout.decode()
