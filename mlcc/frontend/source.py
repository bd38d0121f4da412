"""Read a module from a text or from a model of another framework, according to the file's suffix."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any

from mlcc.errors import CompileError, did_you_mean, error
from mlcc.files import first_bytes
from mlcc.frontend.request import Request
from mlcc.ir.module import IRModule

# suffix -> the function that imports a file: (path, request) -> module, weights bound as constants with names
IMPORTERS: dict[str, str] = {
    ".onnx": "mlcc.frontend.models:read_onnx",
    ".pt2": "mlcc.frontend.models:read_pt2",
}
_EXPORT_HELP = "export the model in PyTorch: torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
_WEIGHTS_HELP = (
    "import the model of these weights, `mlcc import model.onnx --weights {path} -o model.mlc`; or bind them "
    "to the parameters of a text: `mlcc passes model.mlc -p 'bind-params{{params={path}}}'`"
)
_TEXTS = "programs are texts in the language of docs/language.md, usually .mlc; models are .onnx and .pt2"
_UNSUPPORTED_SUFFIX_HELP = {
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin", ".pkl"), _EXPORT_HELP),
    **dict.fromkeys((".pb", ".h5", ".keras", ".tflite", ".mlmodel", ".pdmodel"), "convert it to ONNX"),
    **dict.fromkeys((".ipynb", ".json", ".csv", ".c", ".cc", ".cpp", ".h", ".md"), _TEXTS),
    ".mls": "it is a schedule: `mlcc schedule kernel.mlc --script {path}`",
    ".gguf": "import the original model",
    ".npz": _WEIGHTS_HELP,
}


def suffix_of(path: str) -> str:
    """Return the suffix of a path in lower case."""
    return os.path.splitext(path)[1].lower()


def is_model(path: str) -> bool:
    """Return True if a file is a model to import rather than program text."""
    return (
        suffix_of(path) in IMPORTERS
        or suffix_of(path) in (".safetensors", *_UNSUPPORTED_SUFFIX_HELP)
        or _has_weights(path)
    )


def _has_weights(path: str) -> bool:
    """Return True if a path is an index or a folder of weights."""
    from mlcc.array_folders import SUFFIXES, is_index

    if is_index(path) or not os.path.isdir(path):
        return is_index(path)
    names = os.listdir(path)
    return any(name.endswith(SUFFIXES) for name in names) and not any(name.endswith(".mlc") for name in names)


def read_module(path: str, request: Request | None = None) -> IRModule:
    """Read the module of a text, or import a model with its weights as constants. Raises CompileError."""
    if not is_model(path):
        from mlcc.driver import parse_file

        return parse_file(path)
    return read_model(path, request or Request())


def read_model(path: str, request: Request) -> IRModule:
    """Import a model, with inputs of the requested shapes.

    Raises CompileError: E1073 for a file of weights only, E1074 for an unsupported format.
    """
    from mlcc.frontend.symbols import state_shapes
    from mlcc.progress import working

    importer = _importer(path)
    with working("import"):
        module = importer(path, request)
    return state_shapes(module, request.shapes, request.ranges)


def _importer(path: str) -> Callable[[str, Request], IRModule]:
    suffix = suffix_of(path)
    if path == "-":
        suffix = ".pt2" if first_bytes(path, 2) == b"PK" else ".onnx"
    if suffix == ".safetensors" or _has_weights(path):
        text = f"{path} has only weights, no model"
        raise CompileError(error("E1073", text, help=_WEIGHTS_HELP.format(path=path), file=path))
    where = IMPORTERS.get(suffix)
    if where is None:
        known = ", ".join(IMPORTERS)
        help = _UNSUPPORTED_SUFFIX_HELP.get(suffix, did_you_mean(suffix, IMPORTERS) or f"models are {known}").format(
            path=path
        )
        raise CompileError(
            error("E1074", f"{path} is not a model that mlcc can import ({known})", help=help, file=path)
        )
    module, _, name = where.partition(":")
    importer: Callable[[str, Request], IRModule] = getattr(importlib.import_module(module), name)
    return importer


def load_converters(path: str) -> dict[str, Callable[..., Any]]:
    """Run a Python file and return its `CONVERTERS`, a dict from operators to functions. Raises CompileError E1076."""
    import runpy

    help = "write a Python file with CONVERTERS = {'aten.name.overload': function, ...}"
    try:
        converters = runpy.run_path(path, run_name="mlcc_map").get("CONVERTERS")
    except (Exception, SystemExit) as exc:
        raise CompileError(error("E1076", f"{path} failed: {type(exc).__name__}: {exc}", help=help)) from exc
    if not isinstance(converters, dict) or not all(isinstance(k, str) and callable(v) for k, v in converters.items()):
        raise CompileError(error("E1076", f"{path} does not define `CONVERTERS` as a dict of functions", help=help))
    return converters
