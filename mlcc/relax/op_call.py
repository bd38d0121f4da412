"""Calls of operators by name, with arguments as people write them in Python."""

from __future__ import annotations

from typing import Any

from mlcc.ir import relax
from mlcc.ops import registry, signature
from mlcc.relax import convert

_GRAPH_KINDS = ("expr", "exprs", "rest")


def call(name: str, *args: Any, **kwargs: Any) -> relax.Call:
    """The call of the operator `name` (`add`, `nn.relu`, ...)."""
    declared = signature.signature(name)
    kinds = [] if declared is None else [p.kind for p in declared.params]
    at = [kinds[i] if i < len(kinds) else (kinds[-1] if kinds else "expr") for i in range(len(args))]
    by_name = {} if declared is None else {p.name: p.kind for p in declared.params}
    positional = tuple(_argument(a, kind) for a, kind in zip(args, at, strict=True))
    keywords = {k: _argument(a, by_name.get(k, "expr")) for k, a in kwargs.items()}
    return registry.bind_call(name, positional, keywords)


def _argument(value: Any, kind: str) -> Any:
    """Convert `value` for the operators' binder: arrays are constants where a tensor is expected, else numbers."""
    if kind in _GRAPH_KINDS and convert.is_array(value) and not isinstance(value, (bool, int, float)):
        return convert.constant(value)
    value = convert.unwrap(value)
    if isinstance(value, (list, tuple)):
        return tuple(_argument(v, kind) for v in value)
    if kind not in _GRAPH_KINDS and convert.is_array(value):
        return tuple(convert.array_of(value).tolist())
    if isinstance(value, type) or type(value).__module__.startswith("numpy"):
        return str(convert.dtype_of(value)) if kind in ("dtype", "datatype") else value
    return value
