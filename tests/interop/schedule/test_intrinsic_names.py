"""Tensor intrinsics that every schedule knows by TVM's names are TVM's."""

from __future__ import annotations

import functools
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir.equal import assert_structural_equal  # noqa: E402
from mlcc.ir.node import replace  # noqa: E402
from mlcc.passes.schedule.intrins.dot_products import dots  # noqa: E402
from mlcc.passes.schedule.intrins.m16n8k8 import m16n8k8  # noqa: E402
from mlcc.passes.schedule.intrins.mfma import mfma  # noqa: E402
from mlcc.passes.schedule.intrins.simdgroups import simdgroups  # noqa: E402
from mlcc.passes.schedule.intrins.tensor_cores import catalogue  # noqa: E402
from mlcc.passes.schedule.state import State  # noqa: E402
from mlcc.passes.schedule.tensor_intrin import find_intrin  # noqa: E402

NAMES = [name for name, *_ in (*dots(), *simdgroups(), *m16n8k8(), *mfma())]
NAMES += [name for name in catalogue() if "_8x8x32_" in name]


@functools.cache
def registered() -> None:
    """TVM's own tables, which take a minute to load together."""
    for module in ("arm_cpu", "x86", "hexagon", "rocm", "metal", "cuda"):
        __import__(f"tvm.s_tir.tensor_intrin.{module}")


@pytest.mark.parametrize("name", NAMES)
def test_intrinsics_are_the_same_as_tvms(name: str, all_cases: bool) -> None:
    if not all_cases:
        pytest.skip("TVM takes a minute to load its tables: --all-cases")
    registered()
    theirs: Any = tvm.s_tir.TensorIntrin.get(name)
    mine = find_intrin(State(mlcc.IRModule({})), name)
    for own, their in ((mine.desc, theirs.desc), (mine.impl, theirs.impl)):
        (func,) = mlcc.parse(their.script()).functions.values()
        assert_structural_equal(replace(own, attrs=func.attrs), func)


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_intrinsics_read_back(name: str) -> None:
    made = find_intrin(State(mlcc.IRModule({})), name)
    for func in (made.desc, made.impl):
        for dialect in ("mlcc", "tvm"):
            text = mlcc.script(mlcc.IRModule({"main": func}), dialect=dialect)
            assert mlcc.script(mlcc.parse(text), dialect=dialect) == text
