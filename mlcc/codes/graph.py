"""Diagnostic codes: relax."""

from mlcc.codes.operators import CODES as OPERATORS
from mlcc.codes.relax_text import CODES as TEXT

CODES: dict[str, tuple[str, str]] = {**TEXT, **OPERATORS}
