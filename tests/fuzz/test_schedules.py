"""Random schedules keep the numbers; a share of what `make fuzz` runs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.reduction import note
from tests.fuzz.schedules import left_behind

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("MLCC_FUZZ_SEED", "1")
SHARE = 30  # the first scripts of the seed, in a normal test run; a campaign makes as many as there is time for


def test_random_schedules_keep_results(fuzz_seconds: float) -> None:
    is_campaign = fuzz_seconds > 60
    bounds = ["--seconds", str(fuzz_seconds)] if is_campaign else ["--seconds", "120", "--scripts", str(SHARE)]
    folder = tempfile.mkdtemp(prefix="mlcc-fuzz-")
    command = [sys.executable, "-m", "tests.fuzz.schedules", "--folder", folder, "--seed", SEED, *bounds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fuzz_seconds * 3 + 600, cwd=ROOT)
    print("\n" + done.stdout)
    if done.returncode not in (0, 1):
        end = f"the process ended with {done.returncode} on {folder}/case.mlc and case.mls:\n{done.stderr[-2000:]}"
        raise AssertionError(f"{end}\n{note(*left_behind(Path(folder)))}")
    assert done.returncode == 0, f"in {folder}:\n{done.stdout}\n{done.stderr[-2000:]}"
    scripts = int(next(line for line in done.stdout.splitlines() if " scripts of " in line).split()[0])
    assert scripts > (fuzz_seconds / 4 if is_campaign else SHARE / 4)  # fewer show little
