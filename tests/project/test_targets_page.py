"""The targets that the page lists are understood and compile."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import pytest

import mlcc

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "targets.md").read_text()
LISTED = re.findall(r"^\| `(llvm[^`]*)` \|", PAGE, re.M)

ADD = """
@T.prim_func
def main(A: T.Buffer((5,), "float32"), B: T.Buffer((5,), "float32")):
    for i in range(5):
        B[i] = A[i] + T.float32(1)
"""


@pytest.mark.parametrize("target", LISTED)
def test_listed_targets_compile(target: str) -> None:
    if "x86-64" in target and platform.machine() != "x86_64":
        pytest.skip("an x86-64 CPU without its triple, on another architecture")
    assert mlcc.build(mlcc.parse(ADD), target=target).emit("obj").startswith(b"\x7fELF")


def test_page_lists_something() -> None:
    assert len(LISTED) >= 6
