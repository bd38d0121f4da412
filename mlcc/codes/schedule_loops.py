"""Diagnostic codes: schedules, loops."""

CODES: dict[str, tuple[str, str]] = {}
