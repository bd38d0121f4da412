"""Programs of all kinds at -O3; a share of what `make fuzz` runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("MLCC_FUZZ_SEED", "1")
SHARE = 16  # the first cases of the seed, in a normal test run


def test_optimised_programs_keep_results(fuzz_seconds: float) -> None:
    is_campaign = fuzz_seconds > 60
    bounds = ["--seconds", str(fuzz_seconds)] if is_campaign else ["--seconds", "120", "--count", str(SHARE)]
    command = [sys.executable, "-m", "tests.fuzz.optimised", "--seed", SEED, *bounds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fuzz_seconds * 3 + 600, cwd=ROOT)
    print("\n" + done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    cases = int(done.stdout.splitlines()[-1].split()[0])
    assert cases > (fuzz_seconds / 4 if is_campaign else SHARE / 2)  # fewer show little
