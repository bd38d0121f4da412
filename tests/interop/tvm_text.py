"""Comparison with TVM through text: what mlcc prints is read by TVM and compared there."""

from __future__ import annotations

import re
import struct
from typing import Any

import mlcc

_FLOAT = re.compile(r"T\.float(16|32)\((-?[0-9.e+-]+)\)")


def to_tvm(node: Any) -> Any:
    """The node as TVM reads it."""
    import tvm

    text = mlcc.script(node, dialect="tvm").replace("tir.noalias", "tirx.noalias")
    return tvm.script.from_source(_without_imports(text))


def _without_imports(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(("from ", "import ")))


def rounded(node: Any) -> Any:
    """The node as its text says, with every float constant rounded to its dtype, as mlcc keeps them."""
    import tvm

    def nearest(found: re.Match[str]) -> str:
        code = {"16": "<e", "32": "<f"}[found[1]]
        value = struct.unpack(code, struct.pack(code, float(found[2])))[0]
        return f"T.float{found[1]}({value!r})"

    return tvm.script.from_source(_without_imports(_FLOAT.sub(nearest, node.script(show_meta=False))))


def assert_same_in_tvm(mine: Any, theirs: Any) -> None:
    """`mine`, printed and read by TVM, is structurally equal to `theirs`."""
    import tvm

    tvm.ir.assert_structural_equal(rounded(to_tvm(mine)), rounded(theirs))
