"""Startup time of the command line: help, and a cold run of a 784-128-10 perceptron from text and from its object.

Also measures other installed tools up to the first result of the same model, and the sample of handwritten digits,
and with `--against TREE` another tree of mlcc.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.measure import commands, machine, median_and_quartiles

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "build" / "bench" / "startup.json"
ONNXRUNTIME = """
import sys, numpy, onnxruntime
x = numpy.load(sys.argv[1])["x"]
session = onnxruntime.InferenceSession(sys.argv[2], providers=["CPUExecutionProvider"])
numpy.savez(sys.argv[3], out=session.run(None, {"x": x})[0])
"""
NUMPY = """
import sys, numpy
x, w = numpy.load(sys.argv[1])["x"], numpy.load(sys.argv[2])
numpy.savez(sys.argv[3], out=numpy.maximum(x @ w["w0"] + w["b0"], 0) @ w["w1"] + w["b1"])
"""


def prepare(folder: str, against: Path | None) -> dict[str, Sequence[str]]:
    """Return the commands by name and the files they read."""
    import numpy as np

    from bench.speed.texts import mlp
    from bench.speed.workloads import Workload

    workload = Workload("mlp", lambda: mlp(1))
    inputs, weights = workload.arrays()
    np.savez(f"{folder}/in.npz", **inputs)
    np.savez(f"{folder}/w.npz", **weights)
    with open(f"{folder}/free.mlc", "w") as file:
        file.write(workload.text.source)
    python = [sys.executable]
    mlcc = [*python, "-P", "-m", "mlcc"]  # the tree that PYTHONPATH names, not the current folder's
    text, object_file = f"{folder}/mlp.mlc", f"{folder}/mlp.o"
    bind = f"bind-params{{params={folder}/w.npz}}"
    commands({"bind": [*mlcc, "passes", f"{folder}/free.mlc", "-p", bind, "-o", text]}, rounds=1)
    commands({"compile": [*mlcc, "compile", text, "-t", "llvm{cpu=native}", "-o", object_file]}, rounds=1)
    io = ["--in", f"{folder}/in.npz", "--out", f"{folder}/out.npz"]
    files = [f"{folder}/in.npz", f"{folder}/w.npz", f"{folder}/out.npz"]
    cases: dict[str, Sequence[str]] = {
        "python -c pass": [*python, "-c", "pass"],
        "python -c 'import numpy'": [*python, "-c", "import numpy"],
        "mlcc --help": [*mlcc, "--help"],
        "mlcc check mlp.mlc": [*mlcc, "check", text],
        "mlcc compile mlp.mlc": ["env", "MLCC_CACHE=0", *mlcc, "compile", text, "-o", f"{folder}/again.o"],
        "mlcc run mlp.mlc": ["env", "MLCC_CACHE=0", *mlcc, "run", text, *io],
        "the same again": [*mlcc, "run", text, *io],
        "mlcc run mlp.o": [*mlcc, "run", object_file, *io],
        "NumPy": [*python, "-c", NUMPY, *files],
    }
    for tree in [ROOT] if against is None else [ROOT, against]:
        cases |= digits("" if tree == ROOT else f"{tree.name}: ", mlcc, tree, folder)
    if importlib.util.find_spec("onnxruntime") and importlib.util.find_spec("onnx"):
        from bench.speed.peers.base import Work
        from bench.speed.peers.onnx_model import onnx_model

        with open(f"{folder}/mlp.onnx", "wb") as model:
            model.write(onnx_model(Work(workload.graph, "", inputs, weights, folder, 0)))
        files[1] = f"{folder}/mlp.onnx"
        cases["ONNX Runtime"] = [*python, "-c", ONNXRUNTIME, *files]
    return cases


def digits(name: str, mlcc: list[str], tree: Path, folder: str) -> dict[str, Sequence[str]]:
    """Return the commands that run the sample: from its text, with and without the cache, and from its object."""
    sample = ROOT / "samples" / "digits"
    by = ["env", f"PYTHONPATH={tree}", f"MLCC_CACHE_DIR={folder}/{tree.name}"]
    text, object_file = str(sample / "mlp.mlc"), f"{folder}/{tree.name}-digits.o"
    commands({"compile": [*by, *mlcc, "compile", text, "-o", object_file]}, rounds=1)
    io = ["--in", str(sample / "test.npz"), "--out", f"{folder}/digits.npz"]
    return {
        f"{name}mlcc run digits/mlp.mlc": [*by, "MLCC_CACHE=0", *mlcc, "run", text, *io],
        f"{name}mlcc run digits/mlp.mlc again": [*by, *mlcc, "run", text, *io],
        f"{name}mlcc run digits/mlp.o": [*by, *mlcc, "run", object_file, *io],
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        "python -m bench startup", description="Measure whole processes of the command line."
    )
    parser.add_argument("--against", type=Path, metavar="TREE", help="another tree of mlcc")
    parser.add_argument("--rounds", type=int, default=15, help="default: %(default)s")
    options = parser.parse_args(argv or [])
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have theirs written; ours are by the first run
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MLCC_CACHE_DIR"] = f"{folder}/cache"
        os.environ["PYTHONPATH"] = str(ROOT)
        # in another process: the memory of this one would count for each that it starts
        tree = [] if options.against is None else [str(options.against.resolve())]
        done = subprocess.run(
            [sys.executable, "-m", "bench.startup", folder, *tree], stdout=subprocess.PIPE, check=True
        )
        samples = commands(json.loads(done.stdout), options.rounds)
    print(f"start-up, whole processes; {machine()}")
    print(f"{'command':36} {'wall ms, median':>16} {'middle half':>18} {'CPU ms':>8} {'MiB':>6}  x numpy")
    base = statistics.median(w for w, _, _ in samples["python -c 'import numpy'"])
    rows = []
    for name, runs in samples.items():
        wall = [w for w, _, _ in runs]
        cpu, peak = statistics.median(c for _, c, _ in runs), statistics.median(m for _, _, m in runs)
        print(
            f"{name:36} {median_and_quartiles(wall):>35} {cpu:8.1f} {peak:6.0f}  {statistics.median(wall) / base:7.2f}"
        )
        rows.append([name, f"{statistics.median(wall):.0f}", f"{cpu:.0f}", f"{peak:.0f}"])
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(rows))  # for the page that `python -m bench speed --write` makes


if __name__ == "__main__":
    print(json.dumps(prepare(sys.argv[1], Path(sys.argv[2]) if sys.argv[2:] else None)))
