"""Source locations of ONNX nodes: modules and source lines, in the metadata that exporters write."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mlcc.frontend.location import SourceLocation, user_line
from mlcc.frontend.onnx.names import scopes
from mlcc.frontend.onnx.node import canonical_domain

if TYPE_CHECKING:
    import onnx

_SCOPES = "pkg.torch.onnx.name_scopes"
_CLASSES = "pkg.torch.onnx.class_hierarchy"
_TRACE = "pkg.torch.onnx.stack_trace"
_MAX_NOTE_LENGTH = 20_000  # characters of a metadata entry that are parsed


def location_of_node(proto: onnx.NodeProto) -> SourceLocation:
    """Return the source location of a node, with the module that PyTorch's exporter recorded in its metadata."""
    domain = canonical_domain(proto.domain)
    operator = f"{domain}.{proto.op_type}" if domain else proto.op_type
    notes = {str(entry.key): str(entry.value) for entry in proto.metadata_props}
    noted, classes = _parse_list(notes.get(_SCOPES, "")), _parse_list(notes.get(_CLASSES, ""))
    name = proto.name or next(iter(proto.output), "")
    module = noted[-2] if len(noted) > 1 else _module_of(name)  # the last one is the node
    kind = classes[-2].rpartition(".")[2] if module and len(classes) > 1 else ""
    return SourceLocation(operator, name, module, kind, user_line(notes.get(_TRACE, "")[-_MAX_NOTE_LENGTH:]))


def _module_of(name: str) -> str:
    """Return the module in a name like `/layer1/layer1.0/conv1/Conv`, as PyTorch's older exporter writes it."""
    return ".".join(scopes(name)[:-1]) if name.startswith("/") else ""


def _parse_list(text: str) -> list[str]:
    """Parse a list of strings that was written with `repr`."""
    if not text.startswith("[") or len(text) > _MAX_NOTE_LENGTH:
        return []
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(part) for part in value] if isinstance(value, list) else []
