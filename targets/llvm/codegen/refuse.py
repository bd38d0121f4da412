"""The diagnostics of code generation."""

from __future__ import annotations

from mlcc.errors import CompileError, Span, error


def unsupported(message: str, span: Span | None = None, text: str = "", help: str | None = None) -> CompileError:
    """The error for a construct that this target refuses."""
    return CompileError(error("E0701", message, span, text, help=help))
