"""`python -m bench tune`: the gain of tuning on the workloads of `bench speed`, with a check against regressions.

Every workload is tuned by `mlcc tune`. Then the default object and the tuned one are measured again, interleaved, in
new processes independent of the search, by CPU time with one thread. Identical objects are not measured. A tuned module
that takes more than 1.01 of the default's time is a regression: `slower` if the processes agree, else `unclear`.

With `--tvm PYTHON`, a Python that has apache-tvm (and xgboost, for its cost model), a matrix product with relu is also
tuned by TVM for `--trials`, and both results are compared in one process: mlcc's must be as fast, for a quarter of the
CPU time.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import mlcc
from bench.measure import machine
from bench.speed.session import ROOT, write_arrays
from bench.speed.workloads import Workload, suite
from mlcc.runtime import elf

FOLDER = ROOT / "build" / "bench" / "tune"
LOSS = 1.01
CHANCE = 0.05  # that processes agree by luck
LEAST, SAMPLES = 5, 15  # processes before a verdict, and samples in each
LARGEST_SHARE = 0.25  # of TVM's CPU time
RACE_ROUNDS = 200
MM_RELU = """
@T.prim_func
def main(A: T.Buffer((128, 128), "float32"), B: T.Buffer((128, 128), "float32"), C: T.Buffer((128, 128), "float32")):
    Y = T.alloc_buffer((128, 128))
    for i, j, k in T.grid(128, 128, 128):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[vi, vj] = T.float32(0)
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in T.grid(128, 128):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = T.max(Y[vi, vj], T.float32(0))
"""
TARGET = "llvm{cpu=native}"
SAME, FINE, SLOWER, UNCLEAR = "the same code", "not slower", "slower", "unclear"


@dataclass(frozen=True)
class Measured:
    """Time ratios of the tuned module to the default: expected by the search, and the median of each new process.

    `fresh` is empty if the code is the same.
    """

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
    """Compare medians of processes with LOSS by a sign test: slower, not slower, or unclear."""
    above = sum(ratio > LOSS for ratio in fresh)
    if _chance(above, len(fresh)) < CHANCE:
        return SLOWER
    return FINE if _chance(len(fresh) - above, len(fresh)) < CHANCE else UNCLEAR


def _chance(some: int, count: int) -> float:
    """Return the probability that at least `some` of `count` values lie on one side of their median."""
    return sum(math.comb(count, n) for n in range(some, count + 1)) / 2**count


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench tune", description="Measure the gain of tuning in new processes.")
    parser.add_argument("--only", help="workloads whose names contain one of these, separated by commas")
    parser.add_argument("--budget", default="20s", help="for each workload; default: %(default)s")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seeds", default="0,1,2", help="of 13 random kernels each; default: %(default)s")
    parser.add_argument(
        "--processes", type=int, default=12, help="maximum number of measuring processes; default: %(default)s"
    )
    parser.add_argument("--tvm", metavar="PYTHON", help="only compare with TVM, as installed for this Python")
    parser.add_argument("--trials", type=int, default=256, help="number of trials of TVM; default: %(default)s")
    parser.add_argument("--kernels", action="store_true", help="show each tuned kernel")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.tvm:
        return against_tvm(options.tvm, options.trials, options.budget)
    chosen = suite(tuple(int(s) for s in options.seeds.split(",") if s))
    words = options.only.split(",") if options.only else [""]
    print(f"{machine()}; {options.threads} threads, {options.budget} a workload")
    verdicts: dict[str, list[str]] = {}
    for workload in (w for w in chosen if any(word in w.name for word in words)):
        outcome = measured(workload, options.budget, options.threads, options.processes)
        print(line(workload.name, outcome), flush=True)
        if options.kernels:
            print("\n".join(kernels(outcome.report)), flush=True)
        verdicts.setdefault(outcome.verdict, []).append(workload.name)
    print(", ".join(f"{len(names)} {word}" for word, names in verdicts.items()))
    losses = verdicts.get(SLOWER, [])
    print(f"slower than the default: {', '.join(losses) or 'none'}")
    return 1 if losses else 0


def line(name: str, found: Measured) -> str:
    """Return a row of the table."""
    if not found.fresh:
        return f"{name:32} 1.000  {SAME}"
    spread = f"{min(found.fresh):.3f} to {max(found.fresh):.3f} in {len(found.fresh)} processes"
    return f"{name:32} {found.ratio:.3f}  {found.verdict} ({spread}; by the search {found.expected:.3f})"


def measured(workload: Workload, budget: str, threads: int, processes: int) -> Measured:
    """Tune a workload, and measure the result in new processes until they agree."""
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


def against_tvm(python: str, trials: int, budget: str) -> int:
    """Tune one kernel by both, and compare the results.

    Returns 1 if mlcc's is slower, or took more than a quarter of TVM's CPU time.
    """
    module = mlcc.parse(MM_RELU)
    (FOLDER / "kernel.mlc").write_text(MM_RELU)
    (FOLDER / "kernel.py").write_text(mlcc.script(module, dialect="tvm"))
    random = np.random.default_rng(0)
    a, b = (random.random((128, 128), dtype=np.float32) for _ in range(2))
    np.savez(FOLDER / "in.npz", A=a, B=b, C=np.zeros_like(a))
    theirs = _tvm(python, "tune", trials)
    (FOLDER / "kernel.db").unlink(missing_ok=True)
    began = _children()
    _mlcc(
        "tune", "kernel.mlc", "--budget", budget, "--threads", "1", "-t", TARGET, "--db", "kernel.db", "-o",
        "kernel.tuned.mlc", "--force",
    )  # fmt: skip
    spent = _children() - began
    _mlcc("compile", "kernel.tuned.mlc", "-t", TARGET, "-o", "mlcc.o")
    seconds = _tvm(python, "race", RACE_ROUNDS)
    ratios = [ours / tvm for ours, tvm in zip(seconds["mlcc"], seconds["tvm"], strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    usual = {name: statistics.median(times) * 1e6 for name, times in seconds.items()}
    share = spent / theirs["cpu"]
    print(f"{machine()}; mm_relu 128 on one thread, TVM {theirs['version']} with its model `{theirs['model']}`")
    print(f"TVM  {usual['tvm']:6.2f} us after {theirs['trials']} trials in {theirs['cpu']:.1f} s of CPU time")
    print(f"mlcc {usual['mlcc']:6.2f} us in {spent:.1f} s of CPU time: {share:.2f} of TVM's")
    print(f"mlcc / TVM: {ratio:.3f} ({low:.3f} to {high:.3f})")
    return int(ratio > 1.0 or share > LARGEST_SHARE)


def _tvm(python: str, job: str, count: int) -> Any:
    """Return the line of JSON that the TVM process prints."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [python, "-m", "bench.tune_tvm", job, str(FOLDER), str(count)], env=env, stdout=subprocess.PIPE, check=True
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def _children() -> float:
    """Return the CPU seconds of terminated child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kernels(report: dict[str, Any]) -> list[str]:
    """Return a line for each tuned kernel: its share of the time, its gain, and the number of candidates."""
    searched = sorted((k for k in report["kernels"] if k["trials"]), key=lambda k: -k["share"])
    return [
        f"    {k['names'][0]:40} {k['share']:6.1%} of the time, {k['ratio'] or 1.0:.3f} after {k['trials']} candidates"
        for k in searched
    ]


def _is_same(name: str) -> bool:
    """Return True if both builds have the same machine code, usually since no schedule was replaced."""
    usual, tuned = ((FOLDER / f"{name}.{kind}.o").read_bytes() for kind in ("bound", "tuned"))
    return _text(usual) == _text(tuned)


def _text(content: bytes) -> list[bytes]:
    obj = elf.read_object(content)
    return [bytes(obj.bytes_of(section)) for section in obj.sections if section.name.startswith(".text")]


def _fresh(name: str, threads: int, first: int) -> float:
    """Return the median ratio in a new process, which runs the default (0) or the tuned object (1) first."""
    files = [f"{name}.{kind}.o" for kind in ("bound", "tuned")]
    text = _python("-m", "bench.tune_pair", *files, f"{name}.in.npz", str(threads), str(SAMPLES), str(first))
    return statistics.median(json.loads(text))


def _mlcc(*args: str) -> str:
    return _python("-m", "mlcc", *args)


def _python(*args: str) -> str:
    """Run Python with these arguments and return its output; stderr is inherited."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, *args], cwd=FOLDER, env=env, stdout=subprocess.PIPE, check=True)
    return done.stdout.decode()
