"""Diagnostic codes: run time."""

CODES: dict[str, tuple[str, str]] = {}
