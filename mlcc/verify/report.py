"""The list of diagnostics; a node without a span gets the nearest known one."""

from __future__ import annotations

from typing import Any

from mlcc.errors import Diagnostic, Label, Severity, Span


class Report:
    """Diagnostics in the order in which they were added. `near` is the span of the last node that had one."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.nearest_span: Span | None = None

    def at(self, node: Any) -> None:
        """Remember the span of `node`, if it has one."""
        span = getattr(node, "span", None)
        if span is not None:
            self.nearest_span = span

    def add(
        self, code: str, message: str, node: Any = None, text: str = "", *, related: tuple[Label, ...] = (),
        help: str | None = None, severity: Severity = Severity.ERROR,
    ) -> None:  # fmt: skip
        """Add a diagnostic at `node`, or at the nearest known span."""
        span = getattr(node, "span", None) or self.nearest_span
        labels = tuple(label for label in related if label.span is not None or label.text)
        self.found.append(
            Diagnostic(
                code=code, message=message, primary=Label(span, text), related=labels, help=help, severity=severity
            )  # fmt: skip
        )

    def warn(self, code: str, message: str, node: Any = None, text: str = "", **more: Any) -> None:
        """Add a warning."""
        self.add(code, message, node, text, severity=Severity.WARNING, **more)
