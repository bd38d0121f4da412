"""The registry of packed functions: what `R.call_dps_packed("env.linear", ...)` finds by its name.

One of the project's two process-wide registries. Names are looked up when they are called, so registration may come
before or after loading.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mlcc.errors import CallError, did_you_mean, error


def _print(format: str, *values: Any) -> None:
    """Implement R.print: print the values in the places of `{}` in the format, or separated by spaces."""
    shown = [v.bits if hasattr(v, "bits") else v for v in values]
    try:
        print(format.format(*shown) if format else " ".join(map(str, shown)))
    except (IndexError, KeyError, ValueError):
        print(format, *shown)


DEVICES = ("cuda",)
_functions: dict[str, Callable[..., Any]] = {"mlcc.print": _print}
_lock = threading.Lock()
_version = 0


def register_func(
    name: str | Callable[..., Any], f: Callable[..., Any] | None = None, override: bool = False,
    device: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """Register `f` under `name` for packed calls; without `f`, a decorator. A bare decorator takes the function's name.

    `f` gets arrays over the caller's memory, inputs first, and writes its results into the last. Code for a device
    calls the function registered for it (`device="cuda"`) with arrays in the device's memory, which share it by DLPack;
    where there is none, the one for the CPU gets copies. Raises CallError if the name is taken and `override` not set.
    """
    if callable(name):
        return _add(name.__name__, name, override, device)
    if f is None:
        return lambda made: _add(name, made, override, device)
    return _add(name, f, override, device)


def _add(name: str, f: Callable[..., Any], override: bool, device: str | None) -> Callable[..., Any]:
    global _version
    if not isinstance(name, str) or not callable(f):
        raise CallError(error("E0815", "register_func takes a name and a function"))
    if device not in (None, *DEVICES):
        raise CallError(error("E0815", f"no device `{device}`", help=f"known are {', '.join(DEVICES)}"))
    key = _key(name, device)
    with _lock:
        if key in _functions and not override:
            raise CallError(
                error("E0815", f"a packed function `{name}` is registered already", help="override=True replaces it")
            )
        _functions[key] = f
        _version += 1
    return f


def _key(name: str, device: str | None) -> str:
    return name if device is None else f"{name}\0{device}"


def get_func(name: str, device: str | None = None) -> Callable[..., Any] | None:
    """The function registered under `name`, for the CPU or a device, or None."""
    return _functions.get(_key(name, device))


def remove_func(name: str, device: str | None = None) -> None:
    """Forget a name; nothing happens if it is not registered."""
    global _version
    with _lock:
        _functions.pop(_key(name, device), None)
        _version += 1


def registered() -> list[str]:
    """All names, sorted."""
    return sorted({key.partition("\0")[0] for key in _functions})


def version() -> int:
    """A number that changes with every registration."""
    return _version


def missing(name: str) -> CallError:
    """Return the error for an unregistered packed function."""
    hint = did_you_mean(name, registered()) or 'register it: mlcc.register_func("' + name + '", f), or pass --env FILE'
    return CallError(error("E0811", f"no packed function `{name}` is registered", help=hint))
