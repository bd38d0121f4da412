"""Networks of quantize and dequantize pairs: products of integers, within a step of what the frameworks compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_exported_program, from_onnx
from mlcc.ir.module import IRModule
from mlcc.relax.queries import all_bindings

RANDOM = np.random.default_rng(0)


def operators(module: IRModule) -> list[str]:
    """The operators of `main` after the graph passes of the default level, in order."""
    passes = (
        "normalize,canonicalize,integer-products,fold-batch-norm{strict=true},fold-constants{created=65536},dead-code"
    )
    made = mlcc.run_passes(module, passes)
    values = (binding.value for binding, _ in all_bindings(made["main"].body))  # type: ignore[attr-defined]
    return [value.op.name.removeprefix("relax.") for value in values if hasattr(value, "op")]


def products(module: IRModule) -> list[str]:
    """The dtypes of the left operands of products and convolutions."""
    made = mlcc.run_passes(module, "normalize,canonicalize,integer-products,dead-code")
    values = (binding.value for binding, _ in all_bindings(made["main"].body))  # type: ignore[attr-defined]
    wanted = ("relax.matmul", "relax.nn.conv2d")
    return [str(v.args[0].struct_info.dtype) for v in values if hasattr(v, "op") and v.op.name in wanted]


class Graph:
    """An ONNX graph in the making."""

    def __init__(self, onnx: Any) -> None:
        self.onnx, self.nodes, self.weights = onnx, list[Any](), list[Any]()

    def constant(self, array: Any) -> str:
        self.weights.append(self.onnx.numpy_helper.from_array(np.asarray(array), f"c{len(self.weights)}"))
        return str(self.weights[-1].name)

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        self.nodes.append(self.onnx.helper.make_node(operator, inputs, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def pair(self, x: str, scale: float, zero: int, dtype: str) -> str:
        scales, point = self.constant(np.float32(scale)), self.constant(np.array(zero, dtype))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, scales, point), scales, point)

    def weight(self, shape: tuple[int, ...], dtype: str, zero: int, channels: bool, axis: int) -> str:
        low, high = (-100, 100) if dtype == "int8" else (zero - 100, zero + 100)
        count = shape[axis] if channels else ()
        scale = RANDOM.uniform(0.005, 0.02, count).astype("float32")
        values = self.constant(RANDOM.integers(low, high, shape).astype(dtype))
        point = self.constant(np.full(count, zero, dtype))
        return self.node("DequantizeLinear", values, self.constant(scale), point, axis=axis)

    def model(self, shape: tuple[int, ...], result: str, rank: int) -> bytes:
        h, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        x, y = h.make_tensor_value_info("x", kind, shape), h.make_tensor_value_info(result, kind, [None] * rank)
        graph = h.make_graph(self.nodes, "g", [x], [y], self.weights)
        made = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
        return bytes(made.SerializeToString())


def check(onnxruntime: Any, model: bytes, x: np.ndarray, step: float) -> IRModule:
    """Compare with onnxruntime: equal but for single elements that are a quantization step apart."""
    module = from_onnx(model)
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    found = np.asarray(mlcc.load(mlcc.build(module, target="llvm{cpu=native}"))["main"](x))
    apart = np.abs(found - expected)
    assert apart.max() <= step * 1.001 and (apart > step / 2).mean() < 0.1
    return module


@pytest.mark.parametrize(("data", "zero"), [("uint8", 0), ("uint8", 7), ("int8", 0), ("int8", -5)])
@pytest.mark.parametrize(
    ("weight", "point", "channels"), [("int8", 0, False), ("int8", 0, True), ("uint8", 128, False)]
)
def test_dense_layers_become_integer_products(
    onnx: Any, onnxruntime: Any, data: str, zero: int, weight: str, point: int, channels: bool
) -> None:
    g = Graph(onnx)
    hidden = g.node("MatMul", g.pair("x", 0.03, zero, data), g.weight((37, 50), weight, point, channels, 1))
    hidden = g.node("Relu", g.node("Add", hidden, g.constant(RANDOM.standard_normal(50).astype("float32"))))
    last = g.node("MatMul", g.pair(hidden, 0.05, zero, data), g.weight((50, 20), weight, point, channels, 1))
    model = g.model((5, 37), g.pair(last, 0.1, zero, data), 2)
    module = check(onnxruntime, model, RANDOM.standard_normal((5, 37)).astype("float32"), 0.1)
    assert products(module) == [data, data]


@pytest.mark.parametrize(("data", "zero"), [("uint8", 0), ("uint8", 9), ("int8", -3)])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_convolutions_become_integer_products(onnx: Any, onnxruntime: Any, data: str, zero: int, group: int) -> None:
    g = Graph(onnx)
    image = g.node("Conv", g.pair("x", 0.03, zero, data), g.weight((8, 8 // group, 3, 3), "int8", 0, True, 0),
                   pads=[1, 0, 2, 1], strides=[1, 2], group=group)  # fmt: skip
    image = g.pair(g.node("Relu", image), 0.05, zero, data)
    pooled = g.node("GlobalAveragePool", g.node("Conv", image, g.weight((16, 8, 1, 1), "int8", 0, False, 0)))
    dense = g.node("Gemm", g.pair(g.node("Flatten", pooled), 0.05, zero, data), g.weight((10, 16), "int8", 0, True, 0),
                   transB=1)  # fmt: skip
    model = g.model((2, 8, 9, 12), g.pair(dense, 0.1, zero, data), 2)
    module = check(onnxruntime, model, RANDOM.standard_normal((2, 8, 9, 12)).astype("float32"), 0.1)
    assert products(module) == [data] * 3


@pytest.mark.parametrize(("height", "width", "zero"), [(37, 31, 7), (16, 17, 0), (14, 14, 255)])
def test_residual_networks_stay_in_bytes_between_convolutions(
    onnx: Any, onnxruntime: Any, height: int, width: int, zero: int
) -> None:
    """A first convolution of 3 channels with a stride, then blocks with a sum; images keep the layout chosen first."""
    g = Graph(onnx)

    def conv(x: str, shape: tuple[int, ...], **attributes: Any) -> str:
        bias = g.constant(RANDOM.standard_normal(shape[0]).astype("float32"))
        return g.node("Conv", x, g.weight(shape, "int8", 0, True, 0), bias, **attributes)

    image = conv(g.pair("x", 0.031, zero, "uint8"), (48, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2])
    image = g.pair(g.node("Relu", image), 0.087, 0, "uint8")
    image = g.node("MaxPool", image, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    image = g.pair(image, 0.087, 0, "uint8")
    for _ in range(2):
        inner = g.pair(g.node("Relu", conv(image, (48, 48, 3, 3), pads=[1, 1, 1, 1])), 0.213, 0, "uint8")
        outer = g.pair(conv(inner, (48, 48, 3, 3), pads=[1, 1, 1, 1]), 0.317, 128, "uint8")
        image = g.pair(g.node("Relu", g.node("Add", outer, image)), 0.229, 0, "uint8")
    model = g.model((1, 3, height, width), g.node("GlobalAveragePool", image), 4)
    module = from_onnx(model)
    x = RANDOM.standard_normal((1, 3, height, width)).astype("float32")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # in float32
    (expected,) = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    for target in ("llvm{cpu=native}", "llvm{cpu=x86-64-v3}"):
        found = np.asarray(mlcc.load(mlcc.build(module, target=target))["main"](x))
        np.testing.assert_allclose(found, expected, atol=0.03)  # a step of few elements, on average
    scheduled = mlcc.run_passes(module, "O2", target="llvm{cpu=znver4}")
    kernels = [name for name in scheduled.functions if name != "main"]
    assert all("quantize" in name for name in kernels if "conv2d" in name)
    assert [name for name in kernels if "transpose" in name] == ["transpose"]  # of the result


def test_unsuitable_operators_stay_in_floats(onnx: Any) -> None:
    g = Graph(onnx)
    wide = g.node("MatMul", g.pair("x", 0.03, 3, "uint8"), g.weight((70000, 3), "int8", 0, False, 1))  # int32 overflows
    assert products(from_onnx(g.model((2, 70000), wide, 2))) == ["float32"]
    g = Graph(onnx)
    rows = g.node("MatMul", g.pair("x", 0.03, 3, "uint8"), g.weight((30, 4), "int8", 0, True, 0))  # scales of terms
    assert products(from_onnx(g.model((2, 30), rows, 2))) == ["float32"]
    g = Graph(onnx)
    uneven = g.weight((30, 4), "uint8", 20, False, 1)
    g.weights[-2] = onnx.numpy_helper.from_array(np.uint8(200), g.weights[-2].name)  # -200 is no int8
    low = g.node("MatMul", g.pair("x", 0.03, 3, "uint8"), uneven)
    assert products(from_onnx(g.model((2, 30), low, 2))) == ["float32"]


@pytest.mark.parametrize("channels", [False, True])
def test_pt2e_programs_become_integer_products(torch: Any, channels: bool) -> None:
    import torch.ao.quantization.fx._decomposed

    ops = torch.ops.quantized_decomposed
    weight = torch.from_numpy(RANDOM.integers(-100, 100, (20, 37)).astype("int8"))
    scales, points = torch.rand(20) * 0.01 + 0.01, torch.zeros(20, dtype=torch.int64)

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, value in (("weight", weight), ("scales", scales), ("points", points)):
                self.register_buffer(name, value)

        def forward(self, x: Any) -> Any:
            q = ops.quantize_per_tensor(x, 0.03, 4, -128, 127, torch.int8)
            x = ops.dequantize_per_tensor(q, 0.03, 4, -128, 127, torch.int8)
            given = self.weight, self.scales, self.points, 0, -127, 127, torch.int8
            w = (
                ops.dequantize_per_channel(*given)
                if channels
                else ops.dequantize_per_tensor(self.weight, 0.01, 0, -127, 127, torch.int8)
            )
            return torch.nn.functional.linear(x, w)

    x = torch.randn(6, 37)
    module = from_exported_program(torch.export.export(Net(), (x,)), unwrap_unit_return_tuple=True)
    assert products(module) == ["int8"] and operators(module).count("permute_dims") == 0
    found = mlcc.load(mlcc.build(module, target="llvm{cpu=native}"))["main"](x)
    np.testing.assert_allclose(np.asarray(found), Net()(x).numpy(), rtol=1e-5, atol=1e-4)
