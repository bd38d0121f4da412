"""ONNX models of few bits: networks quantized by ONNX Runtime, and products with weights stored in few bits."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import imports
from bench.speed.graph import Graph, Node
from mlcc.ir.dtypes import DType
from mlcc.ir.narrow_floats import decode, encode

SAMPLES = 4  # random inputs that calibrate the ranges of a network's values
BEYOND_CACHES = 80 << 20  # bytes of the weights of products of one row, so that they come from memory


@dataclass(frozen=True)
class Model:
    """An ONNX model with inputs and the expected result. `weight_bytes`: the size of the weights of products.

    With a `dtype` mlcc converts the float32 model, its inputs and its result. `graph` and `weights` are the same for
    PyTorch, if it takes part.
    """

    name: str
    onnx: bytes
    inputs: dict[str, np.ndarray]
    expected: np.ndarray
    result: str
    weight_bytes: int = 0
    precision: str = "f32"  # that OpenVINO is told to compute in
    dtype: str = ""
    graph: Graph | None = None
    weights: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A line of the table; `make` takes its name."""

    name: str
    make: Callable[[str], Model]


def network(base: str, name: str) -> Model:
    """Quantize a network of `bench.imports` statically: weights to int8 by channel, other values to uint8."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    imports.write(base)
    x = np.load(imports.FOLDER / f"{base}.npy")
    random = np.random.default_rng(0)
    source, prepared, target = (imports.FOLDER / f"{base}{end}.onnx" for end in ("", ".prepared", ".int8"))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not target.exists():
        quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
        key = onnxruntime.InferenceSession(str(prepared), options).get_inputs()[0].name

        class Reader(CalibrationDataReader):  # type: ignore[misc]
            def __init__(self) -> None:
                self.samples = iter([x, *(random.standard_normal(x.shape).astype("float32") for _ in range(SAMPLES))])

            def get_next(self) -> dict[str, np.ndarray] | None:
                return next(({key: sample} for sample in self.samples), None)

        quantize_static(
            str(prepared), str(target), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    key, result = session.get_inputs()[0].name, session.get_outputs()[0].name
    (expected,) = session.run([result], {key: x})
    return Model(name, Path(target).read_bytes(), {key: x}, expected, result)


def bfloat16_network(base: str, name: str) -> Model:
    """A network of `bench.imports`, which competitors compute in bfloat16."""
    import onnxruntime

    imports.write(base)
    x, path = np.load(imports.FOLDER / f"{base}.npy"), imports.FOLDER / f"{base}.onnx"
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    key, result = session.get_inputs()[0].name, session.get_outputs()[0].name
    (expected,) = session.run([result], {key: x})
    content = onnx_with_weights(path)
    return Model(name, content, {key: x}, expected, result, precision="bf16", dtype="bfloat16")


def onnx_with_weights(path: Path) -> bytes:
    """Return a model in one file, those weights included that lie beside it."""
    import onnx

    return bytes(onnx.load(path).SerializeToString())


def bfloat16_product(rows: int, inner: int, columns: int, name: str) -> Model:
    """Products of bfloat16 data and weights, rounded to bfloat16; as many of one row as caches do not hold."""
    from onnx import TensorProto, helper, numpy_helper

    random, dtype = np.random.default_rng(zlib.crc32(name.encode())), DType.of("bfloat16")

    def rounded(*shape: int) -> np.ndarray:
        return decode(encode(random.standard_normal(shape), dtype), dtype)

    x = rounded(rows, inner)
    count = -(-BEYOND_CACHES // (inner * columns * 2)) if rows == 1 else 1
    weights = {f"w{n}": rounded(columns, inner) for n in range(count)}
    parts = [f"y{n}" for n in range(count)]
    nodes = [helper.make_node("Gemm", ["x", f"w{n}"], [f"y{n}"], transB=1) for n in range(count)]
    nodes.append(helper.make_node("Concat", parts, ["y"], axis=1))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, count * columns))
    tensors = [numpy_helper.from_array(v, k) for k, v in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [given], [made], tensors), opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )  # fmt: skip
    graph = Graph(
        {"x": x.shape, **{key: value.shape for key, value in weights.items()}},
        (
            *(Node("linear", ("x", f"w{n}"), {}, f"y{n}", (rows, columns)) for n in range(count)),
            Node("concat", tuple(parts), {"axis": 1}, "y", (rows, count * columns)),
        ),
        "y",
    )
    expected = np.concatenate([x.astype("float64") @ w.T for w in weights.values()], 1)
    size = count * inner * columns * 2
    return Model(
        name, model.SerializeToString(), {"x": x}, expected, "y", size, "bf16", "bfloat16", graph, weights
    )  # fmt: skip


def product(rows: int, inner: int, columns: int, kind: str, name: str) -> Model:
    """Products of float32 data with weights of a `kind`, each of other weights; results are joined along columns.

    Kinds are int8 (a scale for each column), int4 with the length of a group, and perhaps `z` for zero points
    (`int4_g32z`), float16 and bfloat16. There are as many products of one row as caches do not hold.
    """
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(zlib.crc32(name.encode()))
    x = random.standard_normal((rows, inner)).astype("float32")
    bits = {"int8": 8, "int4": 4}.get(kind.partition("_")[0], 16)
    count = -(-BEYOND_CACHES // (inner * columns * bits // 8)) if rows == 1 else 1
    nodes: list[Any] = []
    held: dict[str, Any] = {}
    expected = []
    for n in range(count):
        matrix = random.standard_normal((inner, columns), np.float32) / np.float32(inner**0.5)
        weights, more, decoded = _encoded(matrix, kind, n)
        nodes += more
        held.update(weights)
        expected.append(x.astype("float64") @ decoded)
    nodes.append(helper.make_node("Concat", [f"y{n}" for n in range(count)], ["y"], axis=1))
    domains = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    tensors = [numpy_helper.from_array(v, k) if isinstance(v, np.ndarray) else v for k, v in held.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, (rows, count * columns))
    model = helper.make_model(
        helper.make_graph(nodes, "g", [given], [made], tensors), opset_imports=domains, ir_version=10
    )
    size = sum(numpy_helper.to_array(tensor).nbytes for tensor in tensors)
    precision = {"bfloat16": "bf16", "float16": "f16"}.get(kind, "f32")
    return Model(name, model.SerializeToString(), {"x": x}, np.concatenate(expected, 1), "y", size, precision)


def _encoded(matrix: np.ndarray, kind: str, n: int) -> tuple[dict[str, Any], list[Any], np.ndarray]:
    """Return the tensors of weights, the nodes from `x` to `y{n}`, and the weights decoded in float64."""
    from onnx import TensorProto, helper, numpy_helper

    inner, columns = matrix.shape
    if kind in ("float16", "bfloat16"):
        weight = helper.make_tensor(f"w{n}", getattr(TensorProto, kind.upper()), matrix.shape, matrix.reshape(-1))
        cast = helper.make_node("Cast", [f"w{n}"], [f"d{n}"], to=TensorProto.FLOAT)
        times = helper.make_node("MatMul", ["x", f"d{n}"], [f"y{n}"])
        return {f"w{n}": weight}, [cast, times], np.asarray(numpy_helper.to_array(weight)).astype("float64")
    if kind == "int8":
        scale = (np.abs(matrix).max(0) / 127).astype("float32")
        codes = np.round(matrix / scale).astype("int8")
        decode = helper.make_node("DequantizeLinear", [f"w{n}", f"s{n}"], [f"d{n}"], axis=1)
        times = helper.make_node("MatMul", ["x", f"d{n}"], [f"y{n}"])
        return {f"w{n}": codes, f"s{n}": scale}, [decode, times], codes.astype("float64") * scale
    zeros, group = kind.endswith("z"), int(kind.removeprefix("int4_g").removesuffix("z"))
    groups = matrix.reshape(inner // group, group, columns)
    low = np.minimum(groups.min(1), 0) if zeros else -np.abs(groups).max(1)
    high = np.maximum(groups.max(1), 0) if zeros else -low
    scale = ((high - low) / (15 if zeros else 14)).astype("float32")
    point = np.clip(np.round(-low / scale), 0, 15).astype("uint8") if zeros else np.full(scale.shape, 8, "uint8")
    codes = np.clip(np.round(groups / scale[:, None]) + point[:, None], 0, 15).astype("uint8")
    decoded = ((codes.astype("float64") - point[:, None]) * scale[:, None]).reshape(inner, columns)
    by_column = codes.reshape(inner, columns).T.reshape(columns, inner // group, group)
    weights = {f"w{n}": by_column[..., ::2] | by_column[..., 1::2] << 4, f"s{n}": np.ascontiguousarray(scale.T)}
    if zeros:
        weights[f"z{n}"] = np.ascontiguousarray(point.T[:, ::2] | point.T[:, 1::2] << 4)
    attributes = {"K": inner, "N": columns, "bits": 4, "block_size": group}
    node = helper.make_node("MatMulNBits", ["x", *weights], [f"y{n}"], domain="com.microsoft", **attributes)
    return weights, [node], decoded


def _cases() -> list[Case]:
    cases = [Case(f"{base}_int8", functools.partial(network, base)) for base in ("resnet18", "encoder")]
    cases += [Case(f"{base}_bf16", functools.partial(bfloat16_network, base)) for base in ("resnet18", "encoder")]
    for rows, inner, columns in ((512, 512, 512), (1, 4096, 4096)):
        make = functools.partial(bfloat16_product, rows, inner, columns)
        cases.append(Case(f"bf16_{rows}x{inner}x{columns}", make))
    kinds = ("int8", "int4_g32", "int4_g64", "int4_g128", "int4_g32z")
    shapes = [(1, 4096, 4096, kind) for kind in (*kinds, "float16", "bfloat16")]
    shapes += [(1, 11008, 4096, kind) for kind in ("int8", "int4_g32")]
    shapes += [(rows, 4096, 4096, kind) for rows in (8, 128) for kind in ("int8", "int4_g32")]
    for rows, inner, columns, kind in shapes:
        cases.append(Case(f"{kind}_{rows}x{inner}x{columns}", functools.partial(product, rows, inner, columns, kind)))
    return cases


CASES = _cases()
