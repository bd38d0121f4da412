"""How long the command line takes to answer: help, a cold run of the digits model from text and from its object."""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench.measure import commands, machine, spread

DIGITS = Path(__file__).resolve().parent.parent / "samples" / "digits"


def main() -> None:
    python = [sys.executable]
    mlcc = [*python, "-m", "mlcc"]
    with tempfile.TemporaryDirectory() as folder:
        made = f"{folder}/mlp.o"
        io = ["--in", str(DIGITS / "test.npz"), "--out", f"{folder}/out.npz"]
        commands({"compile": [*mlcc, "compile", str(DIGITS / "mlp.mlc"), "-o", made]}, rounds=1)
        found = commands({
            "python -c pass": [*python, "-c", "pass"],
            "python -c 'import numpy'": [*python, "-c", "import numpy"],
            "mlcc --help": [*mlcc, "--help"],
            "mlcc check mlp.mlc": [*mlcc, "check", str(DIGITS / "mlp.mlc")],
            "mlcc compile mlp.mlc": [*mlcc, "compile", str(DIGITS / "mlp.mlc"), "-o", f"{folder}/again.o"],
            "mlcc run mlp.mlc (cold)": [*mlcc, "run", str(DIGITS / "mlp.mlc"), *io],
            "mlcc run mlp.o": [*mlcc, "run", made, *io],
        })  # fmt: skip
    print(f"start-up, whole processes; {machine()}")
    print(f"{'command':28} {'wall ms, median':>16} {'middle half':>18} {'CPU ms':>8} {'MiB':>6}  x numpy")
    base = statistics.median(w for w, _, _ in found["python -c 'import numpy'"])
    for name, runs in found.items():
        wall = [w for w, _, _ in runs]
        cpu, peak = statistics.median(c for _, c, _ in runs), max(m for _, _, m in runs)
        print(f"{name:28} {spread(wall):>35} {cpu:8.1f} {peak:6.0f}  {statistics.median(wall) / base:7.2f}")
