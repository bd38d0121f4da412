"""Diagnostic codes: names and scopes."""

CODES: dict[str, tuple[str, str]] = {}
