"""Random kernels with barriers, sound and with planted faults; a share of what `make fuzz` runs."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.gpu_kernels import main

SEED = os.environ.get("MLCC_FUZZ_SEED", "1")
SHARE = 3  # the first kernels of the seed, in a normal test run


def test_faults_are_found_in_random_kernels(fuzz_seconds: float, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = ["--seconds", str(fuzz_seconds)] if fuzz_seconds > 60 else ["--seconds", "120", "--count", str(SHARE)]
    wrong = main(["--seed", SEED, *bounds])
    said = capsys.readouterr().out
    with capsys.disabled():
        print("\n" + said) if fuzz_seconds > 60 else None
    assert not wrong, said
    assert "a fault, reported" in said
