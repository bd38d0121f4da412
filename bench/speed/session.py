"""The competitors' processes and the interleaving of their samples.

One process per competitor; it is stopped between its samples, so that its spinning threads take no time from others.
Rounds go over all competitors in turn, so that slow periods of the machine affect all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import default_level
from bench.speed.peers.numpy_peer import reference
from bench.speed.worker import OURS
from bench.speed.workloads import Workload

ROOT = Path(__file__).resolve().parents[2]
PINNED = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
CALM = 0.02  # of a sample may be spent waiting for a CPU
ENOUGH = 5  # undisturbed samples
TOLERANCE = 2e-4  # of the largest value of the result; bfloat16 would be off by 4e-3
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TVM_NUM_THREADS",
    "MLCC_NUM_THREADS",
)  # fmt: skip


@dataclass(frozen=True)
class SessionPlan:
    """The time budget of a session."""

    rounds: int = 25
    seconds: float = 1.0  # for one competitor on one workload, beyond what three samples take
    sample: float = 5e-3
    trials: int = 0
    level: int = field(default_factory=default_level)  # of mlcc
    limit: float = 1800.0  # for preparing one workload


@dataclass
class Result:
    """Measurements of one competitor on one workload: seconds per call of each sample, or the error."""

    peer: str
    times: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)  # of each sample, the share it waited for a CPU
    native: float | None = None
    prepare: float = 0.0
    size: int = 0  # bytes of what is shipped, where the competitor can tell
    memory: int = 0  # bytes by which the process grew until its first call was over, at the peak
    off: float = 0.0
    note: str = ""
    error: str = ""
    spent: float = 0.0  # seconds of all samples

    def wants_more(self, seconds: float) -> bool:
        """Return True if too few samples were undisturbed and there is time for more."""
        return sum(w < CALM for w in self.waited) < ENOUGH and self.spent < 2 * seconds

    @property
    def calm(self) -> list[float]:
        """Return the undisturbed samples, or if there are few, the least disturbed quarter."""
        order = sorted(zip(self.waited, self.times, strict=True))
        least = max(3, len(order) // 4)
        return [time for at, (waited, time) in enumerate(order) if waited < CALM or at < least]

    @property
    def median(self) -> float:
        return statistics.median(self.calm)


class Competitor:
    """One peer's process."""

    def __init__(self, peer: str, threads: int) -> None:
        self.peer, self.threads = peer, threads
        self.versions: dict[str, str] = {}
        self.missing = ""
        self._start()

    def _start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in PINNED}
        environment.update(dict.fromkeys(THREAD_VARIABLES, str(self.threads)))
        environment["PYTHONPATH"] = str(ROOT)
        environment["MLCC_CACHE"] = "0"  # compiling is part of what is looked at
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "bench.speed.worker", self.peer, str(self.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None if os.environ.get("BENCH_TRACEBACKS")
            else subprocess.DEVNULL, env=environment, cwd=ROOT, start_new_session=True,
        )  # fmt: skip
        answer = self._answer(120)
        if answer.pop("ok"):
            self.versions = answer
        else:
            self.missing = answer["error"]
        self._signal(signal.SIGSTOP)

    def ask(self, limit: float, **request: Any) -> dict[str, Any]:
        """Send a request and return its answer; a process that ends or times out is restarted, which is an error."""
        self._signal(signal.SIGCONT)
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer(limit)
        except BrokenPipeError:
            answer = {"ok": False, "error": "the process ended"}
        if self._process.poll() is None:
            self._signal(signal.SIGSTOP)
        return answer

    def _answer(self, limit: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit)
        line = self._process.stdout.readline() if ready else b""
        if line:
            return dict(json.loads(line))
        why = f"took over {limit:.0f} s" if not ready else "the process ended"
        self.stop()
        code = self._process.returncode
        return {"ok": False, "dead": True, "error": why if code is None or not ready else f"{why} (exit code {code})"}

    def revive(self) -> None:
        """Start the process again if it has ended."""
        if self._process.poll() is not None and not self.missing:
            self._start()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


@contextlib.contextmanager
def competitors(peers: list[str], threads: int) -> Iterator[list[Competitor]]:
    """Start the processes of the installed peers; all end with the `with` block."""
    started: list[Competitor] = []
    try:
        for peer in peers:
            started.append(Competitor(peer, threads))
        yield started
    finally:
        for competitor in started:
            competitor.stop()


def write_arrays(workload: Workload, folder: Path) -> Path:
    """Write the inputs, weights and expected result of a workload, and the files that `mlcc` commands read."""
    inputs, weights = workload.arrays()
    path = folder / f"{workload.name}.bench.npz"
    stamp = folder / f"{workload.name}.mlc"
    if path.exists() and stamp.exists() and stamp.read_text() == workload.text.source:
        return path
    expected = reference(workload.graph, {**inputs, **weights}).astype(np.float32)
    np.savez(folder / f"{workload.name}.in.npz", **inputs)
    np.savez(folder / f"{workload.name}.weights.npz", **weights)
    kinds = {"inputs": inputs, "weights": weights, "expected": {"out": expected}}
    np.savez(path, **{f"{kind}/{name}": value for kind, group in kinds.items() for name, value in group.items()})
    stamp.write_text(workload.text.source)
    return path


def race(workload: Workload, running: list[Competitor], plan: SessionPlan, folder: Path) -> list[Result]:
    """Compare all competitors on one workload: prepare, check against NumPy, then take interleaved samples."""
    path = write_arrays(workload, folder)
    graph = workload.graph.plain()
    request = {"path": str(path), "graph": graph, "source": workload.text.source, "folder": str(folder)}
    return race_on(request, running, plan, TOLERANCE)


def race_on(request: dict[str, Any], running: list[Competitor], plan: SessionPlan, tolerance: float) -> list[Result]:
    """Compare all competitors on what a request to `Worker.load` describes; see `race`.

    A result that is off by more than `tolerance` of the largest value is an error.
    """
    results: list[Result] = []
    racing: list[tuple[Competitor, Result, int]] = []
    for competitor in running:
        competitor.revive()
        result = Result(competitor.peer)
        results.append(result)
        answer = competitor.ask(plan.limit, do="load", trials=plan.trials, level=plan.level, **request)
        if not answer["ok"]:
            result.error = answer["error"]
            continue
        result.prepare, result.off, result.note = answer["prepare"], answer["off"], answer["note"]
        result.size, result.memory = answer["size"], answer["memory"]
        if not result.off <= tolerance:
            result.error = f"wrong by {result.off:.1e} of the largest value"
            continue
        first = competitor.ask(plan.limit, do="sample", least=plan.sample)
        if not first["ok"]:
            result.error = first["error"]
            continue
        racing.append((competitor, result, first["number"]))
    for number in range(4 * plan.rounds):
        regular = number < 3 or (
            number < plan.rounds and sum(r.spent for _, r, _ in racing) <= plan.seconds * len(racing)
        )
        due = [r for r in racing if not r[1].error and (regular or r[1].wants_more(plan.seconds))]
        if not due:
            break
        for competitor, result, count in due:
            answer = competitor.ask(plan.limit, do="sample", least=plan.sample, number=count)
            if not answer["ok"]:
                result.error = answer["error"]
                continue
            # one thread cannot work while it is not on a CPU: what neighbours took is not counted
            wall, cpu = answer["wall"], answer["cpu"]
            result.times.append(min(wall, cpu) if competitor.threads == 1 else wall)
            result.waited.append(answer["waited"])
            result.spent += wall * count
    for competitor, result, _ in racing:
        if competitor.peer in OURS and not result.error:
            result.native = competitor.ask(plan.limit, do="native").get("native")
    return results
