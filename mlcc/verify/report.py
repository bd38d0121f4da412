"""Where findings gather, with the nearest known place for nodes that have none."""

from __future__ import annotations

from typing import Any

from mlcc.errors import Diagnostic, Label, Severity, Span


class Report:
    """Findings in the order they were made. `near` is the place of the last node that had one."""

    def __init__(self) -> None:
        self.found: list[Diagnostic] = []
        self.near: Span | None = None

    def at(self, node: Any) -> None:
        """Remember the place of `node`, if it has one."""
        span = getattr(node, "span", None)
        if span is not None:
            self.near = span

    def add(
        self, code: str, message: str, node: Any = None, text: str = "", *, related: tuple[Label, ...] = (),
        help: str | None = None, severity: Severity = Severity.ERROR,
    ) -> None:  # fmt: skip
        """One finding at `node`, or at the nearest place known."""
        span = getattr(node, "span", None) or self.near
        labels = tuple(label for label in related if label.span is not None or label.text)
        self.found.append(
            Diagnostic(
                code=code, message=message, primary=Label(span, text), related=labels, help=help, severity=severity
            )  # fmt: skip
        )

    def warn(self, code: str, message: str, node: Any = None, text: str = "", **more: Any) -> None:
        """A finding that is no error."""
        self.add(code, message, node, text, severity=Severity.WARNING, **more)
