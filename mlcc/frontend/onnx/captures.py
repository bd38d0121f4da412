"""Closure conversion: the captured values of a subgraph that becomes a separate function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mlcc.frontend.onnx.order import captured_names
from mlcc.frontend.onnx.shape_folding import KnownTensor
from mlcc.ir import relax

if TYPE_CHECKING:
    import onnx

    from mlcc.frontend.onnx.translate import OnnxTranslator, Value


class Captures:
    """The outer values that a subgraph captures. `variables` must be passed to a function made from it."""

    def __init__(self, t: OnnxTranslator, graph: onnx.GraphProto) -> None:
        self._t = t
        self._values = {name: t.values[name] for name in sorted(captured_names(graph)) if name and name in t.values}
        self.variables: list[relax.Var] = []
        for value in self._values.values():
            _substitute(value, self._record)

    def _record(self, var: relax.Var) -> relax.Var:
        if var not in self.variables:
            self.variables.append(var)
        return var

    @contextmanager
    def substituted(self, given: Sequence[relax.Expr]) -> Iterator[None]:
        """Context manager: substitute `given` for the captured variables and hide all other outer values."""
        by_var = dict(zip(self.variables, given, strict=True))
        before = self._t.values
        self._t.values = {"": None, **{name: _substitute(v, by_var.__getitem__) for name, v in self._values.items()}}
        try:
            yield
        finally:
            self._t.values = before


def _substitute(value: Value, rule: Callable[[relax.Var], relax.Expr]) -> Value:
    """Substitute the variables of a value. Known integers are copied, so that new tensors are emitted for them."""
    if isinstance(value, relax.Var):
        return rule(value)
    if isinstance(value, KnownTensor):
        return KnownTensor(value.elements, value.dtype)
    return [_substitute(v, rule) for v in value] if isinstance(value, list) else value
