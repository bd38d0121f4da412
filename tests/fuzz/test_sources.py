"""Mutated sources end with a documented exit code and a diagnostic: no traceback, no signal, no hang."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.worker import reduce_left

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("MLCC_FUZZ_SEED", "1")


def test_mutated_sources_end_in_diagnostics(fuzz_seconds: float) -> None:
    folder = tempfile.mkdtemp(prefix="mlcc-fuzz-")
    command = [sys.executable, "-m", "tests.fuzz.worker", folder, SEED, "0", "10000000", str(fuzz_seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fuzz_seconds * 3 + 120, cwd=ROOT)
    findings = [line for line in done.stdout.splitlines() if not line.startswith("done")]
    if done.returncode:
        left = f"{folder}/case.mlc ({(Path(folder) / 'argv').read_text()})"
        end = f"the process ended with {done.returncode} on {left}:\n{done.stderr[-2000:]}"
        raise AssertionError(f"{end}\n{reduce_left(Path(folder))}")
    assert not findings, f"in {folder}:\n" + "\n".join(findings)
    ran = int(done.stdout.split("done ")[1])
    print(f"\n{ran} mutated sources")
    assert ran > fuzz_seconds  # more than one a second, or the campaign shows little
