"""Diagnostic codes: command line and files."""

CODES: dict[str, tuple[str, str]] = {}
