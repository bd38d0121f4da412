"""Diagnostic codes: relax."""

from mlcc.codes.operators import CODES as OPERATORS
from mlcc.codes.relax_text import CODES as TEXT
from mlcc.codes.verifier import GRAPH

CODES: dict[str, tuple[str, str]] = {**TEXT, **OPERATORS, **GRAPH}
