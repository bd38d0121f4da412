"""Models imported in 16-bit floats, judged by what PyTorch's own 16 bits lose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mlcc
from mlcc.errors import CompileError
from mlcc.frontend import detach_params, from_exported_program, from_onnx
from mlcc.frontend.precision import DTYPES, convert_precision, narrow_tensor
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode
from mlcc.ir.tensor_data import TensorData
from tests.frontend.models import CASES

MODELS = ("own_encoder", "own_lstm", "own_pointnet")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", MODELS)
def test_models_lose_no_more_than_by_pytorch(torch: Any, name: str, dtype: str) -> None:
    torch.manual_seed(0)
    model, inputs = CASES[name].build(), CASES[name].inputs(0)
    module = from_exported_program(torch.export.export(model, inputs), dtype=dtype)
    run = mlcc.load(mlcc.build(module, target="llvm{cpu=native}", opt_level=1))["main"]
    half = getattr(torch, dtype)
    narrow = [x.to(half) if x.is_floating_point() else x for x in inputs]
    found = run(*narrow)
    with torch.no_grad():
        full = _leaves(model(*inputs))
        theirs = _leaves(model.to(half)(*narrow))
    for mine, exact, other in zip(_leaves(found), full, theirs, strict=False):
        scale = float(exact.abs().max())
        mine = torch.from_dlpack(mine)
        mine = mine.view(half) if mine.dtype == torch.uint16 else mine  # bfloat16 is bits in NumPy
        assert mine.dtype == half
        lost = float((other.float() - exact).abs().max()) / scale
        assert float((mine.float() - exact).abs().max()) / scale <= 2 * lost + torch.finfo(half).eps


def _leaves(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def parse(text: str) -> Any:
    return mlcc.parse(f"@R.function\ndef main({text}")


def test_what_stays_float32_until_it_meets_16_bits() -> None:
    module = parse("""x: R.Tensor((4, 8), "float32"), n: R.Tensor((8,), "int64")):
    with R.dataflow():
        angle = R.sin(R.multiply(R.astype(n, "float32"), R.const(1.5, "float32")))
        y = R.multiply(x, angle)
        norm = R.rsqrt(R.add(R.mean(R.multiply(y, y), axis=[1], keepdims=True), R.const(1e-6, "float32")))
        z = R.nn.softmax(R.multiply(y, norm))
        R.output(z)
    return z
""")
    found = convert_precision(module, "float16")
    text = found.script()
    for line in (
        'x: R.Tensor((4, 8), dtype="float16"), n: R.Tensor((8,), dtype="int64")) -> R.Tensor((4, 8), dtype="float16")',
        'angle: R.Tensor((8,), dtype="float32")', 'y: R.Tensor((4, 8), dtype="float16")',
        'square: R.Tensor((4, 8), dtype="float32")', 'norm: R.Tensor((4, 1), dtype="float32")',
        'z: R.Tensor((4, 8), dtype="float16")', 'R.const(1e-06, "float32")',
    ):  # fmt: skip
        assert line in text, text
    x = np.full((4, 8), 300, "float16")  # whose squares float16 does not hold
    got = np.asarray(mlcc.load(mlcc.build(found))["main"](x, np.arange(8)))
    y = 300 * np.sin(np.arange(8) * 1.5)
    e = np.exp(y / np.sqrt(np.mean(y * y) + 1e-6))
    np.testing.assert_allclose(got, np.tile(e / e.sum(), (4, 1)), rtol=5e-3)


def test_branches_are_converted_and_integers_kept() -> None:
    module = parse("""c: R.Tensor((), "bool"), x: R.Tensor((3,), "float32"), i: R.Tensor((3,), "int32")):
    if c:
        y = R.multiply(x, x)
    else:
        y = R.astype(i, "float32")
    return y, i, R.split(x, [1])
""")
    run = mlcc.load(mlcc.build(convert_precision(module, "float16")))["main"]
    for chosen, expected in ((True, [1, 4, 9]), (False, [7, 8, 9])):
        y, i, parts = run(np.array(chosen), np.array([1, 2, 3], "float16"), np.array([7, 8, 9], "int32"))
        assert y.dtype == "float16" and y.tolist() == expected and i.dtype == "int32"
        assert [part.tolist() for part in parts] == [[1], [2, 3]] and parts[0].dtype == "float16"


@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_constants_stay_finite(dtype: str) -> None:
    most = np.finfo("float32").max
    data = TensorData.of(np.array([most, -most, np.inf, -np.inf, np.nan, 1 / 3], "float32"), key="w")
    made = narrow_tensor(data, DType.of(dtype))
    values = decode(made.array, made.dtype).astype("float64")
    assert made.key == "w" and np.isfinite(values[:2]).all() and values[0] == -values[1] > 6e4
    assert values[2:4].tolist() == [np.inf, -np.inf] and np.isnan(values[4]) and abs(values[5] - 1 / 3) < 1e-3


def test_unsupported_models_and_dtypes_are_refused(onnx: Any) -> None:
    module = parse(
        'x: R.Tensor((3,), "float32")):\n    return R.call_dps_packed("f", (x,), R.Tensor((3,), "float32"))\n'
    )
    with pytest.raises(CompileError, match="E1086"):
        convert_precision(module, "float16")
    with pytest.raises(CompileError, match="models cannot be converted to `float8`"):
        from_onnx(_product(onnx), dtype="float8")


def test_onnx_models_are_imported_in_bfloat16(onnx: Any) -> None:
    module = from_onnx(_product(onnx), dtype="bfloat16")
    assert 'R.Tensor((2, 20), dtype="bfloat16")' in module.script()


def _product(onnx: Any) -> Any:
    h = onnx.helper
    weight = onnx.numpy_helper.from_array(np.ones((20, 30), "float32"), "w")
    x, y = (h.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, c]) for n, c in (("x", 20), ("y", 30)))
    graph = h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weight])
    return h.make_model(graph, opset_imports=[h.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize("dtype", DTYPES)
def test_scales_of_groups_stay_float32(dtype: str) -> None:
    module = parse("""x: R.Tensor((4, 8), "float32"), q: R.Tensor((8, 2), "int8")):
    with R.dataflow():
        w = R.dequantize(q, R.const([[1.1, 2.3], [3.1, 4.1]], "float32"), R.const(0, "int8"), axis=0)
        y = R.matmul(x, w)
        R.output(y)
    return y
""")
    text = mlcc.script(convert_precision(module, dtype))
    assert 'R.const([[1.1, 2.3], [3.1, 4.1]], "float32")' in text
    assert f'y: R.Tensor((4, 2), dtype="{dtype}")' in text


@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_that_are_parameters(onnx: Any, dtype: str) -> None:
    weight = np.arange(32, dtype="float32").reshape(8, 4) / 16
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, kind, [2, size]) for name, size in (("x", 8), ("y", 4)))
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [x], [y], [onnx.numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    module, params = detach_params(from_onnx(model, keep_params_in_input=True, dtype=dtype))
    element = DType.of(dtype)
    given = narrow_tensor(TensorData.of(np.ones((2, 8), "float32")), element).array
    found = np.asarray(mlcc.load(mlcc.build(module))["main"](given, *params["main"]))
    assert decode(found, element).tolist() == np.broadcast_to(weight.sum(0), (2, 4)).tolist()


def test_a_value_that_a_branch_gives_is_cast_there_and_behind_it() -> None:
    module = parse("""x: R.Tensor((4, 8), "float32"), c: R.Tensor((), "bool")):
    s = R.sum(x, axis=[1], keepdims=True)
    if c:
        a = s
    else:
        a = R.multiply(s, s)
    y = R.add(R.multiply(x, a), s)
    return y
""")
    made = convert_precision(module, "float16")
    x = np.arange(32, dtype="float16").reshape(4, 8) / 16
    s = x.astype("float32").sum(1, keepdims=True)
    for taken in (True, False):
        found = np.asarray(mlcc.load(mlcc.build(made))["main"](x, np.array(taken)))
        np.testing.assert_allclose(found, x * (s if taken else s * s) + s, rtol=5e-3)
