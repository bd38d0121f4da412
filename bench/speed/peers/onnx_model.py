"""A graph as an ONNX model, weights inside, for the peers that read those."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.speed.graph import Node
from bench.speed.peers.base import Work

SAME_NAME = {"matmul": "MatMul", "add": "Add", "multiply": "Mul", "nn.relu": "Relu", "nn.gelu": "Gelu"}


def onnx_model(work: Work) -> bytes:
    """The model, serialized."""
    graph = work.graph
    constants = [numpy_helper.from_array(value, name) for name, value in work.weights.items()]
    nodes = [_node(n, constants) for n in graph.nodes]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in graph.params.items()
        if name not in work.weights
    ]
    shape = next(n.shape for n in graph.nodes if n.out == graph.result)
    outputs = [helper.make_tensor_value_info(graph.result, TensorProto.FLOAT, shape)]
    graph_proto = helper.make_graph(nodes, "main", inputs, outputs, constants)
    model = helper.make_model(graph_proto, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _node(node: Node, constants: list[Any]) -> Any:
    attrs: Any = node.attrs
    args = [a for a in node.args if isinstance(a, str)]

    def constant(values: Any, dtype: type[np.generic] = np.int64) -> None:
        name = f"{node.out}.{len(args)}"
        constants.append(numpy_helper.from_array(np.array(values, dtype), name))
        args.append(name)

    def make(op: str, **more: Any) -> Any:
        return helper.make_node(op, args, [node.out], **more)

    match node.op:
        case "nn.softmax":
            return make("Softmax", axis=attrs["axis"])
        case "nn.layer_norm":
            return make("LayerNormalization", axis=-1, epsilon=attrs["epsilon"])
        case "nn.conv2d":
            return make("Conv", strides=attrs["strides"], pads=attrs["padding"], group=attrs["groups"])
        case "nn.max_pool2d":
            return make("MaxPool", kernel_shape=attrs["pool_size"], strides=attrs["strides"], pads=attrs["padding"])
        case "clip":
            for bound in node.args[1:]:
                constant(bound, np.float32)
            return make("Clip")
        case "mean":
            constant(attrs["axis"])
            return make("ReduceMean", keepdims=int(attrs["keepdims"]))
        case "reshape":
            constant(node.args[1])
            return make("Reshape")
        case "permute_dims":
            return make("Transpose", **({} if attrs["axes"] is None else {"perm": attrs["axes"]}))
    return make(SAME_NAME[node.op])
