"""Functions: those that a model defines, and those that define operators in ONNX schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlcc.frontend.onnx.elements import NUMBERS
from mlcc.frontend.onnx.node import OnnxNode, canonical_domain
from mlcc.frontend.onnx.schemas import schema_of
from mlcc.frontend.problems import Unsupported

if TYPE_CHECKING:
    import onnx

MAX_CALL_DEPTH = 64  # nesting of calls


class Functions:
    """The functions that nodes may call, and the stack of functions being inlined."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = {(canonical_domain(f.domain), f.name, f.overload): f for f in model.functions}
        self._inside: list[str] = []

    def of_model(self, node: OnnxNode) -> onnx.FunctionProto | None:
        """Return the function of the model that a node calls, if there is one."""
        return self._model.get((node.domain, node.operator, node.proto.overload)) if self._model else None

    def of_schema(self, node: OnnxNode, types: Sequence[str | None]) -> onnx.FunctionProto | None:
        """Return the function body of a node's schema; None if the schema has none."""
        import onnx

        schema = schema_of(node.operator, node.version, node.domain)
        if schema is None:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        try:
            body = schema.get_context_dependent_function(
                node.proto.SerializeToString(), [_serialized_type(dtype) for dtype in types]
            )
        except (RuntimeError, ValueError, TypeError):
            return None
        function = onnx.FunctionProto()
        function.ParseFromString(body)
        return function if function.node else None

    @contextmanager
    def entered(self, function: onnx.FunctionProto) -> Iterator[None]:
        """Context manager for the walk of a function's body. Raises Unsupported for recursion."""
        key = f"{function.domain}.{function.name}.{function.overload}"
        if key in self._inside or len(self._inside) >= MAX_CALL_DEPTH:
            raise Unsupported("it is recursive")
        self._inside.append(key)
        try:
            yield
        finally:
            self._inside.pop()


def _serialized_type(dtype: str | None) -> bytes:
    """Return a serialized tensor type for the ONNX schemas."""
    import onnx

    kind: Any = onnx.TypeProto()
    if dtype is not None:
        kind.tensor_type.elem_type = NUMBERS[dtype]
    return kind.SerializeToString()
