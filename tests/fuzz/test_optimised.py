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
    environment = os.environ | {"MLCC_REDUCE": os.environ.get("MLCC_FUZZ_REDUCE", "10")}
    command = [sys.executable, "-m", "tests.fuzz.optimised", "--seed", SEED, *bounds]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=fuzz_seconds * 3 + 600, cwd=ROOT, env=environment
    )
    print("\n" + done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-2000:]}"
    cases = int(done.stdout.splitlines()[-1].split()[0])
    assert cases > (fuzz_seconds / 4 if is_campaign else SHARE / 2)  # fewer show little


PLANTED = """
from mlcc.ir import tir
from mlcc.targets.llvm.codegen import arith, emitter
from tests.fuzz.optimised import reduce_case

emitter._EXPRESSIONS[tir.Add] = lambda e, n: arith.sub(e, n) if n.dtype.is_float else arith.add(e, n)
print(reduce_case("product 100004 native threads=1: run 0: 1.0 for 2.0"))
"""


def test_what_a_campaign_finds_is_reduced(tmp_path: Path) -> None:
    """Sums of floats are compiled as differences."""
    environment = os.environ | {"MLCC_REDUCE": "20", "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PLANTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    path = Path(done.stdout.splitlines()[-1])
    assert path.parent == tmp_path, done.stdout + done.stderr
    lines = path.read_text().splitlines()
    assert lines[0].startswith(f"# mlcc bisect {path} -t ")
    assert lines[1] == "# differs"
    assert len(lines) < 40
