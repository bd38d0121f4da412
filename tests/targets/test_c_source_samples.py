"""The samples as C source: compiled without a warning, with the numbers of the object."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc import driver
from mlcc.array_files import ArrayFile
from mlcc.runtime.native import NativeExecutable
from tests.targets.c_source import FLAGS, compilers, load, source

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TEXTS = ("digits/mlp", "lenet/lenet", "transformer/encoder", "decoder/decoder", "matmul/matmul", "writer/writer")


def arguments(exe: NativeExecutable, name: str, extent: int) -> list[Any]:
    """Random arrays for a function, every symbol being `extent`."""
    rng = np.random.default_rng(extent)
    made: list[Any] = []
    for leaf in (leaf for p in exe.functions[name].executor.signature.spec.params for leaf in p.leaves()):  # type: ignore[attr-defined]
        shape = tuple(extent if isinstance(dim, str) else int(dim) for dim in leaf.dims)
        if leaf.kind != "tensor":
            made.append(1)
        elif "float" in leaf.dtype:
            made.append((rng.standard_normal(shape) * 0.3).astype(leaf.dtype))
        else:
            made.append(rng.integers(0, 2, shape).astype(leaf.dtype))
    return made


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("name", TEXTS)
def test_a_sample_has_the_numbers_of_its_object(name: str, level: int) -> None:
    module = driver.parse_file(str(SAMPLES / f"{name}.mlc"))
    exe = load(source(module, level), FLAGS, compilers()[level % len(compilers())])
    judge = mlcc.load(mlcc.build(module, "llvm{num-cores=1}", level))
    for entry in judge.functions:
        args = arguments(exe, entry, 5)
        if judge.functions[entry].executor.signature.spec.kind == "prim":  # type: ignore[attr-defined]
            given, expected = [a.copy() for a in args], args
            exe[entry](*given)
            judge[entry](*expected)
        else:
            given, expected = ([*mlcc_results(e[entry](*args))] for e in (exe, judge))
        for a, b in zip(given, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def mlcc_results(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def test_the_digits_are_classified_as_by_the_object() -> None:
    module = driver.parse_file(str(SAMPLES / "digits" / "mlp.mlc"))
    images = dict(ArrayFile(str(SAMPLES / "digits" / "test.npz")))["x"]
    labels = dict(ArrayFile(str(SAMPLES / "digits" / "labels.npz")))
    scores = load(source(module))["main"](images)
    np.testing.assert_allclose(scores, mlcc.load(mlcc.build(module))["main"](images), rtol=1e-4, atol=1e-4)
    (truth,) = labels.values()
    assert (scores.argmax(1) == truth).mean() > 0.95
