"""Diagnostic codes: schedules, tensors."""

CODES: dict[str, tuple[str, str]] = {}
