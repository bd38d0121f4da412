"""Between mlcc and the real TVM: texts both ways, and the comparisons that both sides' equality makes."""

from __future__ import annotations

import json
import re
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
        is_tensor = isinstance(node, tvm.ir.GenericConst) and isinstance(node.value, tvm.runtime.Tensor)
        if is_tensor and node.value.shape and not any(node.same_as(n) for n in found):
            found.append(node)

    for name in re.findall(r"^    def (\w+)\(", mod.script(), re.M):
        if isinstance(mod[name], tvm.relax.Function):
            tvm.relax.analysis.post_order_visit(mod[name], visit)
    return {f"ir.GenericConst[{i}]": node.value.numpy() for i, node in enumerate(found)}


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
    tvm.ir.assert_structural_equal(rounded(theirs), rounded(to_tvm(mlcc.script(mine, dialect="tvm"))))
    return mine


def rounded(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with float32 constants rounded to float32: TVM keeps them as the float64 that they came from."""
    graph = json.loads(tvm.ir.save_json(mod))
    nodes = graph["nodes"]
    for node in nodes:
        if node["type"] == "ir.FloatImm" and nodes[node["data"]["ty"]]["data"]["dtype"] == "float32":
            node["data"]["value"] = float(np.float32(node["data"]["value"]))
    return tvm.ir.load_json(json.dumps(graph))
