"""MatMulNBits and blocks of DequantizeLinear: the form that `quantize-weights` makes, decoded inside the product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.frontend import from_onnx
from mlcc.ir import relax
from mlcc.ir.node import find
from mlcc.relax.queries import is_call


def test_both_operators_become_one_form(onnx: Any) -> None:
    from onnx import TensorProto, helper, numpy_helper

    rng, inner, columns = np.random.default_rng(0), 256, 512
    packed = rng.integers(0, 256, (columns, inner // 32, 16)).astype("uint8")
    scales = rng.random(columns * inner // 32).astype("float32")
    weights = [numpy_helper.from_array(a, n) for a, n in ((packed, "w"), (scales, "s"))]
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=inner, N=columns, bits=4, block_size=32
    )
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", e]) for n, e in (("x", inner), ("y", columns)))
    graph = helper.make_graph([node], "g", [x], [y], weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    module = from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    calls = list(find(module["main"], relax.Call))
    assert [c.op.name for c in calls] == ["relax.unpack_bits", "relax.dequantize", "relax.matmul"]
    assert {c.data.key for c in find(module["main"], relax.Constant) if c.data.key} == {"w.int", "s.scale"}
    assert is_call(calls[0], "relax.unpack_bits")
    kernels = mlcc.run_passes(module, "O2", target="llvm{cpu=znver4}")
    assert sum(not isinstance(f, relax.Function) for f in kernels.functions.values()) == 1
    values = np.stack([packed & 15, packed >> 4], -1).reshape(columns, inner).astype("float32") - 8
    table = values * np.repeat(scales.reshape(columns, -1), 32, 1)
    run = mlcc.load(mlcc.build(module))["main"]
    for rows in (1, 5):
        given = rng.normal(size=(rows, inner)).astype("float32")
        np.testing.assert_allclose(run(given), given @ table.T, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("block", [32, 48])
def test_blocks_of_dequantize_linear_become_groups(onnx: Any, block: int) -> None:
    """Groups where all blocks are whole; else scales are repeated."""
    from onnx import TensorProto, helper, numpy_helper

    rng, inner, columns = np.random.default_rng(0), 128, 96
    values = rng.integers(-128, 128, (inner, columns)).astype("int8")
    scales, zeros = (
        rng.random((-(-inner // block), columns)).astype("float32"),
        rng.integers(-9, 9, (-(-inner // block), columns)),
    )
    weights = [numpy_helper.from_array(a, n) for a, n in ((values, "w"), (scales, "s"), (zeros.astype("int8"), "z"))]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["rows", e]) for n, e in (("x", inner), ("y", columns)))
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    module = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    names = [c.op.name for c in find(module["main"], relax.Call)]
    assert (names == ["relax.dequantize", "relax.matmul"]) == (block == 32)
    table = (values - np.repeat(zeros, block, 0)[:inner]) * np.repeat(scales, block, 0)[:inner]
    given = rng.normal(size=(3, inner)).astype("float32")
    found = np.asarray(mlcc.load(mlcc.build(module))["main"](given))
    np.testing.assert_allclose(found, given @ table.astype("float32"), rtol=1e-4, atol=1e-2)
