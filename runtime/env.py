"""Environments: files that register packed functions. They run with the user's rights, and only when named by hand."""

from __future__ import annotations

import ctypes
import os
import runpy

from mlcc.errors import LoadError, MlccError, error
from mlcc.runtime import registry
from mlcc.runtime.dlerror import loader_message
from mlcc.runtime.native_function import NativeFunction

REGISTRY_VERSION = 1
_AddFn = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)


class _Registry(ctypes.Structure):
    """`mlcc_registry` of the C interface: a version, an opaque handle, and the function that adds a name."""

    _fields_ = (("version", ctypes.c_int32), ("handle", ctypes.c_void_p), ("add", _AddFn))


_libraries: list[ctypes.CDLL] = []  # their functions are registered for good


def load_env(path: str) -> list[str]:
    """Run a Python file, or load a shared library, that registers packed functions; returns the names that it added.

    A Python file calls `mlcc.register_func`; a library exports `int mlcc_register(const mlcc_registry *)`. Raises
    LoadError.
    """
    before = {name: registry.get_func(name) for name in registry.registered()}
    if not os.path.isfile(path):
        raise LoadError(error("E0816", f"cannot load the environment {path}: no such file"))
    if path.endswith(".py"):
        _run_python(path)
    else:
        _load_library(path)
    return [n for n in registry.registered() if n not in before or registry.get_func(n) is not before[n]]


def _run_python(path: str) -> None:
    try:
        runpy.run_path(path, run_name="mlcc_env")
    except MlccError:
        raise
    except (Exception, SystemExit) as exc:
        raise LoadError(error("E0816", f"the environment {path} failed: {type(exc).__name__}: {exc}")) from exc


def _load_library(path: str) -> None:
    try:
        library = ctypes.CDLL(os.path.abspath(path))
        register = library.mlcc_register
    except (OSError, UnicodeDecodeError) as exc:
        raise LoadError(error("E0816", f"cannot load the environment {path}: {loader_message(exc)}")) from None
    except AttributeError:
        raise LoadError(
            error("E0816", f"{path} does not export mlcc_register", help="see `docs/abi.md`: packed functions in C")
        ) from None
    _libraries.append(library)
    wrong: list[str] = []

    def add(_handle: int | None, name: bytes | None, function: int | None, context: int | None) -> int:
        if not name or not function:
            wrong.append("a name or function is null")
            return 1
        text = name.decode("utf-8", "replace")
        registry.register_func(text, NativeFunction(text, function, context or 0), override=True)
        return 0

    callback = _AddFn(add)
    table = _Registry(REGISTRY_VERSION, None, callback)
    register.argtypes = (ctypes.c_void_p,)
    register.restype = ctypes.c_int
    code = register(ctypes.byref(table))
    if code != 0 or wrong:
        reason = wrong[0] if wrong else f"mlcc_register returned {code}"
        raise LoadError(error("E0816", f"the environment {path} failed: {reason}"))
