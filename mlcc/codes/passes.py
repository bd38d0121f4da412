"""Diagnostic codes: passes."""

CODES: dict[str, tuple[str, str]] = {}
