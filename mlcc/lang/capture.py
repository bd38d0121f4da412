"""Names of a program in the text that it decorates: each value becomes one of the language, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from mlcc.grammar.context import UNKNOWN, Alias, TypeVar, Unavailable
from mlcc.ir import construct, relax, tir
from mlcc.ir.dtypes import DType
from mlcc.ir.module import IRModule
from mlcc.lang.placeholder import Placeholder
from mlcc.relax import convert

_PLAIN = (bool, int, float, str, type(None))
_COMPUTE = "compute what is needed before, and give it a name: numbers, strings, tuples, dtypes and arrays can be used"
_FUNCTION = "nothing of Python runs in a text: call functions of the module, or `R.call_dps_packed` for one of Python"
_OTHER_TEXT = "put both functions into one class under `@I.ir_module`, and call it as `cls.f`"
_ARRAY = 'give it a dtype that tensors have: array.astype("float32")'


def lookup(namespaces: Iterable[Mapping[str, Any]], aliases: Mapping[int, str]) -> Callable[[str], Any]:
    """Return the function that gives what a name means in the text: the first of the namespaces that has it counts.

    `aliases` maps the ids of decorators and modules of the language to their names in the text.
    """
    scopes = list(namespaces)

    def meaning(name: str) -> Any:
        for scope in scopes:
            if name in scope:
                value = scope[name]
                return Alias(aliases[id(value)]) if id(value) in aliases else in_text(name, value)
        return UNKNOWN

    return meaning


def in_text(name: str, value: Any) -> Any:
    """Return what a value of Python is in a text, or `Unavailable`."""
    if isinstance(value, ModuleType):
        return UNKNOWN  # messages on `np.exp` and its kin know more
    if isinstance(value, Placeholder):
        return _of_placeholder(name, value)
    if isinstance(value, np.ndarray) and value.ndim:
        return _constant(value)
    if isinstance(value, relax.Constant):
        return value
    plain = _plain(value)
    return Unavailable(*_described(value)) if plain is UNKNOWN else plain


def _plain(value: Any) -> Any:
    """Return a number, a string, a dtype or a scalar expression, or a tuple, list or dict of these; else `UNKNOWN`."""
    value = convert.unwrap(value)
    if type(value) in _PLAIN or isinstance(value, (DType, tir.IntImm, tir.FloatImm, tir.Var)):
        return value
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, int):
        return int.__index__(value)  # a member of an IntEnum
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, (tuple, list)):
        items = [_plain(item) for item in value]
        if any(item is UNKNOWN for item in items):
            return UNKNOWN
        return tuple(items) if isinstance(value, tuple) else items
    if isinstance(value, dict):
        entries = {key: _plain(item) for key, item in value.items()}
        known = all(isinstance(key, str) and item is not UNKNOWN for key, item in entries.items())
        return entries if known else UNKNOWN
    return UNKNOWN


def _constant(value: np.ndarray) -> Any:
    try:
        return convert.constant(value.copy())  # the program may write to its array later
    except (ValueError, TypeError):
        return Unavailable(f"an array of {value.dtype}", _ARRAY)


def _of_placeholder(name: str, value: Placeholder) -> Any:
    """Return what `T.Buffer` (a name), `T.int64()` (a symbolic variable) or `T.float32(2)` (a constant) means."""
    if value.args is None:
        return Alias(value.path)
    path, args = value.path, value.args
    if path in ("T.var", "T.Var") and args and isinstance(args[-1], str):
        path, args = f"T.{args[-1]}", ()
    try:
        dtype = DType.of(path.removeprefix("T."))
    except ValueError:
        return Unavailable("an expression of the language outside a text", "write it in the function that needs it")
    if not args:
        return TypeVar(name, dtype)
    if len(args) == 1 and isinstance(args[0], (bool, int, float)):
        return construct.const(args[0], dtype)
    return Unavailable("an expression of the language outside a text", "write it in the function that needs it")


def _described(value: Any) -> tuple[str, str]:
    """Describe a value for the message, with the help."""
    if isinstance(value, (tir.PrimFunc, relax.Function, IRModule)):
        kind = {tir.PrimFunc: "a PrimFunc", IRModule: "a module"}.get(type(value), "a relax function")
        return f"{kind} of its own", _OTHER_TEXT
    if isinstance(value, (FunctionType, BuiltinFunctionType, MethodType)):
        return "a function of Python", _FUNCTION
    if isinstance(value, type):
        return "a class of Python", _COMPUTE
    if isinstance(value, (tuple, list, dict)):
        return f"a {type(value).__name__} with more than numbers and strings in it", _COMPUTE
    article = "an" if type(value).__name__[0].lower() in "aeiou" else "a"
    return f"{article} {type(value).__name__} of Python", _COMPUTE
