"""Between mlcc and the real TVM: texts both ways, and the comparisons that both sides' equality makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm.script import from_source

import mlcc
from mlcc.ir.equal import assert_structural_equal
from mlcc.ir.module import IRModule


def to_tvm(text: str) -> tvm.IRModule:
    """TVM's reading of a text; it checks what it reads."""
    made = from_source(text)
    return made if isinstance(made, tvm.IRModule) else tvm.IRModule({made.attrs["global_symbol"]: made})


def from_tvm(mod: tvm.IRModule) -> IRModule:
    """mlcc's reading of TVM's text. What TVM keeps in its metadata section is handed over as arrays."""
    return mlcc.parse(mod.script(), data=metadata(mod))


def metadata(mod: tvm.IRModule) -> dict[str, np.ndarray]:
    """The constants that TVM's text refers to as `metadata["ir.GenericConst"][i]`, by that name."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if (
            isinstance(node, tvm.relax.Constant)
            and node.data.numpy().size > 1
            and not any(node.same_as(n) for n in found)
        ):
            found.append(node)

    for _, func in mod.functions_items():
        if isinstance(func, tvm.relax.Function):
            tvm.relax.analysis.post_order_visit(func, visit)
    return {f"ir.GenericConst[{i}]": node.data.numpy() for i, node in enumerate(found)}


def there_and_back(mod: IRModule) -> None:
    """mlcc -> TVM -> mlcc gives the module again."""
    theirs = to_tvm(mlcc.script(mod, dialect="tvm"))
    assert_structural_equal(mod, from_tvm(theirs))


def back_and_there(theirs: tvm.IRModule) -> IRModule:
    """TVM -> mlcc -> TVM gives the module again, as TVM judges it; and mlcc's own text reads back."""
    mine = from_tvm(theirs)
    text = mlcc.script(mine)
    again = mlcc.parse(text)
    assert_structural_equal(mine, again)
    assert mlcc.script(again) == text
    tvm.ir.assert_structural_equal(theirs, to_tvm(mlcc.script(mine, dialect="tvm")))
    return mine
