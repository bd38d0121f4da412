"""Diagnostic codes: relax."""

from mlcc.codes.operators import CODES as OPERATORS

CODES: dict[str, tuple[str, str]] = {**OPERATORS}
