"""The public function that imports ONNX models."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mlcc.errors import CompileError, error
from mlcc.frontend.onnx.parameters import Parameters
from mlcc.frontend.onnx.reader import NEWEST, OLDEST, OnnxModel, read_model
from mlcc.frontend.onnx.translate import OnnxTranslator
from mlcc.frontend.precision import convert_precision
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
    dtype: str | None = None,
) -> IRModule:
    """Import an ONNX model: a path, bytes, or an `onnx.ModelProto`.

    `main` takes the model's inputs; weights are bound, or follow the inputs with `keep_params_in_input`, their values
    in the attribute `params`. `shape_dict` gives inputs shapes of numbers and names of symbolic extents. `dtype_dict`
    gives inputs dtypes: a dict overrides the model, a single dtype is for inputs without one. `opset` replaces the
    version that the model states. `custom_convert_map` maps operators to converters: `convert(t, node, *inputs)`.
    `dtype`, `float16` or `bfloat16`, is what float32 inputs, results and weights become; see `mlcc.frontend.precision`.

    Raises CompileError that lists everything that cannot be imported.
    """
    read = read_model(model, name)
    options = Options(shape_dict or {}, dtype_dict, opset, sanitize_input_names, dict(custom_convert_map or {}))
    t, module = _import(read, options)
    if not keep_params_in_input:
        return convert_precision(module, dtype)
    names = {tensor.name for tensor in read.proto.graph.initializer}
    return convert_precision(
        _import(read, options, names - t.inspected_initializers)[1], dtype
    )  # weights on which shapes depend stay bound


@dataclass(frozen=True)
class Options:
    """Options for importing a model; see `from_onnx`."""

    shapes: Mapping[str, Sequence[int | str]]
    dtypes: str | Mapping[str, str]
    opset: int | None
    sanitize: bool
    converters: Mapping[str, Callable[..., Any]]


def _import(model: OnnxModel, options: Options, kept: Container[str] = ()) -> tuple[OnnxTranslator, IRModule]:
    t = OnnxTranslator(model, options.converters, kept)
    if options.opset is not None:
        t.opsets = {**t.opsets, "": _check_opset(options.opset)}
    graph = model.proto.graph
    own = Parameters(t, graph, options.shapes, options.dtypes, options.sanitize)
    attrs: dict[str, Any] = {"num_input": len(own.variables)}
    if kept:
        attrs["params"] = [data.array for data in t.kept.values()]
    with t.function([*own.variables, *t.kept], attrs):
        t.walk(graph)
        t.problems.raise_all()
        t.result(own.results(graph))
    return t, t.module()


def _check_opset(version: int) -> int:
    if not OLDEST <= version <= NEWEST:
        raise CompileError(error("E1042", f"opset {version} is not supported; {OLDEST} to {NEWEST} are"))
    return version
