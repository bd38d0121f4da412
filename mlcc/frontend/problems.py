"""Diagnostics for nodes that cannot be imported, collected over the whole model and raised together."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcc.errors import CompileError, Diagnostic, Span, error
from mlcc.frontend.location import location_of

_PLACES_SHOWN = 3
_SUPPLY_HELP = "supply a converter with `--map FILE.py` or `custom_convert_map=`"


class Unsupported(Exception):
    """Raised by a converter for a node that it cannot express in relax, with the reason and help for the user."""

    def __init__(self, reason: str, help: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.help = help


@dataclass
class Problems:
    """Collects the nodes that cannot be imported."""

    _spans_by_problem: dict[tuple[str, str, str], list[Span]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self._spans_by_problem)

    def copy(self) -> Problems:
        """Return a copy to restore if a tentative conversion fails."""
        return Problems({key: list(spans) for key, spans in self._spans_by_problem.items()})

    def unknown(self, operator: str, span: Span) -> None:
        """Record a node whose operator has no converter."""
        self._spans_by_problem.setdefault((operator, "", _SUPPLY_HELP), []).append(span)

    def unsupported(self, operator: str, span: Span, problem: Unsupported) -> None:
        """Record a node that its converter rejects."""
        self._spans_by_problem.setdefault((operator, problem.reason, problem.help or _SUPPLY_HELP), []).append(span)

    def raise_all(self) -> None:
        """Raise CompileError if there are problems: one diagnostic per operator and reason, the most frequent first."""
        if self._spans_by_problem:
            ordered = sorted(self._spans_by_problem.items(), key=lambda item: (-len(item[1]), item[0]))
            raise CompileError([_diagnostic(*key, spans) for key, spans in ordered])


def _diagnostic(operator: str, reason: str, help: str, spans: list[Span]) -> Diagnostic:
    what = f"`{operator}`: {reason}" if reason else f"there is no converter for `{operator}`"
    message = f"{what}, {len(spans)}x: {_places(spans)}"
    return error("E1002" if reason else "E1001", message, spans[0], help=help)


def _places(spans: list[Span]) -> str:
    """Format the first few distinct source locations."""
    known = list(dict.fromkeys(str(location_of(span)) for span in spans))
    more = f" and {len(known) - _PLACES_SHOWN} more" if len(known) > _PLACES_SHOWN else ""
    return "; ".join(known[:_PLACES_SHOWN]) + more
