"""Check nodes against the schemas of their operators: attributes and their types, numbers of inputs and outputs."""

from __future__ import annotations

import functools
from typing import Any

from mlcc.frontend.onnx.node import OnnxNode
from mlcc.frontend.problems import Unsupported

_SINGLE = 0  # an input that is neither optional nor variadic


@functools.lru_cache(maxsize=4096)
def schema_of(operator: str, version: int, domain: str) -> Any:
    """Return the schema of an operator in a version of its domain; None if the onnx package does not know it."""
    import onnx

    try:
        return onnx.defs.get_schema(operator, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: a version beyond 32 bits
        return None


def check(node: OnnxNode) -> None:
    """Raise Unsupported for a node that violates its schema. Nodes without a schema are not checked."""
    schema = schema_of(node.operator, node.version, node.domain)
    if schema is None:
        return
    for what, names, least, most in (
        ("inputs", node.inputs, schema.min_input, schema.max_input),
        ("outputs", node.outputs, schema.min_output, schema.max_output),
    ):
        if not least <= len(names) <= most:
            raise Unsupported(f"it has {len(names)} {what}, but its schema has {_count_range(least, most)}")
    for formal, name in zip(schema.inputs, node.inputs, strict=False):
        if formal.option.value == _SINGLE and not name:
            raise Unsupported(f"its input `{formal.name}` is missing")
    known = schema.attributes
    for given in node.proto.attribute:
        attribute = known.get(given.name)
        if attribute is None:
            raise Unsupported(f"its attribute `{given.name}` is not in its schema")
        if int(attribute.type.value) != given.type:
            raise Unsupported(f"its attribute `{given.name}` is not of the type in its schema")
    for name, attribute in known.items():
        if attribute.required and name not in node.attributes:
            raise Unsupported(f"its attribute `{name}` is missing")


def _count_range(least: int, most: int) -> str:
    return f"{least}" if least == most else f"{least} to {most}"
