"""Diagnostic codes: targets."""

CODES: dict[str, tuple[str, str]] = {}
