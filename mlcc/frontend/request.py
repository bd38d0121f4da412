"""The user's options for an import: shapes of inputs, ranges of sizes, custom converters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from mlcc.errors import CompileError, error

Extent: TypeAlias = int | str  # a number, or the name of a symbol
Range: TypeAlias = tuple[int | None, int | None]  # the least and the greatest value

_MAX_INT64 = (1 << 63) - 1
_DIM = re.compile(r"(?:(\d{1,19})|([A-Za-z_]\w*)(?::(\d{0,19})\.\.(\d{0,19}))?)")
_RANGE = re.compile(r"([A-Za-z_]\w*)[:=](\d{0,19})\.\.(\d{0,19})")
_SIZE = re.compile(r"([A-Za-z_]\w*)=(\d{1,19})")


@dataclass(frozen=True)
class Request:
    """The options of an import.

    `converters` map the importer's names of operators to functions, which take precedence over its table.
    With `allow_packed`, operators without a converter become calls of packed functions; with `state_as_inputs`, buffers
    that the model changes become parameters.
    """

    shapes: Mapping[str, tuple[Extent, ...]] = field(default_factory=dict)  # of inputs
    ranges: Mapping[str, Range] = field(default_factory=dict)  # of symbols
    converters: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    allow_packed: bool = False
    state_as_inputs: bool = False


def parse_shapes(texts: Iterable[str]) -> tuple[dict[str, tuple[Extent, ...]], dict[str, Range]]:
    """Parse shapes and ranges from texts such as `x=b,3,224,224` and `ids=b:1..64,s`. Raises CompileError E1075."""
    shapes: dict[str, tuple[Extent, ...]] = {}
    ranges: dict[str, Range] = {}
    for text in texts:
        name, _, dims = text.rpartition("=")
        matches = [_DIM.fullmatch(part.strip()) for part in dims.split(",")] if dims.strip() else []
        if not name or any(match is None for match in matches):
            raise _request_error(
                f"`{text}` is not a shape", "write NAME=EXTENT,...: `x=b,3,224,224`, or `x=b:1..64,3` with a range"
            )
        if name in shapes:
            raise _request_error(f"the shape of `{name}` is given twice", None)
        shapes[name] = tuple(int(match[1]) if match[1] else match[2] for match in matches if match is not None)
        for match in matches:
            if match is not None and match[3] is not None:
                _add_range(ranges, match[2], match[3], match[4])
    return shapes, ranges


def parse_ranges(texts: Iterable[str], ranges: dict[str, Range]) -> dict[str, Range]:
    """Add the ranges of texts such as `b:1..64` and `s:1..` to a copy of `ranges`. Raises CompileError E1075."""
    merged = dict(ranges)
    for text in texts:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise _request_error(f"`{text}` is not a range", "write NAME:MIN..MAX; either number may be omitted")
        _add_range(merged, match[1], match[2], match[3])
    return merged


def parse_sizes(texts: Iterable[str]) -> dict[str, int]:
    """Parse the values of symbols from texts such as `b=2`. Raises CompileError E1075."""
    sizes = {}
    for text in texts:
        match = _SIZE.fullmatch(text)
        if match is None:
            raise _request_error(f"`{text}` is not a size", "write NAME=NUMBER")
        sizes[match[1]] = int(match[2])
    return sizes


def _add_range(ranges: dict[str, Range], name: str, least: str, greatest: str) -> None:
    bounds = (int(least) if least else None, int(greatest) if greatest else None)
    if ranges.setdefault(name, bounds) != bounds:
        raise _request_error(f"`{name}` has two ranges", None)
    if (bounds[0] or 0) > (_MAX_INT64 if bounds[1] is None else bounds[1]):
        raise _request_error(f"the range of `{name}` is empty", None)


def _request_error(message: str, help: str | None) -> CompileError:
    return CompileError(error("E1075", message, help=help))
