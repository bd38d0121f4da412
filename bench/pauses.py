"""Latency of single calls after pauses of the caller, as in servers, where worker threads have gone to sleep.

`python -m bench pauses [--only NAMES] [--peers NAMES] [--rounds N] [--quick] [--write]`: microseconds of a call, median
and 95th percentile, right after other calls and after pauses, with 1 and 2 threads; of mlcc from Python and from a C
program, and of the peers.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from bench.measure import default_level, machine, prefer
from bench.speed.session import ROOT, Competitor, competitors, write_arrays
from bench.speed.texts import transpose
from bench.speed.worker import SETTLE
from bench.speed.workloads import Workload, suite

PAUSES = (0.0, 1e-3, 5e-3, 50e-3)
WORKLOADS = (
    "mlp_1", "matmul_128", "odd0_thin_1009x641x11", "odd0_conv_s2p2k3_53x53x31", "gelu_1M", "conv2d_3x3", "matmul_512",
    "encoder_4x256", "transpose_1024x1024", "nhwc_8x64x56x56",
)  # fmt: skip
COPIES = (  # loops of few iterations, which are worth waking a thread for all the same
    Workload("transpose_1024x1024", functools.partial(transpose, (1024, 1024), (1, 0))),
    Workload("nhwc_8x64x56x56", functools.partial(transpose, (8, 64, 56, 56), (0, 2, 3, 1))),
)
QUICK = ("mlp_1", "odd0_thin_1009x641x11", "conv2d_3x3")
PEERS = ("mlcc", "onnxruntime", "openvino")
CALLS = 5  # of a round
FOLDER = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "speed.md"
START, END = "<!-- what follows is written by `python -m bench pauses --write` -->", "<!-- end of pauses -->"

C = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static DLTensor tensor(int32_t ndim, int64_t *shape) {
    int64_t size = 1;
    for (int i = 0; i < ndim; i++) size *= shape[i];
    float *data = malloc(size * 4);
    for (int64_t i = 0; i < size; i++) data[i] = (float)(i % 17) / 16 - 0.5f;
    DLTensor made = {data, {1, 0}, ndim, {2, 32, 1}, shape, NULL, 0};
    return made;
}

int main(int argc, char **argv) {
    double pause = atof(argv[1]), settled = now() + atof(argv[3]);
    int count = atoi(argv[2]);
    struct timespec rest = {0, (long)(pause * 1e9)};
TENSORS
    do {
        if (model_main(ARGUMENTS)) return 1;
    } while (now() < settled);
    for (int i = 0; i < count; i++) {
        if (pause > 0) nanosleep(&rest, NULL);
        double begin = now();
        if (model_main(ARGUMENTS)) return 1;
        printf("%.9f\\n", now() - begin);
    }
    return 0;
}
"""


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv or [])
    listed = QUICK if options.quick else WORKLOADS
    words = options.only.split(",") if options.only else list(listed)
    chosen = [w for w in known() if w.name in words or (options.only and any(o in w.name for o in words))]
    rounds = 4 if options.quick else options.rounds
    FOLDER.mkdir(parents=True, exist_ok=True)
    page = [f"{datetime.date.today().isoformat()}, {machine()}, mlcc at `-O{options.level}`."]
    print(f"us of single calls, median and 95th percentile of {rounds * CALLS}; {page[0]}")
    for threads in (n for n in (1, 2) if n <= len(os.sched_getaffinity(0))):
        page += ["", f"{threads} thread{'s' if threads > 1 else ''}:", "", *header()]
        with competitors(options.peers.split(","), threads) as started:
            running = [c for c in started if not c.missing]
            for missing in (c for c in started if c.missing):
                print(f"  {missing.peer} is skipped: {missing.missing}")
            for workload in chosen:
                times = measure(workload, running, threads, rounds, options.level)
                print("\n".join(table(workload.name, threads, times)), flush=True)
                page += rows(workload.name, times)
    if options.write:
        text = PAGE.read_text()
        before, _, rest = text.partition(START)
        PAGE.write_text("\n".join([before + START, "", *page, "", END + rest.partition(END)[2]]))
        print(f"wrote {PAGE}; load {os.getloadavg()[0]:.1f}")
    return 0


def known() -> list[Workload]:
    """Return the workloads of the suite and the additional ones of this module."""
    return [*suite((0,)), *COPIES]


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench pauses", description="Time single calls after pauses.")
    parser.add_argument("--only", help="workloads whose names contain one of these, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument(
        "--level", type=int, default=default_level(), help="optimization level of mlcc; default: %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=9, help=f"rounds of {CALLS} calls; default: %(default)s")
    parser.add_argument("--quick", action="store_true", help="4 rounds of few workloads")
    parser.add_argument("--write", action="store_true", help="write the figures into docs/speed.md")
    return parser.parse_args(argv)


Found = dict[str, dict[float, list[float]]]  # by competitor and pause: seconds of every call


def measure(workload: Workload, running: list[Competitor], threads: int, rounds: int, level: int) -> Found:
    """Measure all competitors on one workload, interleaving pauses and competitors."""
    times: Found = {}
    path = write_arrays(workload, FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        samplers: dict[str, Callable[[float], list[float]]] = {}
        for competitor in running:
            loaded = competitor.ask(
                120, do="load", path=str(path), graph=workload.graph.plain(), source=workload.text.source,
                folder=str(FOLDER), trials=0, level=level,
            )  # fmt: skip
            if loaded["ok"]:
                samplers[competitor.peer] = lambda pause, c=competitor: c.ask(  # type: ignore[misc]
                    120, do="after", pause=pause, count=CALLS
                )["seconds"]
        if "mlcc" in samplers and shutil.which("cc"):
            samplers["mlcc in C"] = c_program(workload, Path(folder), threads, level)
        for _ in range(rounds):
            for pause in PAUSES:
                for name, sample in samplers.items():
                    times.setdefault(name, {}).setdefault(pause, []).extend(sample(pause))
    return times


class Sampler(Protocol):
    """Takes samples by a C program."""

    def __call__(self, pause: float, count: int = CALLS, settle: float = 0.0) -> list[float]: ...


def c_program(workload: Workload, folder: Path, threads: int, level: int) -> Sampler:
    """The workload as an object in a C program, which reports the seconds of single calls after a pause."""
    import mlcc

    inputs, weights = workload.arrays()
    np.savez(folder / "weights.npz", **weights)
    module = mlcc.parse(workload.text.source)
    if weights:
        module = mlcc.run_passes(module, "bind-params{params=weights.npz}", folder=str(folder))
    artifact = mlcc.build(module, target="llvm{cpu=native}", opt_level=level)
    artifact.save(folder / "model.o")
    (folder / "model.h").write_text(artifact.header("model.o"))
    result = next(n.shape for n in workload.graph.nodes if n.out == workload.graph.result)
    shapes = [*(a.shape for a in inputs.values()), result]
    tensors = "".join(
        f"    int64_t s{i}[] = {{{', '.join(map(str, shape))}}};\n    DLTensor t{i} = tensor({len(shape)}, s{i});\n"
        for i, shape in enumerate(shapes)
    )
    source = C.replace("TENSORS\n", tensors).replace("ARGUMENTS", ", ".join(f"&t{i}" for i in range(len(shapes))))
    (folder / "app.c").write_text(source)
    subprocess.run(["cc", "-O2", "app.c", "model.o", "-o", "app", "-lm"], cwd=folder, check=True)

    def sample(pause: float, count: int = CALLS, settle: float = SETTLE if threads > 1 else 0.0) -> list[float]:
        """Equivalent of `Worker.after`."""
        process = subprocess.Popen(
            [folder / "app", repr(pause), str(count), repr(settle)], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "MLCC_NUM_THREADS": str(threads)}, start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-threads:]),
        )  # fmt: skip
        prefer(process.pid, -15)
        out, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"{workload.name} in C: exit code {process.returncode}")
        return [float(line) for line in out.split()]

    return sample


def late(samples: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return sorted(samples)[int(0.95 * (len(samples) - 1))]


def table(name: str, threads: int, found: Found) -> list[str]:
    """Return a row for each competitor with a column for each pause and mlcc's relative speed."""
    lines = [f"{name}, {threads} thread{'s' if threads > 1 else ''}"]
    for peer, by_pause in found.items():
        cells = []
        for pause, samples in by_pause.items():
            middle = statistics.median(samples)
            mine = statistics.median(found["mlcc"][pause]) if "mlcc" in found else middle
            least = f"{pause * 1e3:g} ms: {middle * 1e6:8.1f} {late(samples) * 1e6:8.1f}"
            cells.append(f"{least} ({middle / mine:4.2f} x)")
        lines.append(f"  {peer:12} " + "   ".join(cells))
    return lines


def header() -> list[str]:
    """Return the header of a table of the page."""
    return [f"| | | {' | '.join(f'{p * 1e3:g} ms' for p in PAUSES)} |", f"| --- | --- |{' ---: |' * len(PAUSES)}"]


def rows(name: str, found: Found) -> list[str]:
    """Return a workload's rows in the table of the page."""
    lines = []
    for peer, by_pause in found.items():
        cells = (f"{statistics.median(s) * 1e6:.0f} / {late(s) * 1e6:.0f}" for s in by_pause.values())
        lines.append(f"| {name} | {peer} | {' | '.join(cells)} |")
    return lines
