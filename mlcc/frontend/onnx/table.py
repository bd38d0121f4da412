"""The table of converters: the function that converts an ONNX operator of some version to relax."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeAlias

# convert(t, node, *inputs) -> expression, or a list of several; absent optional inputs are None
Converter: TypeAlias = Callable[..., Any]

_CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}


def converts(*operators: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register a converter for operators of a domain, from this opset up to the next registered one."""

    def register(convert: Converter) -> Converter:
        for operator in operators:
            versions = _CONVERTERS.setdefault((domain, operator), {})
            if since in versions:
                raise ValueError(f"{operator} of version {since} has a converter already")
            versions[since] = convert
        return convert

    return register


def converter(domain: str, operator: str, version: int) -> Converter | None:
    """Return the converter of an operator in opset `version` of its domain."""
    _load()
    versions = _CONVERTERS.get(("" if domain == "ai.onnx" else domain, operator), {})
    known = [since for since in versions if since <= version]
    return versions[max(known)] if known else None


def operators() -> list[tuple[str, str, int]]:
    """All (domain, operator, first version) that have a converter."""
    _load()
    return sorted((domain, name, since) for (domain, name), versions in _CONVERTERS.items() for since in versions)


@functools.cache
def _load() -> None:
    from mlcc.frontend.onnx import converters

    for module in pkgutil.iter_modules(converters.__path__):
        importlib.import_module(f"{converters.__name__}.{module.name}")
