"""Diagnostic codes: schedules, analysis."""

CODES: dict[str, tuple[str, str]] = {}
