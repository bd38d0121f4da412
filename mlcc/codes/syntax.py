"""Diagnostic codes: syntax."""

CODES: dict[str, tuple[str, str]] = {}
