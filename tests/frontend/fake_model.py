"""A model format of the tests: as many dense layers as a JSON file says, with an importer that needs no package."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from mlcc.array_files import load_arrays
from mlcc.errors import Span
from mlcc.frontend.emitter import Emitter
from mlcc.frontend.location import SourceLocation, spans
from mlcc.frontend.problems import Problems
from mlcc.frontend.request import Request
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.ir.tensor_data import TensorData


def write_model(path: Path, layers: int = 2, width: int = 8, **more: Any) -> Path:
    """A file of the format. `file` names the weights beside it, `absent` has none, `unknown` lists operators."""
    path.write_text(json.dumps({"layers": layers, "width": width, **more}))
    return path


def weights(layers: int = 2, width: int = 8, dtype: type = np.float32) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: array for i in range(layers) for name, array in (
            (f"layers.{i}.weight", rng.standard_normal((width, width)).astype(dtype)),
            (f"layers.{i}.bias", rng.standard_normal(width).astype(dtype)),
        )
    }  # fmt: skip


def outputs(x: np.ndarray, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """What the model computes."""
    for i in range(len(arrays) // 2):
        x = np.maximum(x @ arrays[f"layers.{i}.weight"] + arrays[f"layers.{i}.bias"], 0)
    return x


def read_model(path: str, request: Request) -> IRModule:
    said = json.loads(Path(path).read_text())
    problems = Problems()
    places = [place for i in range(said["layers"]) for place in _places(i)]
    where = spans(os.path.basename(path), places)
    for name in said.get("unknown", []):
        if name not in request.converters:
            problems.unknown(name, where[0])
    problems.raise_all()
    beside = os.path.join(os.path.dirname(path), said.get("file", ""))
    arrays = dict(load_arrays(beside)) if "file" in said else weights(said["layers"], said["width"])
    t = Emitter()
    batch = t.symbol("s0")
    param = t.parameter("x", [batch, said["width"]], "float32")
    with t.function([param], {"num_input": 1}):
        value: Any = param
        for i in range(said["layers"]):
            dense, relu = where[2 * i : 2 * i + 2]
            value = _layer(t, value, i, arrays, bool(said.get("absent")), dense, relu, said.get("wrong") == i)
        t.result(value)
    return t.module()


def _places(i: int) -> tuple[SourceLocation, SourceLocation]:
    module = f"layers.{i}"
    return SourceLocation("dense", f"dense_{i}", module, "Dense", f"net.py:{10 + i}"), SourceLocation(
        "relu", f"relu_{i}", module, "ReLU"
    )


def _layer(
    t: Emitter, x: Any, i: int, arrays: dict[str, np.ndarray], absent: bool, dense: Span, relu: Span, wrong: bool
) -> Any:
    def constant(name: str) -> Any:
        made = t.constant(arrays[name], key=name)
        if not absent:
            return made
        from mlcc.ir import relax

        return relax.Constant(TensorData(DType.of("float32"), arrays[name].shape, None, name), made.struct_info)

    with t.at(dense, f"dense_{i}"):
        product = t.emit(t.op.matmul(x, constant(f"layers.{i}.weight")))
        x = t.emit(t.op.add(product, constant(f"layers.{i}.bias")))
    with t.at(relu, f"relu_{i}"):
        return t.emit(t.op.nn.gelu(x) if wrong else t.op.nn.relu(x))


class FakeRunner:
    """The model in NumPy, as its framework would run it."""

    name = "NumPy"

    def __init__(self, path: str) -> None:
        self.said = json.loads(Path(path).read_text())

    def run(self, inputs: Any) -> list[np.ndarray]:
        from mlcc.frontend.compare import ModelRejected

        (x,) = inputs
        if x.shape[0] in self.said.get("refuses", []):
            raise ModelRejected(f"no batch of {x.shape[0]}")
        return [outputs(x, weights(self.said["layers"], self.said["width"]))]

    def node_values(self, inputs: Any) -> dict[str, np.ndarray]:
        (x,) = inputs
        made, arrays = {}, weights(self.said["layers"], self.said["width"])
        for i in range(self.said["layers"]):
            made[f"dense_{i}"] = x @ arrays[f"layers.{i}.weight"] + arrays[f"layers.{i}.bias"]
            made[f"relu_{i}"] = x = np.maximum(made[f"dense_{i}"], 0)
        return made
