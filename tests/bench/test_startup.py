"""`python -m bench startup`: whole processes of the command line, beside those of another tree."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench import startup
from bench.measure import commands


def test_the_sample_by_a_tree(tmp_path: Path) -> None:
    cases = startup.digits("before: ", [sys.executable, "-m", "mlcc"], startup.ROOT, str(tmp_path))
    assert [name.startswith("before: mlcc run digits/") for name in cases] == [True] * 3
    found = commands(cases, rounds=1)
    assert all(wall > 0 and cpu > 0 and peak > 1 for runs in found.values() for wall, cpu, peak in runs)
    assert (tmp_path / "digits.npz").exists()


def test_a_command_that_fails_is_no_sample() -> None:
    with pytest.raises(RuntimeError, match="nothing"):
        commands({"nothing": ["false"]}, rounds=1)
