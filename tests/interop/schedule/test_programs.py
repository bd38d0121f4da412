"""The generated programs are programs: both sides read the same in them, and they verify."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.verify import verify  # noqa: E402
from tests.interop.harness import from_tvm, to_tvm  # noqa: E402
from tests.interop.schedule.programs import FAMILIES, LARGE, SMALL, program  # noqa: E402


@pytest.mark.parametrize("family", FAMILIES)
def test_both_sides_read_the_same(family: str) -> None:
    for seed in range(3):
        text = program(family, seed, SMALL if seed else LARGE)
        mine = mlcc.parse(text)
        assert not verify(mine), text
        mlcc.assert_structural_equal(mine, from_tvm(to_tvm(text)))
