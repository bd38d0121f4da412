"""Random modules: the object computes what the interpreter does, at every level."""

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
    exe = mlcc.load(mlcc.build(module, target="llvm", opt_level=level))
    for turn in range(2):
        given = arguments(func, random.Random(seed * 7 + turn))
        want = leaves(run_function(module, "main", given))
        got = leaves(exe["main"](*given))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            loose = a.dtype == np.float16
            np.testing.assert_allclose(
                a.astype(np.float64), b.astype(np.float64), rtol=1e-2 if loose else 1e-5, atol=1e-2 if loose else 1e-5,
                err_msg=f"seed {seed}, -O{level}",
            )  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_random_modules_match_the_interpreter(seed: int) -> None:
    compare(seed, seed % 4)


def test_many_random_modules_match_the_interpreter(all_cases: bool) -> None:
    if not all_cases:
        pytest.skip("--all-cases runs hundreds")
    for seed in range(24, 400):
        compare(seed, seed % 4)
