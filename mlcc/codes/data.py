"""Diagnostic codes: constants and data."""

CODES: dict[str, tuple[str, str]] = {}
