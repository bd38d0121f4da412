"""Source locations of imported values: the node, module and source line of the model."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlcc.errors import Source, Span
from mlcc.grammar.printer.writer import Style
from mlcc.ops.short_form import omit_defaults

if TYPE_CHECKING:
    from mlcc.ir import relax

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A node of the source model."""

    operator: str  # as the source calls it: `aten.conv2d.default`, `Conv`
    node: str = ""  # the node's name
    module: str = ""  # the path of the module it belongs to: `layer1.0.conv1`
    kind: str = ""  # the class of that module: `Conv2d`
    line: str = ""  # the line of the user's program: `resnet.py:97`

    def __str__(self) -> str:
        """`layer1.0.conv1 (Conv2d) resnet.py:97`; the node's name if nothing else is known."""
        kind = f"({self.kind})" if self.kind and self.module else self.kind
        return " ".join(part for part in (self.module, kind, self.line) if part) or self.node or self.operator


@dataclass(frozen=True, slots=True, eq=False)
class ModelSource(Source):
    """An imported model as a text with one line per node, which diagnostics of all later stages can show."""

    places: tuple[SourceLocation, ...] = ()

    @property
    def is_model(self) -> bool:
        return True


def spans(model: str, places: Iterable[SourceLocation]) -> list[Span]:
    """Return a span for each source location, all in one source named `model`."""
    listed = tuple(places)
    lines = [_as_line(place) for place in listed]
    source = ModelSource(model, "\n".join(lines), places=listed)
    line_spans, start = [], 0
    for line in lines:
        line_spans.append(Span(source, start, start + len(line)))
        start += len(line) + 1
    return line_spans


def location_of(span: Span | None) -> SourceLocation | None:
    """Return the location in the source model for a span; None for spans of texts."""
    if span is None or not isinstance(span.source, ModelSource):
        return None
    line, _ = span.source.line_col(span.start)
    return span.source.places[line - 1]


def location_comment(binding: relax.Binding) -> str | None:
    """Return the comment printed after a binding: its location in the source model; None if that is just its name."""
    place = location_of(binding.span) or location_of(getattr(getattr(binding, "value", None), "span", None))
    shown = "" if place is None else str(place)
    return shown if shown not in ("", getattr(binding.var, "name", "")) else None


def _as_line(place: SourceLocation) -> str:
    where = str(place)
    named = f"{place.node} = {place.operator}" if place.node else place.operator
    return " ".join((named if where in (place.node, place.operator) else f"{named}  # {where}").split())


STYLE = Style(location_comment, omit_defaults)  # of the texts of imported models


def user_line(trace: str) -> str:
    """Return the innermost line of a PyTorch stack trace outside of torch itself: `resnet.py:97`."""
    frames = [(path, line) for path, line in _FRAME.findall(trace) if "/torch/" not in path.replace("\\", "/")]
    frames = [frame for frame in frames if not frame[0].startswith("<")] or frames
    return f"{os.path.basename(frames[-1][0])}:{frames[-1][1]}" if frames else ""
