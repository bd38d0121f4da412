"""Diagnostic codes: schedules."""

CODES: dict[str, tuple[str, str]] = {}
