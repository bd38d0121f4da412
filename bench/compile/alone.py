"""`python -m bench alone`: what compiling takes by itself, beside other compilers, and how it grows with the layers.

A sample is a process that compiles a small model first, so that modules and libraries are loaded; then it compiles the
model at hand on one core, from its file to a function that was called once. Results are kept in build/bench; a later
run replaces those that it measures.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

from bench.compile.cases import NATIVE, Case
from bench.compile.models import MODELS, files
from bench.compile.run import Runner
from bench.measure import default_level, machine
from bench.speed.chains import CHAINS
from bench.speed.session import ROOT
from bench.speed.small import SMALL
from bench.speed.texts import encoder, resnet50
from bench.speed.workloads import Workload

PEERS = ("openvino", "iree", "tvm", "inductor")
LARGE = (
    Workload("resnet50", resnet50),
    Workload("bert_base", functools.partial(encoder, 12, 768, 12, 3072, 128)),
    Workload("decoder_24", functools.partial(encoder, 24, 512, 8, 2048, 64, causal=True)),
)
STAGES = ("read", "verify", "graph", "schedules", "lowering", "emit", "LLVM", "link")
LAYERS = (250, 500, 1000, 2000)
FOLDER = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "compile-time.md"
START, END = "<!-- what follows is written by `python -m bench alone --write` -->", "<!-- end of alone -->"
Results = dict[str, dict[str, float]]  # by model and case: CPU seconds, the median


def models() -> list[Workload]:
    """Return all models, small ones first, and the chains."""
    chains = [Workload(chain(name, n), functools.partial(make, n)) for name, make in CHAINS.items() for n in LAYERS]
    return [*SMALL[1:], *MODELS, *LARGE, *chains]


def chain(name: str, layers: int) -> str:
    return f"chain_{name}_{layers}"


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv or [])
    words = options.only.split(",")
    chosen = [m for m in models() if any(w in m.name for w in words)]
    cases = [case for case in all_cases() if case.name in options.cases.split(",")]
    FOLDER.mkdir(parents=True, exist_ok=True)
    kept = FOLDER / "alone.json"
    record: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {"seconds": {}, "versions": {}}
    before = files(SMALL[0], FOLDER)
    print(machine())
    with tempfile.TemporaryDirectory() as scratch:
        for model in [] if options.report else chosen:
            paths: dict[str, Any] = {**files(model, FOLDER), "before": before}
            runner = Runner({model.name: paths}, Path(scratch), lambda line: None)
            shares: dict[str, float] = {}
            for case, seconds in measure(runner, model.name, cases, options.rounds, shares).items():
                print(f"{model.name:24} {case:14} {seconds:8.3f} s of CPU", flush=True)
                record["seconds"].setdefault(model.name, {})[case] = seconds
            if shares:
                record.setdefault("shares", {})[model.name] = shares
            record["versions"].update(runner.versions)
            record["when"] = f"{datetime.date.today().isoformat()}, {machine()}"
            kept.write_text(json.dumps(record, indent=1))
    text = "\n".join(page(record))
    print(text)
    if options.write:
        head, _, rest = PAGE.read_text().partition(START)
        PAGE.write_text(f"{head}{START}\n\n{text}\n\n{END}{rest.partition(END)[2]}")
        print(f"wrote {PAGE}")
    return 0


def all_cases() -> list[Case]:
    """Return mlcc at its default level, and the peers."""
    mine = Case("mlcc", {"way": "alone", "level": default_level(), "target": NATIVE}, cores=(1,))
    return [mine, *(Case(p, {"way": "peer_alone", "peer": p}, cores=(1,)) for p in PEERS)]


def measure(
    runner: Runner, model: str, cases: list[Case], rounds: int, shares: dict[str, float]
) -> dict[str, float]:  # fmt: skip
    """Return the median CPU seconds of each case that ran, taken in turn; `shares` gets mlcc's by stage."""
    samples: dict[str, list[float]] = {}
    failed: set[str] = set()
    for _ in range(rounds):
        for case in cases:
            if case.name in failed:
                continue
            answer = runner.run(model, case, 1)
            if "alone" in answer and not answer.get("error"):
                samples.setdefault(case.name, []).append(answer["alone"])
                shares.update(answer.get("shares", {}))
            else:
                failed.add(case.name)
                print(f"{model:24} {case.name:14} {answer.get('error')}", flush=True)
    return {name: statistics.median(found) for name, found in samples.items() if name not in failed}


def page(record: dict[str, Any]) -> list[str]:
    """Return the tables: a row for each model, and one for each chain with the exponent of its growth."""
    found: Results = record["seconds"]
    names = [case.name for case in all_cases() if any(case.name in times for times in found.values())]
    lines = [f"- {record.get('when', '')}", f"- {', '.join(f'{k} {v}' for k, v in record['versions'].items())}", ""]
    lines += [f"| | {' | '.join(names)} | mlcc / openvino |", f"| --- |{' ---: |' * (len(names) + 1)}"]
    for model in (m.name for m in (*SMALL[1:], *MODELS, *LARGE)):
        times = found.get(model, {})
        if times:
            cells = [f"{times[name]:.2f}" if name in times else "-" for name in names]
            both = "mlcc" in times and "openvino" in times
            ratio = f"{times['mlcc'] / times['openvino']:.1f}" if both else "-"
            lines.append(f"| {model} | {' | '.join(cells)} | {ratio} |")
    shares = record.get("shares", {})
    lines += ["", f"| | {' | '.join(STAGES)} | rest |", f"| --- |{' ---: |' * (len(STAGES) + 1)}"]
    for model in (m.name for m in models() if m.name in shares):
        parts = [shares[model].get(stage, 0.0) for stage in STAGES]
        cells = [f"{100 * part:.0f} %" for part in (*parts, max(0.0, 1 - sum(parts)))]
        lines.append(f"| {model} | {' | '.join(cells)} |")
    lines += ["", f"| layers | {' | '.join(map(str, LAYERS))} | exponent | openvino, {LAYERS[-2]} |"]
    lines.append(f"| --- |{' ---: |' * (len(LAYERS) + 2)}")
    for name in CHAINS:
        times = {n: found[chain(name, n)]["mlcc"] for n in LAYERS if "mlcc" in found.get(chain(name, n), {})}
        if times:
            cells = [f"{times[n]:.2f}" if n in times else "-" for n in LAYERS]
            other = found.get(chain(name, LAYERS[-2]), {}).get("openvino")
            cells += [f"{exponent(times):.2f}", "-" if other is None else f"{other:.2f}"]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def exponent(times: dict[int, float]) -> float:
    """Return the exponent k of seconds ~ layers^k between the two largest numbers of layers; nan for one number."""
    if len(times) < 2:
        return math.nan
    low, high = sorted(times)[-2:]
    return math.log(times[high] / times[low]) / math.log(high / low)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench alone", description="Measure compiling by itself.")
    parser.add_argument("--only", default="", help="models whose names contain one of these, separated by commas")
    parser.add_argument("--cases", default=f"mlcc,{','.join(PEERS)}", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each; default: %(default)s")
    parser.add_argument("--report", action="store_true", help="measure nothing, show the results that are kept")
    parser.add_argument("--write", action="store_true", help="write the tables into docs/compile-time.md")
    return parser.parse_args(argv)
