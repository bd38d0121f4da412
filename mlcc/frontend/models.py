"""The importers of model files as `mlcc.frontend.source` calls them: (path, request) -> module, weights bound."""

from __future__ import annotations

from mlcc.errors import CompileError, error
from mlcc.frontend.request import Request
from mlcc.ir.module import IRModule


def read_pt2(path: str, request: Request) -> IRModule:
    """Import an exported program. Its symbols have the names of the export; see `symbols.state_shapes`."""
    from mlcc.frontend.aten.importer import from_pt2

    return from_pt2(
        path,
        unwrap_unit_return_tuple=True,
        custom_convert_map=request.converters,
        allow_packed=request.allow_packed,
        keep_state_as_input=request.state_as_inputs,
    )


def read_onnx(path: str, request: Request) -> IRModule:
    """Import an ONNX model. Shapes in the request replace the model's own."""
    from mlcc.frontend.onnx.importer import from_onnx

    if request.allow_packed:
        text = "`--allow-packed` is for .pt2 files: an ONNX model does not state the shape of every value"
        raise CompileError(error("E1074", text, help="give a converter with `--map FILE.py`"))
    if request.state_as_inputs:
        text = "`--state-as-inputs` is for .pt2 files: an ONNX model takes its state as inputs already"
        raise CompileError(error("E1074", text))
    return from_onnx(path, dict(request.shapes), custom_convert_map=request.converters)
