"""The programs for hardware are sound: quick ones run by emulation, all are built for a GPU."""

from __future__ import annotations

import numpy as np
import pytest

import mlcc
from tests.hardware.cases import CASES


@pytest.mark.parametrize("name", ["empty", "one"])
def test_quick_cases_agree_when_emulated(name: str) -> None:
    case = CASES[name]
    args = case.arrays()
    want = mlcc.load(mlcc.build(case.module()))["main"](*args)
    got = mlcc.load(mlcc.build(case.module(), target="cuda{arch=sm_80}"), emulate=True)["main"](*args)
    np.testing.assert_allclose(got, want, rtol=case.tolerance, atol=case.tolerance)


@pytest.mark.parametrize("name", ["products", "softmax", "sums"])
def test_other_cases_are_built(name: str) -> None:
    assert ".entry" in mlcc.build(CASES[name].module(), target="cuda{arch=sm_90}").emit("ptx").decode()
