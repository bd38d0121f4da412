"""Nothing that TensorIR can say ends LLVM: each is compiled or refused, in a child process to be sure."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("arch", ["sm_75", "sm_120"])
def test_every_operation_compiles_or_is_refused(arch: str) -> None:
    """A share of all; `python -m tests.gpu.everything ARCH 1 0` takes minutes for them."""
    share = 149
    start = random.Random(arch).randrange(share)
    command = [sys.executable, "-m", "tests.gpu.everything", arch, str(share), str(start)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, (lines[-1:], done.stderr[-500:])
    assert not [line for line in lines if not line.endswith((" taken", " refused", " assembled"))]
    taken = sum(line.endswith(" taken") for line in lines)
    assert taken > 30 and len(lines) - taken > 30
