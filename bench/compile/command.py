"""`python -m bench compile`: compile times, memory and sizes of objects, against peers and another tree of mlcc."""

from __future__ import annotations

import argparse
import datetime
import os
import tempfile
from pathlib import Path

import numpy as np

from bench.compile.cases import PEERS, Case, cpu_cases, gpu_cases, label
from bench.compile.models import MODELS, SAMPLES, files
from bench.compile.report import MARK, Part, page
from bench.compile.run import Job, Runner
from bench.measure import default_level, machine
from bench.speed.session import ROOT

FOLDER = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "compile-time.md"
PARTS = ("cpu", "gpu", "emulate")
SHARES = {"cpu": 0.75, "gpu": 0.15, "emulate": 0.1}  # of the time
EMULATED = ("mlp", "lenet", "encoder")
QUICK = ("mlp", "lenet", "encoder")


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench compile", description="Measure compile times.")
    parser.add_argument("--only", default="", help="models whose names contain one of these, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s; empty: none")
    parser.add_argument("--levels", default="1,2,3", help="optimization levels of mlcc; default: %(default)s")
    parser.add_argument("--against", type=Path, metavar="TREE", help="another tree of mlcc, at its -O2 and -O3")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--cores", default="1,2", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="maximum number; default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=540, help="start no sample after this, except in the first round; %(default)s"
    )
    parser.add_argument("--quick", action="store_true", help=f"one round, {', '.join(QUICK)}, fewer cases")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/compile-time.md")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    options = arguments(argv)
    default = default_level()
    levels = [int(n) for n in options.levels.split(",")]
    peers = [p for p in options.peers.split(",") if p]
    parts = options.parts.split(",")
    unknown = [*(p for p in peers if p not in PEERS), *(p for p in parts if p not in PARTS)]
    if unknown:
        print(f"no `{unknown[0]}`: peers are {', '.join(PEERS)}; parts are {', '.join(PARTS)}")
        return 2
    cores = {int(n) for n in options.cores.split(",")}
    against = None if options.against is None else options.against.resolve()
    words = options.only.split(",")
    models = [m for m in MODELS if any(w in m.name for w in words) and (not options.quick or m.name in QUICK)]
    samples = {name: path for name, path in SAMPLES.items() if any(w in name for w in words)}
    rounds = options.rounds
    if options.quick:
        levels, peers, rounds = [default], [p for p in peers if p in ("onnxruntime", "openvino")], 1
        samples = {name: path for name, path in samples.items() if "lenet" in name}

    FOLDER.mkdir(parents=True, exist_ok=True)
    paths = {m.name: files(m, FOLDER) for m in models} | {n: {"text": str(p)} for n, p in samples.items()}
    graphed = [n for n in (default, 3) if n in levels or n == default]
    asked = {
        "cpu": Part([m.name for m in models], cpu_cases(levels, default, against, peers)),
        "gpu": Part(list(samples), gpu_cases(sorted(set(graphed)), against, emulate=False)),
        "emulate": Part([m.name for m in models if m.name in EMULATED], gpu_cases([default], against, emulate=True)),
    }
    began = f"{machine()}"
    print(began)
    with tempfile.TemporaryDirectory() as scratch:
        runner = Runner(paths, Path(scratch), lambda line: print(line, flush=True))
        for name in parts:
            part = asked[name]
            part.found = runner.rounds(jobs(part, cores), rounds, options.seconds * SHARES[name])
    tree = label(ROOT)
    facts = [
        f"{datetime.date.today().isoformat()}, {began} (at the end {os.getloadavg()[0]:.1f})",
        f"mlcc {tree}, whose default level is {default}"
        + (f"; the other tree is {label(against)}" if against is not None else ""),
        ", ".join(f"{k} {v}" for k, v in {"numpy": np.__version__, **runner.versions}.items()),
    ]
    theirs = [c.name for c in asked["cpu"].cases if c.tree != ROOT or "peer" in c.task]
    shown = {name: asked[name] if name in parts and asked[name].models else None for name in ("gpu", "emulate")}
    text = page(facts, asked["cpu"], f"mlcc `-O{default}`", theirs, shown["gpu"], shown["emulate"])
    print(text.partition(MARK)[2])
    if options.write:
        PAGE.write_text(PAGE.read_text().partition(MARK)[0] + text)
        print(f"wrote {PAGE}")
    return 0


def jobs(part: Part, asked: set[int]) -> list[Job]:
    """Return the jobs, ordered by model, so that compared cases are measured close together."""
    order: list[tuple[Case, int]] = [(case, cores) for case in part.cases for cores in case.cores]
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [
        (model, case, cores) for model in part.models for case, cores in order if cores in asked and cores <= available
    ]
