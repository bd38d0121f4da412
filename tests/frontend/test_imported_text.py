"""What imported texts look like: names of values and intermediates, and calls without what goes without saying."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import mlcc
from mlcc.frontend import from_exported_program, from_onnx
from mlcc.frontend.location import STYLE
from mlcc.grammar.printer.printer import script
from mlcc.ir.module import IRModule

ROOT = Path(__file__).parents[2]
TEXTS = [*(ROOT / "tests/passes/cases").glob("*.mlc"), *(ROOT / "tests/grammar/golden").glob("graph*.mlcc.txt")]
CALLS = """
@R.function
def main(x: R.Tensor((4, 6), "float32"), n: R.Prim("int64")):
    with R.dataflow():
        a = R.strided_slice(x, (0, -1), (0, 1), (-2, 6), (1, 2), assume_inbound=True)
        b = R.strided_slice(x, (0,), (n,), (n + 2,))
        c = R.clip(x, -1e-20, R.prim_value(T.float32(127.0)))
        d = R.clip(x, R.prim_value(T.int32(3)), 1e300)
        e = R.arange(0, 7, 1, dtype="int64")
        f = R.matmul(x, R.permute_dims(x), out_dtype="float32")
        k = R.ones((1, 1, 1, 1), "float32")
        g = R.nn.conv2d(R.reshape(x, (1, 4, 6, 1)), k, data_layout="NHWC", kernel_layout="OHWI")
        h = R.sum(x, axis=[], keepdims=True), R.take(x, R.const(1), axis=1, mode="clip")
        R.output(a)
    return a
"""


def names(module: IRModule) -> list[str]:
    """The variables of `main`, in order."""
    return re.findall(r"^ {12}(\w+): ", script(module, style=STYLE), re.MULTILINE)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.stem)
def test_calls_without_defaults_read_back(path: Path) -> None:
    module = mlcc.parse(path.read_text())
    again = mlcc.parse(script(module, style=STYLE))
    assert mlcc.structural_equal(again, module)


def test_calls_leave_out_what_goes_without_saying() -> None:
    module = mlcc.parse(CALLS)
    text = script(module, style=STYLE)
    assert mlcc.structural_equal(mlcc.parse(text), module)
    for line in (
        "R.strided_slice(x, [0, -1], [0, 1], [-2, 6], [1, 2], assume_inbound=True)",
        "R.clip(x, -1e-20, R.prim_value(T.float32(127.0)))",
        'R.arange(0, 7, 1, dtype="int64")',
        "R.permute_dims(x)\n",
        'data_layout="NHWC", kernel_layout="OHWI")\n',
        'R.matmul(x, lv, out_dtype="float32")',
    ):
        assert line in text, text


def test_names_of_a_program(torch: Any) -> None:
    nn = torch.nn

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.act = nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.ReLU(inplace=True)
            self.first, self.second = nn.Linear(4, 20), nn.Linear(20, 20)

        def forward(self, x: Any) -> Any:
            x = self.act(self.norm(self.conv(x)))
            x = self.act(self.first(x.mean((2, 3))))
            low, high = self.second(x).chunk(2, 1)
            return low + high

    module = from_exported_program(torch.export.export(Net().eval(), (torch.randn(2, 3, 4, 4),)))
    assert names(module) == [
        "conv2d_conv2d", "conv2d_reshape", "conv2d", "batch_norm_all", "batch_norm", "relu", "mean", "linear_t",
        "linear_matmul", "linear", "relu_1", "linear_1_t", "linear_1_matmul", "linear_1", "chunk_split", "getitem",
        "getitem_1", "add",
    ]  # fmt: skip
    for noise in ("out_dtype", "axes=None", "prim_value", "groups", "out_layout"):
        assert noise not in script(module, style=STYLE)


def test_names_of_a_graph(onnx: Any) -> None:
    h = onnx.helper
    weight = onnx.numpy_helper.from_array(__import__("numpy").ones((20, 30), "float32"), "fc.weight")
    nodes = [
        h.make_node("Gemm", ["x", "fc.weight"], ["/body/body.0/fc/Gemm_output_0"], "/body/body.0/fc/Gemm", alpha=0.5),
        h.make_node("Relu", ["/body/body.0/fc/Gemm_output_0"], ["y"], "/body/body.0/Relu"),
    ]
    x, y = (h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, c]) for n, c in (("x", 20), ("y", 30)))
    graph = h.make_graph(nodes, "g", [x], [y], [weight])
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)
    module = from_onnx(model)
    assert names(module) == ["body_0_fc_Gemm_matmul", "body_0_fc_Gemm", "y"]
    assert "# body.0.fc\n" in script(module, style=STYLE) and "# body.0\n" in script(module, style=STYLE)
