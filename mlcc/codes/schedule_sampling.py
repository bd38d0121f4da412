"""Diagnostic codes: schedules, sampling."""

CODES: dict[str, tuple[str, str]] = {}
