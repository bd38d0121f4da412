"""Random graphs: the launch plan, carried out over emulation, computes what the interpreter does."""

from __future__ import annotations

import random

import numpy as np
import pytest

import mlcc
from mlcc.interp import run_function
from mlcc.ir import relax
from tests.generate import graphs
from tests.passes.arguments import arguments, leaves


def compare(seed: int, level: int) -> None:
    module = graphs.module(seed, graphs.Options(packed=False))
    func = module["main"]
    assert isinstance(func, relax.Function)
    exe = mlcc.load(mlcc.build(module, target="cuda{arch=sm_80}", opt_level=level), emulate=True, check=False)
    for turn in range(3):  # the last ones may take the short way
        given = arguments(func, random.Random(seed * 7 + turn // 2))
        want = leaves(run_function(module, "main", given))
        got = leaves(exe["main"](*given))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            loose = 1e-2 if a.dtype == np.float16 else 1e-5
            np.testing.assert_allclose(
                a.astype(np.float64), b.astype(np.float64), rtol=loose, atol=loose, err_msg=f"seed {seed}, -O{level}"
            )


@pytest.mark.parametrize("seed", range(10))
def test_random_modules_match_the_interpreter(seed: int) -> None:
    compare(seed, seed % 2)


def test_many_random_modules_match_the_interpreter(all_cases: bool) -> None:
    if not all_cases:
        pytest.skip("--all-cases runs hundreds")
    for seed in range(10, 300):
        compare(seed, seed % 4)
