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


def test_weights_keep_their_names(onnx: Any) -> None:
    h = onnx.helper
    random = np.random.default_rng(0)
    weight = onnx.numpy_helper.from_array(random.standard_normal((5, 8)).astype("float32"), "fc.weight")
    nodes = [h.make_node("Gemm", ["x", "fc.weight"], ["y"], transB=1)]
    x = h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 8])
    y = h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 5])
    model = h.make_model(h.make_graph(nodes, "g", [x], [y], [weight]), opset_imports=[h.make_opsetid("", 18)])
    module = check(model, random.standard_normal((2, 8)).astype("float32"))
    assert 'R.permute_dims(R.data("fc.weight"' in module.script()
