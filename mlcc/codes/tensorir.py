"""Diagnostic codes: TensorIR."""

CODES: dict[str, tuple[str, str]] = {}
