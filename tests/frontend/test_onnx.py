"""ONNX models: imported, built, compared with the reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontend.onnx_check import check


def test_a_bias_and_relu_of_symbolic_length(onnx: Any) -> None:
    h = onnx.helper
    bias = onnx.numpy_helper.from_array(np.array([1, -1, 0.5], "float32"), "bias")
    nodes = [h.make_node("Add", ["x", "bias"], ["sum"]), h.make_node("Relu", ["sum"], ["y"])]
    x = h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3])
    y = h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 3])
    model = h.make_model(h.make_graph(nodes, "g", [x], [y], [bias]), opset_imports=[h.make_opsetid("", 18)])
    for n in (1, 5):
        check(model, np.random.default_rng(n).standard_normal((n, 3), "float32"))
