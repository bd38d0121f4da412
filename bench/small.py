"""Latency of calls of small models, from Python and from C, beside ONNX Runtime and OpenVINO, on one thread.

`python -m bench small [--only NAMES] [--peers NAMES] [--rounds N] [--write]`: microseconds of a call, its overhead
included. A bound call writes to arrays that are there already; a plain one takes arrays and returns new ones, as
`exe["main"](x)` and `session.run` do.
"""

from __future__ import annotations

import argparse
import datetime
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.measure import default_level, machine
from bench.pauses import c_program
from bench.speed.session import ROOT, TOLERANCE, Competitor, competitors, write_arrays
from bench.speed.small import SMALL
from bench.speed.worker import SETTLE
from bench.speed.workloads import Workload

PEERS = ("mlcc", "onnxruntime", "openvino")
WAYS = {"bound": False, "plain": True}
LEAST = 5e-3  # seconds of a sample
CALLS = 200  # of a sample in C
FOLDER = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "speed.md"
START, END = "<!-- what follows is written by `python -m bench small --write` -->", "<!-- end of small -->"

Found = dict[str, list[float]]  # by competitor and way: seconds of a call


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv or [])
    words = options.only.split(",")
    chosen = [w for w in SMALL if any(word in w.name for word in words)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    facts = [f"{datetime.date.today().isoformat()}, {machine()}, one thread", f"mlcc at `-O{options.level}`"]
    found: dict[str, Found] = {}
    with competitors(options.peers.split(","), 1) as started:
        for competitor in started:
            if competitor.missing:
                print(f"  {competitor.peer} is skipped: {competitor.missing}")
            facts += [f"{k} {v}" for k, v in competitor.versions.items() if k == competitor.peer != "mlcc"]
        print(f"us of a call, median and range of {options.rounds} samples; {', '.join(facts)}")
        for workload in chosen:
            running = [c for c in started if not c.missing]
            found[workload.name] = measure(workload, running, options.rounds, options.level)
            print("\n".join(terminal(workload.name, found[workload.name])), flush=True)
    if options.write:
        before, _, rest = PAGE.read_text().partition(START)
        page = [f"{', '.join(facts)}.", "", *table(found)]
        PAGE.write_text("\n".join([before + START, "", *page, "", END + rest.partition(END)[2]]))
        print(f"wrote {PAGE}")
    return 0


def measure(workload: Workload, running: list[Competitor], rounds: int, level: int) -> Found:
    """Measure all competitors on one workload in turn; those that cannot run it or are wrong are left out."""
    times: Found = {}
    path = write_arrays(workload, FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        samplers: dict[str, Callable[[], float]] = {}
        for competitor in running:
            loaded = competitor.ask(
                120, do="load", path=str(path), graph=workload.graph.plain(), source=workload.text.source,
                folder=str(FOLDER), trials=0, level=level,
            )  # fmt: skip
            if not loaded["ok"] or not loaded["off"] <= TOLERANCE:
                print(f"  {competitor.peer}, {workload.name}: {loaded.get('error', loaded.get('off'))}")
                continue
            for way, plain in WAYS.items():
                samplers[f"{competitor.peer}, {way}"] = _sampler(competitor, plain)
            if competitor.peer == "mlcc" and shutil.which("cc"):
                run = c_program(workload, Path(folder), 1, level)
                samplers["mlcc, C"] = lambda run=run: statistics.median(run(0.0, CALLS, SETTLE))  # type: ignore[misc]
        for _ in range(rounds):
            for name, sample in samplers.items():
                times.setdefault(name, []).append(sample())
    return times


def _sampler(competitor: Competitor, plain: bool) -> Callable[[], float]:
    """Return a function that takes one sample: seconds of a call, without those for which there was no CPU."""

    def sample() -> float:
        answer = competitor.ask(120, do="sample", least=LEAST, plain=plain)
        return min(float(answer["wall"]), float(answer["cpu"]))

    return sample


def terminal(name: str, found: Found) -> list[str]:
    """Return a line for each competitor and way, with its time relative to that of mlcc in the same way."""
    lines = [name]
    for way, samples in found.items():
        mine = found.get(f"mlcc, {way.rpartition(', ')[2]}", samples)
        ratio = statistics.median(samples) / statistics.median(mine)
        spread = f"{min(samples) * 1e6:.1f} to {max(samples) * 1e6:.1f}"
        lines.append(f"  {way:22} {statistics.median(samples) * 1e6:8.2f}  ({spread}; {ratio:.2f} x)")
    return lines


def table(found: dict[str, Found]) -> list[str]:
    """Return the table of the page: a row for each model, a column for each competitor and way."""
    ways = list(dict.fromkeys(way for times in found.values() for way in times))
    lines = [f"| | {' | '.join(ways)} |", f"| --- |{' ---: |' * len(ways)}"]
    for name, times in found.items():
        cells = [f"{statistics.median(times[way]) * 1e6:.1f}" if way in times else "-" for way in ways]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench small", description="Time calls of small models.")
    parser.add_argument("--only", default="", help="models whose names contain one of these, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument(
        "--level", type=int, default=default_level(), help="optimization level of mlcc; default: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=15, help="samples of each; default: %(default)s")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/speed.md")
    return parser.parse_args(argv)
