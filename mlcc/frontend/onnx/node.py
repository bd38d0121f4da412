"""Nodes of ONNX graphs, with their attributes as Python values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from mlcc.frontend.onnx.elements import sparse_data, tensor_data
from mlcc.frontend.problems import Unsupported
from mlcc.ir.tensor_data import TensorData

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node with its attributes as Python values: numbers, strings, lists, `TensorData`, graphs."""

    operator: str
    domain: str  # "" for ai.onnx
    name: str
    inputs: tuple[str, ...]  # "" for an omitted one
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    version: int  # of its domain's opset
    proto: onnx.NodeProto

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute, or its default in the schema. Raises Unsupported for one that cannot be read."""
        value = self.attributes.get(name, default)
        if isinstance(value, Unsupported):
            raise value
        return value

    @property
    def title(self) -> str:
        """The operator with its domain, as messages name it."""
        return f"{self.domain}.{self.operator}" if self.domain else self.operator


Reader: TypeAlias = "Callable[[onnx.TensorProto], TensorData]"


def read_node(
    proto: onnx.NodeProto, opsets: Mapping[str, int], read: Reader = tensor_data, outer: Mapping[str, Any] | None = None
) -> OnnxNode:
    """Read a node of a graph with these opset versions. `outer` has the attributes of the enclosing function."""
    domain = canonical_domain(proto.domain)
    attributes = {}
    for given in proto.attribute:
        if not given.ref_attr_name:
            attributes[given.name] = attribute_value(given, read)
        elif outer is not None and given.ref_attr_name in outer:
            attributes[given.name] = outer[given.ref_attr_name]
    version = opsets.get(domain, 1)
    return OnnxNode(
        proto.op_type, domain, proto.name, tuple(proto.input), tuple(proto.output), attributes, version, proto
    )


def canonical_domain(domain: str) -> str:
    """Return the canonical name of a domain; ONNX's own domain has two names."""
    return "" if domain == "ai.onnx" else domain


def attribute_value(proto: onnx.AttributeProto, read: Reader = tensor_data) -> Any:
    """Return an attribute as a Python value, or an `Unsupported` to be raised when an unreadable one is used."""
    convert = _VALUES.get(proto.type)
    if convert is None:
        return Unsupported(f"the attribute `{proto.name}` is of an unknown type")
    try:
        return convert(proto, read)
    except Unsupported as problem:
        return problem


def _text(value: bytes) -> str:
    return value.decode("utf-8", errors="replace")


# AttributeProto.AttributeType -> its value
_VALUES: dict[int, Callable[[Any, Reader], Any]] = {
    1: lambda a, read: a.f,
    2: lambda a, read: a.i,
    3: lambda a, read: _text(a.s),
    4: lambda a, read: read(a.t),
    5: lambda a, read: a.g,
    6: lambda a, read: list(a.floats),
    7: lambda a, read: list(a.ints),
    8: lambda a, read: [_text(s) for s in a.strings],
    9: lambda a, read: [read(t) for t in a.tensors],
    10: lambda a, read: list(a.graphs),
    11: lambda a, read: sparse_data(a.sparse_tensor),
    13: lambda a, read: a.tp,
}
