"""Diagnostic codes: schedules, reductions."""

CODES: dict[str, tuple[str, str]] = {}
