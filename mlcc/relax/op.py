"""All operators as functions: `op.add(x, y)`, `op.nn.softmax(x, axis=-1)`.

They take expressions, scalars, and tensors of NumPy and other libraries, which become constants. Struct info is
inferred at once where that of the arguments is known. Raises CompileError for what does not fit.
"""

from __future__ import annotations

import inspect as _inspect  # `inspect` is a namespace of operators
from collections.abc import Callable
from typing import Any

from mlcc.ir import relax
from mlcc.ops import registry, signature
from mlcc.relax.op_call import call

_CALLS = ("call_dps_packed", "call_pure_packed", "call_tir", "call_tir_inplace")


class _Namespace:
    """The operators whose names begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        member = _find(self._prefix + name)
        if member is None:
            raise AttributeError(_unknown(self._prefix, name))
        setattr(self, name, member)
        return member

    def __dir__(self) -> list[str]:
        return _members(self._prefix)

    def __repr__(self) -> str:
        return f"<operators relax.op.{self._prefix}*>"


def _find(path: str) -> Any:
    if path.rpartition(".")[2].startswith("__"):
        return None
    if path in _CALLS:
        from mlcc.relax import calls

        return getattr(calls, path)
    if registry.is_operator(path):
        return _function(path)
    prefix = path + "."
    known = [n for n in (*_short_names(), *registry.aliases()) if n.startswith(prefix)]
    return _Namespace(prefix) if known else None


def _short_names() -> list[str]:
    return [n[len("relax.") :] for n in registry.names()]


def _members(prefix: str) -> list[str]:
    names = {n[len(prefix) :].split(".")[0] for n in _short_names() if n.startswith(prefix)}
    return sorted(names)


def _unknown(prefix: str, name: str) -> str:
    from mlcc.ops.meant import meant_operator

    meant = meant_operator(prefix + name)
    return f"there is no operator `{prefix}{name}`" + (f"; did you mean `{meant}`?" if meant else "")


def _function(path: str) -> Callable[..., relax.Call]:
    def operator(*args: Any, **kwargs: Any) -> relax.Call:
        return call(path, *args, **kwargs)

    operator.__name__ = operator.__qualname__ = path.rpartition(".")[2]
    operator.__doc__ = f"The operator `relax.{path}`; see docs/ops.md."
    declared = signature.signature(path)
    if declared is not None:
        operator.__signature__ = _python_signature(declared)  # type: ignore[attr-defined]
    return operator


def _python_signature(declared: signature.Signature) -> _inspect.Signature:
    """The parameters as `help()` shows them."""
    kind, parameters = _inspect.Parameter.POSITIONAL_OR_KEYWORD, []
    for param in declared.params:
        if param.kind == "rest":
            parameters.append(_inspect.Parameter(param.name, _inspect.Parameter.VAR_POSITIONAL))
            kind = _inspect.Parameter.KEYWORD_ONLY  # type: ignore[assignment]
            continue
        needed = param.required
        default = _inspect.Parameter.empty if needed else (None if param.default_from else param.default)
        parameters.append(_inspect.Parameter(param.name, kind, default=default))
    try:
        return _inspect.Signature(parameters)
    except ValueError:  # a parameter without default after one with
        return _inspect.Signature([p.replace(default=_inspect.Parameter.empty) for p in parameters])


def __getattr__(name: str) -> Any:
    member = _find(name)
    if member is None:
        raise AttributeError(_unknown("", name))
    globals()[name] = member
    return member


def __dir__() -> list[str]:
    return sorted({*_members(""), "call"})
