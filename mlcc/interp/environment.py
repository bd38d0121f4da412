"""Lookup of functions that a program calls by name: packed functions and externs, from `env` or the registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mlcc.errors import did_you_mean
from mlcc.interp.arithmetic import stored
from mlcc.interp.memory import Pointer
from mlcc.ir import tir
from mlcc.ir.dtypes import DType
from mlcc.runtime import registry

if TYPE_CHECKING:
    from mlcc.interp.state import State


_BUILTIN: dict[str, Callable[..., Any]] = {  # what passes write, under the names that TVM's machine has for it
    "vm.builtin.tensor_to_shape": lambda vector: tuple(int(n) for n in vector),
}


def find(name: str, env: Any) -> Callable[..., Any] | None:
    """The function of that name: from `env`, the registry of packed functions, or those built in."""
    if name in env:
        return env[name]  # type: ignore[no-any-return]
    return registry.get_func(name) or _BUILTIN.get(name)


def known_names(env: Any) -> list[str]:
    """The known names, for suggestions."""
    return [*map(str, env), *registry.registered()]


def to_packed(value: Any, dtype: DType | None = None) -> Any:
    """A value as a packed function sees it: Python numbers, strings, and arrays that share memory."""
    if isinstance(value, Pointer):
        element = stored(dtype) if dtype is not None and not dtype.is_handle else None
        kind = element or np.dtype(np.uint8)
        data = value.storage.typed(kind)
        return data[int(value.offset) // kind.itemsize :]
    if isinstance(value, np.generic):
        return value.item()
    return value


def typed_pointer(value: Any, node: tir.Expr) -> Any:
    """Return a pointer argument as a one-dimensional array of the pointer's declared element type."""
    if not isinstance(value, Pointer):
        return to_packed(value)
    kind: DType | None = None
    if isinstance(node, tir.Var) and node.pointer is not None:
        kind = node.pointer.dtype
    elif isinstance(node, tir.Call) and node.args:
        first = node.args[0]
        kind = first.dtype if not first.dtype.is_handle else None
    if value.storage.defined is not None:
        value.storage.defined[:] = True  # the callee may write any of it
    return to_packed(value, kind or _default_element_type(value))


def _default_element_type(value: Pointer) -> DType:
    return DType.of({1: "uint8", 2: "uint16", 4: "float32", 8: "float64"}[value.storage.itemsize])


def call_extern(name: str, args: list[Any], node: tir.Call, s: State) -> Any:
    """Call a C function that the environment provides."""
    return _call(name, args, list(node.args[1:]), node, s, "extern function")


def call_packed(name: str, args: list[Any], dtypes: list[DType], node: tir.Call, s: State) -> Any:
    """Call a packed function."""
    return _call(name, args, list(node.args[1:]), node, s, "packed function")


def _call(name: str, args: list[Any], nodes: list[tir.Expr], node: tir.Call, s: State, what: str) -> Any:
    function = find(name, s.env)
    if function is None:
        hint = did_you_mean(name, known_names(s.env))
        s.fault("E0811", f"no {what} `{name}` is registered{'; ' + hint if hint else ''}", node)
    arguments = [typed_pointer(a, n) for a, n in zip(args, nodes, strict=True)]
    result = function(*arguments)
    if result is None:
        return np.int32(0)
    return result if node.dtype.is_handle or node.dtype.is_void else np.asarray(result).astype(stored(node.dtype))[()]
