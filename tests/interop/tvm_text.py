"""Comparison with TVM through text: what mlcc prints is read by TVM and compared there."""

from __future__ import annotations

import re
from typing import Any

import mlcc
from mlcc.ir.construct import round_float
from mlcc.ir.dtypes import DType

_FLOAT = re.compile(r"T\.(b?float16|float32)\((-?[0-9.e+-]+)\)")


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
        return f"T.{found[1]}({round_float(float(found[2]), DType.of(found[1]))!r})"

    return tvm.script.from_source(_without_imports(_FLOAT.sub(nearest, node.script(show_meta=False))))


def assert_same_in_tvm(mine: Any, theirs: Any) -> None:
    """`mine`, printed and read by TVM, is structurally equal to `theirs`."""
    import tvm

    tvm.ir.assert_structural_equal(rounded(to_tvm(mine)), rounded(theirs))
