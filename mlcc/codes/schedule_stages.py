"""Diagnostic codes: schedules, stages."""

CODES: dict[str, tuple[str, str]] = {}
