"""Diagnostic codes: schedules, script."""

CODES: dict[str, tuple[str, str]] = {}
