"""Diagnostic codes: relax."""

CODES: dict[str, tuple[str, str]] = {}
