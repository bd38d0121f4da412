"""The table of converters: from the name of an ATen operator to the function that converts it to relax."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeAlias

# convert(t, **arguments) -> expression, number, or a list of these; `t` is the Translator, arguments have the names of
# the operator's schema: tensors are expressions, symbolic numbers `tir.Expr`, dtypes names
Converter: TypeAlias = Callable[..., Any]

_CONVERTERS: dict[str, Converter] = {}


def converts(*targets: str) -> Callable[[Converter], Converter]:
    """Register a converter: `aten.relu` for all overloads without their own entry, `aten.add.Tensor` for one."""

    def register(convert: Converter) -> Converter:
        for target in targets:
            if target in _CONVERTERS:
                raise ValueError(f"{target} has a converter already")
            _CONVERTERS[target] = convert
        return convert

    return register


def converter(target: str) -> Converter | None:
    """Return the converter of `aten.add.Tensor`, or else that of `aten.add`."""
    _load()
    found = _CONVERTERS.get(target)
    return found if found is not None else _CONVERTERS.get(target.rpartition(".")[0])


def targets() -> list[str]:
    """All operators that have a converter."""
    _load()
    return sorted(_CONVERTERS)


@functools.cache
def _load() -> None:
    from mlcc.frontend.aten import converters

    for module in pkgutil.iter_modules(converters.__path__):
        importlib.import_module(f"{converters.__name__}.{module.name}")
