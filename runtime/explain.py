"""Explain rejected arguments: compare shapes and symbols with the manifest, for messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mlcc.errors import Diagnostic, error
from mlcc.runtime.manifest import SELECT, Constraint, Dim, evaluate, show, show_shape

_MAX_ELEMENTS = 1 << 31  # greater bounds stem from the limit on elements of a tensor

if TYPE_CHECKING:
    from mlcc.runtime.arguments import Argument


def actual_dims(argument: Argument) -> Iterator[tuple[int, Dim, int]]:
    """Yield (index, declared, actual) for every dimension of a tensor or shape argument, or a scalar's value."""
    leaf = argument.leaf
    if leaf.kind == "tensor" and argument.tensor is not None:
        yield from zip(range(len(leaf.dims)), leaf.dims, argument.tensor.shape, strict=True)
    elif leaf.kind == "shape":
        yield from zip(range(len(leaf.dims)), leaf.dims, argument.words, strict=True)
    elif leaf.kind == "scalar" and leaf.value is not None:
        word = argument.word
        yield 0, leaf.value, word - (1 << 64) if word >> 63 and leaf.code[0] == 0 else word


def bind_symbols(arguments: Sequence[Argument]) -> dict[str, int]:
    """Bind each symbol to the first dimension that it names, in order of the arguments."""
    return {name: value for name, (value, _) in _bindings(arguments).items()}


def _bindings(arguments: Sequence[Argument]) -> dict[str, tuple[int, Argument]]:
    bound: dict[str, tuple[int, Argument]] = {}
    for argument in arguments:
        for _, dim, value in actual_dims(argument):
            if isinstance(dim, str):
                bound.setdefault(dim, (value, argument))
    return bound


def differences(function: str, arguments: Sequence[Argument]) -> list[Diagnostic]:
    """Return one diagnostic per dimension that differs from its declaration, with the expected extent."""
    bound = _bindings(arguments)
    symbols = {name: value for name, (value, _) in bound.items()}
    diagnostics = []
    for argument in arguments:
        for index, dim, value in actual_dims(argument):
            if isinstance(dim, str):
                first, where = bound[dim]
                if first != value:
                    message = f"dim {dim} of `{where.name}` is {first}, of `{argument.name}` is {value}"
                    diagnostics.append(error("E0806", f"`{function}`: {message}"))
                continue
            try:
                expected = evaluate(dim, symbols)
            except (KeyError, ValueError):
                continue
            if expected != value:
                diagnostics.append(
                    error(
                        "E0805",
                        f"`{function}`: {_label(argument, index)} is {value}, {_expectation(argument, dim, expected)}",
                    )
                )
    return diagnostics


def violated(constraint: Constraint, symbols: Mapping[str, int]) -> str | None:
    """Return a message for a violated constraint; None if it holds, or cannot be evaluated here."""
    try:
        have, want = evaluate(constraint.have, symbols), evaluate(constraint.want, symbols)
    except (KeyError, ValueError):
        return None
    if have == want:
        return None
    name = "" if isinstance(constraint.want, int) else f"{show(constraint.want)} = "
    line = f", in line {constraint.line}" if constraint.line else ""
    match constraint.have:
        case ["min", count, int(upper)] if count == constraint.want and upper < _MAX_ELEMENTS:
            return f"{show(count)} is {want}, which is more than {upper}{line}"
        case ["max", count, int(lower)] if count == constraint.want:
            return f"{show(count)} is {want}, which is less than {lower}{line}"
        case ["min", count, int()] if count == constraint.want:
            return f"a tensor of {show(count)} = {want} elements is too large{line}"
        case [op, ["==", dim, 1], stretched, other] if op == SELECT and dim == other and stretched == constraint.want:
            return f"{show(dim)} is {have}, expected 1 or {name}{want}{line}"  # what broadcasts
    return f"{constraint.what} is {have}, expected {name}{want}{line}"


def _label(argument: Argument, index: int) -> str:
    if argument.leaf.kind == "scalar":
        return f"`{argument.name}`"
    return f"{'dim' if argument.leaf.kind == 'tensor' else 'value'} {index} of `{argument.name}`"


def _expectation(argument: Argument, dim: Dim, expected: int) -> str:
    why = f"expected {expected}" if isinstance(dim, int) else f"expected {show(dim)} = {expected}"
    if argument.leaf.kind != "tensor" or argument.tensor is None:
        return why
    return f"{why}: it has shape {argument.tensor.shape}, expected {show_shape(argument.leaf.dims)}"
