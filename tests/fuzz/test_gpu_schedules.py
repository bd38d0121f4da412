"""Random schedules for GPUs keep the numbers; a share of what `make fuzz` runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
SEED = os.environ.get("MLCC_FUZZ_SEED", "1")
SHARE = 20  # the first scripts of the seed, in a normal test run


def test_random_schedules_for_gpus_keep_results(fuzz_seconds: float) -> None:
    is_campaign = fuzz_seconds > 60
    bounds = ["--seconds", str(fuzz_seconds)] if is_campaign else ["--seconds", "120", "--count", str(SHARE)]
    folder = tempfile.mkdtemp(prefix="mlcc-fuzz-")
    command = [sys.executable, "-m", "tests.fuzz.gpu_schedules", "--seed", SEED, "--folder", folder, *bounds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fuzz_seconds * 3 + 600, cwd=ROOT)
    print("\n" + done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    equal = sum(int(n) for n in re.findall(r"^ *(\d+) equal, by threads$", done.stdout, re.MULTILINE))
    assert equal > (fuzz_seconds / 8 if is_campaign else SHARE / 5)  # fewer show little
