"""Single calls after pauses of the caller, as servers make them: what threads gain that have gone to sleep.

`python -m bench pauses [--only NAMES] [--peers NAMES] [--rounds N]`: microseconds of a call, the median of the least of
five, right after other calls and after pauses, with 1 and 2 threads; of mlcc from Python and from a C program, and of
the peers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.measure import machine
from bench.speed.session import ROOT, Competitor, competitors, write_arrays
from bench.speed.workloads import Workload, suite

PAUSES = (0.0, 1e-3, 5e-3, 50e-3)
WORKLOADS = (
    "conv2d_3x3", "matmul_128", "matmul_512", "mlp_1", "gelu_1M", "odd0_thin_1009x641x11", "odd0_conv_s2p2k3_53x53x31",
)  # fmt: skip
PEERS = ("mlcc", "onnxruntime", "torch", "numpy")
CALLS = 5  # of a round; the least counts
FOLDER = ROOT / "build" / "bench"

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
    double pause = argc > 1 ? atof(argv[1]) : 0;
    int count = argc > 2 ? atoi(argv[2]) : 1;
    struct timespec rest = {0, (long)(pause * 1e9)};
TENSORS
    for (int i = -3; i < count; i++) {
        if (pause > 0) nanosleep(&rest, NULL);
        double begin = now();
        if (model_main(ARGUMENTS)) return 1;
        if (i >= 0) printf("%.9f\\n", now() - begin);
    }
    return 0;
}
"""


def main(argv: list[str] | None = None) -> int:
    options = _arguments(argv or [])
    words = options.only.split(",") if options.only else list(WORKLOADS)
    chosen = [w for w in suite((0,)) if w.name in words or (options.only and any(o in w.name for o in words))]
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"us of single calls, medians of the least of {CALLS}; {machine()}")
    for threads in (n for n in (1, 2) if n <= len(os.sched_getaffinity(0))):
        with competitors(options.peers.split(","), threads) as started:
            running = [c for c in started if not c.missing]
            for missing in (c for c in started if c.missing):
                print(f"  {missing.peer} is skipped: {missing.missing}")
            for workload in chosen:
                found = measure(workload, running, threads, options.rounds)
                print("\n".join(table(workload.name, threads, found)), flush=True)
    return 0


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m bench pauses", description="Single calls after pauses of the caller.")
    parser.add_argument("--only", help="workloads whose names contain one of these, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    return parser.parse_args(argv)


Found = dict[str, dict[float, list[float]]]  # by competitor and pause: seconds of a call, one number for a round


def measure(workload: Workload, running: list[Competitor], threads: int, rounds: int) -> Found:
    """All competitors on one workload: pauses and competitors take turns."""
    found: Found = {}
    path = write_arrays(workload, FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        samplers: dict[str, Callable[[float], list[float]]] = {}
        for competitor in running:
            loaded = competitor.ask(
                120, do="load", path=str(path), graph=workload.graph.plain(), source=workload.text.source,
                folder=str(FOLDER), trials=0,
            )  # fmt: skip
            if loaded["ok"]:
                samplers[competitor.peer] = lambda pause, c=competitor: c.ask(  # type: ignore[misc]
                    120, do="after", pause=pause, count=CALLS
                )["seconds"]
        if "mlcc" in samplers and shutil.which("cc"):
            samplers["mlcc in C"] = c_program(workload, Path(folder), threads)
        for _ in range(rounds):
            for pause in PAUSES:
                for name, sample in samplers.items():
                    found.setdefault(name, {}).setdefault(pause, []).append(min(sample(pause)))
    return found


def c_program(workload: Workload, folder: Path, threads: int) -> Callable[[float], list[float]]:
    """The workload as an object in a C program: gives seconds of single calls after a pause."""
    import mlcc

    inputs, weights = workload.arrays()
    np.savez(folder / "weights.npz", **weights)
    module = mlcc.parse(workload.text.source)
    if weights:
        module = mlcc.run_passes(module, "bind-params{params=weights.npz}", folder=str(folder))
    artifact = mlcc.build(module, target="llvm{cpu=native}", opt_level=3)
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

    def sample(pause: float) -> list[float]:
        done = subprocess.run(
            [folder / "app", repr(pause), str(CALLS)], check=True, capture_output=True, text=True,
            env={**os.environ, "MLCC_NUM_THREADS": str(threads)},
        )  # fmt: skip
        return [float(line) for line in done.stdout.split()]

    return sample


def table(name: str, threads: int, found: Found) -> list[str]:
    """A line for each competitor: a column for each pause, with mlcc's speed relative to it."""
    lines = [f"{name}, {threads} thread{'s' if threads > 1 else ''}"]
    for peer, by_pause in found.items():
        cells = []
        for pause, samples in by_pause.items():
            middle = statistics.median(samples)
            mine = statistics.median(found["mlcc"][pause]) if "mlcc" in found else middle
            cells.append(f"{pause * 1e3:g} ms: {middle * 1e6:8.1f} ({middle / mine:4.2f} x)")
        lines.append(f"  {peer:12} " + "   ".join(cells))
    return lines
