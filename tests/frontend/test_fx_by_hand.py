"""A translator of fx graphs that a user writes with BlockBuilder, as courses on TVM do."""

from __future__ import annotations

from typing import Any

import numpy as np

import mlcc
from mlcc import relax, te
from tests.frontend.aten_check import compare


def parameter(tensor: Any) -> Any:
    return relax.const(tensor.data.cpu().numpy(), relax.TensorStructInfo(tensor.data.shape, "float32"))


def attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def te_matmul(a: Any, b: Any) -> Any:
    k = te.reduce_axis((0, a.shape[1]), name="k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="matmul")


def te_relu(a: Any) -> Any:
    return te.compute(a.shape, lambda *i: te.max(a(*i), 0), name="relu")


def translate(graph_module: Any, shapes: list[Any], functions: dict[Any, Any], modules: dict[Any, Any]) -> Any:
    values: dict[Any, Any] = {}
    named = dict(graph_module.named_modules())
    bb = relax.BlockBuilder()
    inputs: list[Any] = []
    with bb.function("main"):
        with bb.dataflow():
            for node in graph_module.graph.nodes:
                if node.op == "placeholder":
                    values[node] = relax.Var(node.target, relax.TensorStructInfo(shapes[len(inputs)], "float32"))
                    inputs.append(values[node])
                elif node.op == "get_attr":
                    values[node] = parameter(attribute(graph_module, node.target))
                elif node.op == "call_function":
                    values[node] = functions[node.target](bb, values, node)
                elif node.op == "call_module":
                    module = named[node.target]
                    values[node] = modules[type(module)](bb, values, node, module)
                else:
                    output = bb.emit_output(values[node.args[0]])
        bb.emit_func_output(output, inputs)
    return bb.get()


def test_functions_as_tensor_expressions_and_operators(torch: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(16, 8))
            self.last = torch.nn.Linear(8, 4)
            self.relu = torch.nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.relu(self.last(torch.relu(torch.matmul(x, self.weight))))

    def linear(bb: Any, values: Any, node: Any, module: Any) -> Any:
        weight, bias = parameter(module.weight), parameter(module.bias)
        return bb.emit(relax.op.linear(values[node.args[0]], weight, bias))

    model = Model().eval()
    module = translate(
        torch.fx.symbolic_trace(model),
        [(3, 16)],
        functions={
            torch.matmul: lambda bb, values, node: bb.emit_te(te_matmul, *(values[a] for a in node.args)),
            torch.relu: lambda bb, values, node: bb.emit_te(te_relu, values[node.args[0]]),
        },
        modules={
            torch.nn.Linear: linear,
            torch.nn.ReLU: lambda bb, values, node, _: bb.emit(relax.op.nn.relu(values[node.args[0]])),
        },
    )
    x = torch.randn(3, 16)
    found = mlcc.load(mlcc.build(mlcc.parse(mlcc.script(module)), opt_level=1))["main"](x)
    compare(np.asarray(found), model(x).detach().numpy())
