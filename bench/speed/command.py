"""`python -m bench speed`: run the comparison, report it and write its record."""

from __future__ import annotations

import argparse
import datetime
import json
import os
from dataclasses import replace
from pathlib import Path

from bench.measure import default_level, machine
from bench.speed.graph import count_flops, traffic
from bench.speed.picture import picture
from bench.speed.record import Line, Record
from bench.speed.report import page, replace_tail, terminal
from bench.speed.session import ROOT, SessionPlan, competitors, race
from bench.speed.worker import PEERS
from bench.speed.workloads import Workload, suite
from bench.startup import KEPT as STARTUP
from mlcc.tune.peak_rates import PeakRates, measure

FOLDER = ROOT / "build" / "bench"
QUICK = ("mlcc", "portable", "numpy", "onnxruntime", "openvino")
QUICK_WORKLOADS = ("matmul_128", "mlp_1", "conv2d_3x3", "softmax_128x1024", "gelu_1M")
LONG = {"tvm": "without tuning its figures mean little; give --trials 64", "inductor": "it takes 20 s a workload"}


def arguments(argv: list[str]) -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser("python -m bench speed", description="Compare mlcc with peers.")
    parser.add_argument("--only", help="workloads whose names contain one of these, separated by commas")
    parser.add_argument("--peers", help=f"only these competitors: {','.join(PEERS)}")
    parser.add_argument(
        "--threads", default=",".join(str(n) for n in (1, 2) if n <= cores), help="default: %(default)s"
    )
    parser.add_argument(
        "--level", type=int, default=default_level(), help="optimization level of mlcc; default: %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help="few samples, workloads and peers")
    parser.add_argument("--trials", type=int, default=0, help="tuning trials of TVM per workload; 0 omits TVM")
    parser.add_argument("--seed", default="0", help="seeds of the random shapes, separated by commas")
    parser.add_argument("--write", action="store_true", help="write docs/speed.md and docs/speed.svg from all results")
    parser.add_argument("--list", action="store_true", help="list the names of the workloads")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    chosen = suite(tuple(int(s) for s in options.seed.split(",")))
    if options.only:
        words = options.only.split(",")
        chosen = [w for w in chosen if any(word in w.name for word in words)]
    elif options.quick:
        chosen = [w for w in chosen if w.name in QUICK_WORKLOADS]
    if options.list:
        print("\n".join(w.name for w in chosen))
        return 0
    peers = options.peers.split(",") if options.peers else list(QUICK if options.quick else PEERS)
    unknown = [p for p in peers if p not in PEERS]
    if unknown or not chosen:
        print(f"no peer `{unknown[0]}`; there are {', '.join(PEERS)}" if unknown else "no such workload: see --list")
        return 2
    plan = SessionPlan(rounds=9, seconds=0.4, sample=2e-3, limit=120) if options.quick else SessionPlan()
    plan = replace(plan, trials=options.trials, level=options.level)
    for peer in [] if options.peers else [p for p in peers if p in LONG and not (p == "tvm" and options.trials)]:
        print(f"  {peer} is skipped: {LONG[peer]}, or name it in --peers")
        peers.remove(peer)
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "results.json"
    record = Record.load(kept, machine().rpartition(",")[0])
    if record.facts.get("level") != str(plan.level):
        record.lines.clear()  # no table of two levels
    record.facts["level"] = str(plan.level)
    record.facts["date"] = datetime.date.today().isoformat()
    for count in (int(n) for n in options.threads.split(",")):
        run(chosen, peers, count, plan, record, kept)
    if options.write:
        write(record)
    return 0


def run(chosen: list[Workload], peers: list[str], threads: int, plan: SessionPlan, record: Record, kept: Path) -> None:
    """Compare with one number of threads, and record each line as soon as it is complete."""
    floors = measure(threads)
    record.facts[f"load, {threads} thread{'s' if threads > 1 else ''}"] = (
        f"{os.getloadavg()[0]:.1f} of {os.cpu_count()}"
    )
    record.facts[f"floors, {threads} thread{'s' if threads > 1 else ''}"] = show(floors)
    print(f"{machine()}; {show(floors)}")
    with competitors(peers, threads) as started:
        for competitor in started:
            if competitor.missing:
                print(f"  {competitor.peer} is skipped: {competitor.missing}")
            record.facts.update(competitor.versions)
        running = [c for c in started if not c.missing]
        for workload in chosen:
            arithmetic, moved = floors.seconds(count_flops(workload.graph), traffic(workload.graph))
            line = Line(
                workload.name, threads, arithmetic, moved, when=datetime.datetime.now().isoformat("T", "minutes")
            )
            line.results = {r.peer: r for r in race(workload, running, plan, FOLDER)}
            print("\n".join(terminal(line)), flush=True)
            record.put(line)
            record.save(kept)


def show(floors: PeakRates) -> str:
    levels = ", ".join(f"{name} {speed / 1e9:.0f}" for name, speed, _ in floors.levels)
    return f"{floors.flops / 1e9:.0f} GFLOP/s by multiply-adds; GB/s read from {levels}"


def write(record: Record) -> None:
    """Write the page and the picture."""
    docs = ROOT / "docs"
    path = docs / "speed.md"
    startup = json.loads(STARTUP.read_text()) if STARTUP.exists() else []
    path.write_text(replace_tail(path.read_text(), page(record, startup)))
    (docs / "speed.svg").write_text(picture(record.lines))
    print(f"wrote {path} and {docs / 'speed.svg'}")
