"""Results of runs as a JSON file; a later run replaces the workloads it measures, and `--write` reads all results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.speed.session import Result
from bench.speed.worker import OURS


@dataclass
class Line:
    """One workload on a number of threads. Times are in seconds."""

    workload: str
    threads: int
    arithmetic: float  # the two floors
    bytes: float
    results: dict[str, Result] = field(default_factory=dict)
    when: str = ""

    @property
    def floor(self) -> float:
        return max(self.arithmetic, self.bytes)

    def time(self, peer: str) -> float | None:
        """Return the median, if there is one."""
        result = self.results.get(peer)
        return result.median if result is not None and result.times and not result.error else None

    def best_peer(self) -> str | None:
        """The fastest competitor of mlcc."""
        times = {p: t for p in self.results if p not in OURS and (t := self.time(p)) is not None}
        return min(times, key=times.__getitem__, default=None)

    def ratio(self) -> float | None:
        """The speedup of mlcc over the best peer."""
        mine, best = self.time("mlcc"), self.best_peer()
        theirs = None if best is None else self.time(best)
        return None if mine is None or theirs is None else theirs / mine

    def portable(self) -> float | None:
        """The time of a portable build, relative to a build for this CPU."""
        native, portable = self.time("mlcc"), self.time("portable")
        return None if native is None or portable is None else portable / native


@dataclass
class Record:
    """All lines of one machine, with a description of the machine and the competitors."""

    machine: str = ""
    facts: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def put(self, line: Line) -> None:
        """Add a line, replacing an older one. Samples of different runs are never combined."""
        for at, old in enumerate(self.lines):
            if (old.workload, old.threads) == (line.workload, line.threads):
                self.lines[at] = line
                return
        self.lines.append(line)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1))

    @staticmethod
    def load(path: Path, machine: str) -> Record:
        """Read the record at a path; it is empty if missing, or if it is from another machine."""
        if not path.exists():
            return Record(machine)
        content: dict[str, Any] = json.loads(path.read_text())
        if content["machine"] != machine:
            return Record(machine)
        lines = [
            Line(**{**line, "results": {p: Result(**r) for p, r in line["results"].items()}})
            for line in content["lines"]
        ]
        return Record(machine, content["facts"], lines)


def milliseconds(seconds: float | None) -> str:
    """Format with three significant digits."""
    if seconds is None:
        return "-"
    ms = seconds * 1e3
    return f"{ms:.4f}" if ms < 0.1 else f"{ms:.3f}" if ms < 1 else f"{ms:.2f}" if ms < 10 else f"{ms:.1f}"
