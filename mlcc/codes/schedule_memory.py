"""Diagnostic codes: schedules, memory."""

CODES: dict[str, tuple[str, str]] = {}
