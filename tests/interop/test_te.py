"""The same tensor expressions give structurally equal functions here and in TVM."""

from __future__ import annotations

from typing import Any

import pytest

from mlcc import te
from tests.interop.te_programs import PROGRAMS, Program
from tests.interop.tvm_text import assert_same_in_tvm

tvm = pytest.importorskip("tvm")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("index_dtype", [None, "int64"])
def test_create_prim_func_agrees(program: Program, index_dtype: str | None) -> None:
    if index_dtype is not None and program.__name__ in ("range_from_one", "triangle"):
        pytest.skip("TVM turns an extent into an end when it widens the range of an axis that does not begin at 0")
    theirs: Any = tvm.te.create_prim_func(program(tvm.te), index_dtype)
    mine = te.create_prim_func(program(te), index_dtype)
    assert_same_in_tvm(mine, theirs)
