"""Calls of operators as text: both readers make the same call of it, and both printers' texts read back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

tvm = pytest.importorskip("tvm")

import mlcc  # noqa: E402
from mlcc.ir import relax  # noqa: E402
from tests.interop.harness import back_and_there, rounded, to_tvm  # noqa: E402

CALLS = [line for line in (Path(__file__).parent / "calls.txt").read_text().splitlines() if line[:1] != "#"]


def _tensors(dtype: str, **shapes: tuple[int, ...]) -> dict[str, str]:
    return {name: f'R.Tensor({shape}, dtype="{dtype}")' for name, shape in shapes.items()}


PARAMS = {
    **_tensors("float32", x=(4, 6), y=(4, 6), z=(4, 6), v=(6,), s=(), b=(2, 4, 6), g=(4,), q=(2, 5, 3, 8), p=(3, 1)),
    **_tensors(
        "float32", c=(1, 4, 8, 8), k=(3, 4, 3, 3), w=(1, 4, 8), u=(3, 4, 3), d=(1, 4, 6, 6, 6), e=(3, 4, 3, 3, 3)
    ),
    **_tensors("int64", i=(4, 6), l=(2,), n=(3,), r=(3, 1), rows=(4,), l6=(6,), pairs=(5, 2), rows1=(4, 1)),
    **_tensors("int32", j=(4, 6)),
    **_tensors("int8", a=(4, 6), z0=()),
    **_tensors("bool", m=(4, 6)),
    "t": 'R.Tuple(R.Tensor((4, 6), dtype="float32"), R.Tensor((4, 6), dtype="float32"))',
    "h": "R.Shape([4, 6])",
    "o": "R.Any",
}


def module_text(call: str) -> str:
    """A module whose `main` binds the value of the call."""
    used = [name for name in PARAMS if re.search(rf"(?<![\w.\"]){name}\b", call)]
    return f"""
@I.ir_module
class Module:
    @R.function(pure=False)
    def main({", ".join(f"{name}: {PARAMS[name]}" for name in used)}):
        out = {call}
        return out
"""


@pytest.mark.parametrize("call", CALLS)
def test_both_readers_make_the_same_call(call: str) -> None:
    text = module_text(call)
    theirs = to_tvm(text)
    back_and_there(theirs)
    mine = mlcc.parse(text)
    known = mine["main"].ret_struct_info
    if not isinstance(known, relax.ObjectStructInfo):  # there may be no rule for the result's struct info
        tvm.ir.assert_structural_equal(rounded(theirs), rounded(to_tvm(mlcc.script(mine, dialect="tvm"))))
