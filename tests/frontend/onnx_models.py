"""Small ONNX models for tests, in few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

FLOAT = "float32"


def model(
    nodes: Sequence[Any], inputs: Mapping[str, tuple[str, Sequence[Any] | None]], outputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None, opset: int = 18, **more: Any,
) -> Any:  # fmt: skip
    """A model: inputs are name -> (dtype, shape), outputs name -> (dtype, shape), constants arrays."""
    from onnx import helper, numpy_helper

    made = helper.make_graph(
        list(nodes),
        "g",
        [value(name, *kind) for name, kind in inputs.items()],
        [value(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    return helper.make_model(made, opset_imports=opsets, ir_version=10, **more)


def value(name: str, dtype: str, shape: Sequence[Any] | None) -> Any:
    """A tensor that a graph takes or gives."""
    from onnx import helper

    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attributes: Any) -> Any:
    """A node."""
    from onnx import helper

    return helper.make_node(operator, list(inputs), list(outputs), **attributes)
