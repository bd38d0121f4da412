"""Sorts, scans and sets of rows whose length is known at a launch: many threads under emulation, with all checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.targets.cuda.artifact import CudaArtifact

TEXT = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), k: R.Tensor(("n", "m"), "int32")):
    with R.dataflow():
        a = R.argsort(x, axis=-1, descending=True)
        b = R.sort(x, axis=0)
        c = R.topk(x, k=3, axis=1)
        d = R.median(x, axis=[1])
        e = R.cumsum(k, axis=1)
        f = R.cumsum(k, exclusive=True)
        h = R.median(x)
        out = (a, b, c[0], c[1], d[0], d[1], e, f, h)
        R.output(out)
    return out

@R.function
def sets(k: R.Tensor(("n", "m"), "int32")):
    a = R.unique(k, return_inverse=True, return_counts=True)
    return a
"""


@pytest.fixture(scope="module")
def artifact() -> CudaArtifact:
    made = mlcc.build(mlcc.parse(TEXT), "cuda{arch=sm_80}")
    assert isinstance(made, CudaArtifact)
    return made


@pytest.fixture(scope="module")
def both(artifact: CudaArtifact) -> tuple[Any, Any]:
    return mlcc.load(artifact, emulate=True), mlcc.load(mlcc.build(mlcc.parse(TEXT)))


@pytest.mark.parametrize("shape", [(3, 700), (40, 33), (70, 2), (1, 1), (2, 0), (0, 3), (1, 2100)])
def test_rows_of_any_length_match_the_cpu(both: tuple[Any, Any], shape: tuple[int, int]) -> None:
    """Ties, NaN and both zeros included: places are those of the CPU's stable orders."""
    rng = np.random.default_rng(sum(shape))
    x = rng.integers(-4, 4, shape).astype("float32")
    x[rng.random(shape) < 0.1] = np.nan
    x[rng.random(shape) < 0.1] = -0.0
    k = rng.integers(-9, 9, shape).astype("int32")
    for name, args in (("main", (x, k)), ("sets", (k,))):
        got, want = (exe[name](*args) for exe in both)
        for number, (a, b) in enumerate(zip(got, want, strict=True)):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} {number}")
            assert a.dtype == b.dtype and (a.dtype.kind != "f" or np.array_equal(np.signbit(a), np.signbit(b)))


def test_long_rows_are_many_threads_work(artifact: CudaArtifact) -> None:
    """No kernel of the sorts and scans goes through a whole row by one thread."""
    plan = artifact.plan["programs"]
    for name in ("argsort", "cumsum"):
        launches = [s for s in walk(plan[name]["steps"]) if s["do"] == "launch"]
        assert len(launches) >= 4 and all(s["block"] == [256, 1, 1] and s["grid"][0] != 1 for s in launches)


def walk(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    nested = [s.get(part, []) for s in steps for part in ("body", "then", "else")]
    return steps + [s for part in nested for s in walk(part)]
