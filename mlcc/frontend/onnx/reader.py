"""Reading ONNX models: files, bytes and `ModelProto`s, and their external data.

No code of a model is run. Errors in an untrusted file give a diagnostic: truncated protobuf, unknown versions,
external data outside of the model's folder or beyond the end of their file.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlcc.errors import CompileError, error
from mlcc.files import file_mmap_class, read_bytes
from mlcc.frontend.onnx.elements import tensor_data
from mlcc.frontend.onnx.node import canonical_domain
from mlcc.ir.tensor_data import TensorData

if TYPE_CHECKING:
    import onnx

OLDEST, NEWEST = 7, 28  # opsets
IR_VERSIONS = range(3, 15)
_EXTERNAL = 1  # TensorProto.DataLocation
_MAX_PROTOBUF_BYTES = 2**31 - 1  # bytes of a protobuf


@dataclass
class OnnxModel:
    """A model and the folder of its external data."""

    proto: onnx.ModelProto
    name: str
    folder: str | None = None
    owned: bool = False  # whether its fields may be cleared after they are read
    _maps: dict[str, Any] = field(default_factory=dict)

    def tensor(self, proto: onnx.TensorProto) -> TensorData:
        """Read a tensor of the model. Raises Unsupported for one that is malformed or of an unsupported type."""
        if proto.data_location != _EXTERNAL:
            return tensor_data(proto)
        return tensor_data(proto, self._external(proto))

    def _external(self, proto: onnx.TensorProto) -> memoryview:
        """Return the bytes of a tensor that are stored in another file of the model's folder."""
        entries = {entry.key: entry.value for entry in proto.external_data}
        location = entries.get("location", "")
        content = self._mapped_file(location, proto.name)
        try:
            offset = int(entries.get("offset", "0"))
            length = int(entries["length"]) if "length" in entries else len(content) - offset
        except ValueError:
            raise _external_data_error(proto.name, "its offset or length is not a number") from None
        if offset < 0 or length < 0 or offset + length > len(content):
            raise _external_data_error(
                proto.name, f"`{location}` has only {len(content)} bytes, less than {offset} + {length}"
            )
        return memoryview(content)[offset : offset + length]

    def _mapped_file(self, location: str, name: str) -> Any:
        """Memory-map a file of external data in the model's folder."""
        if location in self._maps:
            return self._maps[location]
        if self.folder is None:
            raise _external_data_error(
                name, "the model was given without its folder", "give the path of the model's file"
            )
        folder = os.path.realpath(self.folder)
        parts = location.replace("\\", "/").split("/")
        if not location or "\0" in location or os.path.isabs(location) or ".." in parts:
            raise _external_data_error(name, f"`{location}` is not a path inside the model's folder")
        path = os.path.realpath(os.path.join(folder, location))
        if os.path.commonpath([path, folder]) != folder:
            raise _external_data_error(name, f"`{location}` links to a file outside the model's folder")
        self._maps[location] = _map_file(path, location, name)
        return self._maps[location]


def _map_file(path: str, location: str, name: str) -> Any:
    import mmap

    try:
        if not os.path.isfile(path):
            raise _external_data_error(name, f"the file `{location}` does not exist beside the model")
        if os.path.getsize(path) == 0:
            return b""
        with open(path, "rb") as file:
            return file_mmap_class()(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as problem:
        raise _external_data_error(name, f"cannot read `{location}`: {problem.strerror}") from None


def _external_data_error(name: str, reason: str, help: str | None = None) -> CompileError:
    return CompileError(error("E1044", f"the data of `{name}` cannot be read: {reason}", help=help))


# ---------------------------------------------------------------- reading


def read_model(source: Any, name: str | None = None) -> OnnxModel:
    """Read a model from a path, bytes, or a `ModelProto`.

    Raises CompileError: E1040 without the onnx package, E1041 for data that are not a model, E1042 for unsupported
    versions.
    """
    onnx = onnx_package()
    if isinstance(source, onnx.ModelProto):
        model = OnnxModel(source, name or "model.onnx")
    elif isinstance(source, (bytes, bytearray, memoryview)):
        model = OnnxModel(_parse(bytes(source), name or "model.onnx"), name or "model.onnx", owned=True)
    elif isinstance(source, (str, os.PathLike)):
        model = _read_file(os.fspath(source), name)
    else:
        raise TypeError(f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}")
    _check_versions(model)
    return model


def onnx_package() -> Any:
    """The onnx package. Raises CompileError E1040 where it is missing."""
    try:
        import onnx
    except ImportError:
        help = "install it with `pip install 'mlcc[onnx]'`"
        raise CompileError(error("E1040", "reading .onnx files needs the package `onnx`", help=help)) from None
    return onnx


def _read_file(path: str, name: str | None) -> OnnxModel:
    try:
        size = os.path.getsize(path)
    except (OSError, ValueError):
        size = 0  # reading reports the fault
    if size > _MAX_PROTOBUF_BYTES:
        help = "save it with onnx.save_model(..., save_as_external_data=True)"
        raise CompileError(error("E1041", f"{path} has {size} bytes; a model file may have at most 2 GiB", help=help))
    proto = _parse(read_bytes(path), path)
    return OnnxModel(proto, name or os.path.basename(path), os.path.dirname(path) or ".", owned=True)


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    import onnx

    damaged = importlib.import_module("google.protobuf.message").DecodeError
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (damaged, ValueError):
        raise CompileError(error("E1041", f"{name} is not an ONNX model, or is damaged")) from None
    if not proto.HasField("graph") or not proto.ir_version:
        raise CompileError(error("E1041", f"{name} is not an ONNX model: it has no graph or no version"))
    return proto


def _check_versions(model: OnnxModel) -> None:
    """Raise CompileError E1042 for a model of an unsupported IR or opset version."""
    proto = model.proto
    if proto.ir_version not in IR_VERSIONS:
        known = f"{IR_VERSIONS[0]} to {IR_VERSIONS[-1]}"
        raise CompileError(error("E1042", f"{model.name} has IR version {proto.ir_version}; {known} are supported"))
    for given in proto.opset_import:
        if canonical_domain(given.domain) == "" and not OLDEST <= given.version <= NEWEST:
            help = f"convert it with onnx.version_converter.convert_version(model, {NEWEST - 7})"
            message = f"{model.name} uses opset {given.version}; {OLDEST} to {NEWEST} are supported"
            raise CompileError(error("E1042", message, help=help))


def opsets_of(imports: Any) -> dict[str, int]:
    """The versions of the domains that a model or a function uses."""
    return {canonical_domain(o.domain): o.version for o in imports}
