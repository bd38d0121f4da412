"""The public function that imports ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.frontend.onnx.parameters import Parameters
from mlcc.frontend.onnx.reader import NEWEST, OLDEST, read_model
from mlcc.frontend.onnx.translate import OnnxTranslator
from mlcc.ir.module import IRModule


def from_onnx(
    model: Any,
    shape_dict: Mapping[str, Sequence[int | str]] | None = None,
    dtype_dict: str | Mapping[str, str] = "float32",
    opset: int | None = None,
    keep_params_in_input: bool = False,
    sanitize_input_names: bool = True,
    *,
    custom_convert_map: Mapping[str, Callable[..., Any]] | None = None,
    name: str | None = None,
) -> IRModule:
    """The module of an ONNX model: a path, bytes, or an `onnx.ModelProto`.

    `main` takes the model's inputs; weights are bound, or follow the inputs with `keep_params_in_input`, their values
    in the attribute `params`. `shape_dict` gives inputs shapes of numbers and names of symbolic extents; `dtype_dict`
    their dtypes where the model has none, as a dict in any case; `opset` stands for the version that the model states.
    `custom_convert_map` has a converter for each operator that it names: `convert(t, node, *inputs)`.

    Raises CompileError that lists everything that cannot be imported.
    """
    read = read_model(model, name)
    t = OnnxTranslator(read, custom_convert_map)
    if opset is not None:
        t.opsets = {**t.opsets, "": _opset(opset)}
    graph = read.proto.graph
    t.initializers(graph)
    params = Parameters(t, graph, shape_dict or {}, dtype_dict, sanitize_input_names)
    with t.function(params.made, {"num_input": len(params.made)}):
        t.walk(graph)
        t.problems.raise_all()
        t.result(params.results(graph))
    return t.module()


def _opset(version: int) -> int:
    if not OLDEST <= version <= NEWEST:
        raise CompileError(error("E1042", f"opset {version} is not known; {OLDEST} to {NEWEST} are"))
    return version
