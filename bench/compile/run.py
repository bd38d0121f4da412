"""Sequential, interleaved processes: every round goes over all models and cases."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.compile.cases import Case
from bench.measure import prefer
from bench.speed.session import PINNED, ROOT, THREAD_VARIABLES, TOLERANCE

CHILD = ROOT / "bench" / "compile" / "child.py"
LIMIT = 300.0  # seconds of a process


@dataclass
class Measurements:
    """The samples of one model and case on a number of cores, or the error if there are none."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    size: int = 0
    error: str = ""

    def take(self, answer: dict[str, Any]) -> None:
        self.error = answer.get("error", "")
        if not self.error:
            self.wall.append(answer["wall"])
            self.cpu.append(answer["cpu"])
            self.peak.append(answer["peak"])
            self.size = answer.get("size", 0)

    def median(self, what: str) -> float | None:
        """Return the median of `wall`, `cpu` or `peak`."""
        samples = getattr(self, what)
        return statistics.median(samples) if samples and not self.error else None


Job = tuple[str, Case, int]  # a model's name, a case, a number of cores
Results = dict[tuple[str, str, int], Measurements]  # the case by its name


class Runner:
    """Runs jobs on the files of the models, and records the versions of peers."""

    def __init__(self, files: Mapping[str, Mapping[str, Any]], scratch: Path, say: Callable[[str], None]) -> None:
        self.files, self.scratch, self.say = files, scratch, say
        self.versions: dict[str, str] = {}
        self._filled: set[tuple[str, int]] = set()  # models and numbers of cores: what lies in the cache

    def rounds(self, jobs: list[Job], count: int, seconds: float) -> Results:
        """Take up to `count` samples; after the first one, only within `seconds`."""
        began = time.monotonic()
        results: Results = {(model, case.name, cores): Measurements() for model, case, cores in jobs}
        self._read_all(jobs)
        for number in range(count):
            for model, case, cores in jobs:
                known = results[model, case.name, cores]
                spent = time.monotonic() - began
                if number and (known.error or case.once or spent + known.wall[-1] > seconds):
                    continue
                answer = self.run(model, case, cores)
                known.take(answer)
                told = (
                    known.error or f"{answer['wall']:7.2f} s {answer['cpu']:7.2f} s of CPU {answer['peak'] >> 20} MiB"
                )
                self.say(f"{number + 1} {model:18} {case.name:44} {cores} {told}")
        return results

    def _read_all(self, jobs: list[Job]) -> None:
        """Run each program once as warm-up, which loads its files into the page cache and writes its bytecode."""
        seen = set()
        for model, case, cores in jobs:
            if case.program not in seen and not case.once:
                seen.add(case.program)
                self.run(model, case, cores)

    def run(self, model: str, case: Case, cores: int) -> dict[str, Any]:
        """Run a process and return its answer, with `wall`: seconds from its start to its first result."""
        cache = {"MLCC_CACHE": "1", "MLCC_CACHE_DIR": str(self.scratch / "cache")} if case.warm else {"MLCC_CACHE": "0"}
        if case.warm and (model, cores) not in self._filled:
            self._filled.add((model, cores))
            self._process(model, case, cores, cache)
        answer = self._process(model, case, cores, cache)
        self.versions.update(answer.get("versions", {}))
        if not answer.get("error") and not answer["off"] <= TOLERANCE:
            answer["error"] = f"wrong by {answer['off']:.1e} of the largest value"
        return answer

    def _process(self, model: str, case: Case, cores: int, cache: dict[str, str]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            task = {**case.task, **self.files[model], "cores": cores, "folder": folder}
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", str(CHILD), json.dumps(task)], start_new_session=True,
                env=environment(case.tree, cores, folder) | cache, cwd=folder, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=None if os.environ.get("BENCH_TRACEBACKS") else subprocess.DEVNULL,
            )  # fmt: skip
            prefer(process.pid, -15)
            try:
                out, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                return {"error": f"took over {LIMIT:.0f} s"}
        if not out:
            return {"error": f"the process ended (exit code {process.returncode})"}
        answer: dict[str, Any] = json.loads(out)
        if "clock" in answer:
            answer["wall"] = answer["clock"] - began
        return answer


def environment(tree: Path, cores: int, folder: str) -> dict[str, str]:
    """Return the environment of a process: the modules of a tree, the number of threads, caches disabled."""
    dropped = (*PINNED, "PYTHONDONTWRITEBYTECODE", "MLCC_CACHE_DIR")
    return {
        **{name: value for name, value in os.environ.items() if name not in dropped},
        **dict.fromkeys(THREAD_VARIABLES, str(cores)),
        "PYTHONPATH": str(tree),
        "TORCHINDUCTOR_CACHE_DIR": folder,
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "JAX_ENABLE_COMPILATION_CACHE": "false",
    }
