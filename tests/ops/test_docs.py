"""The table in docs/ops-tables.md says what the library has."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc import ops

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops-tables.md"
HEAD = "| operator | has | fusion kind |\n| --- | --- | --- |\n"


def table() -> str:
    """One line per operator."""
    lines = []
    for name in ops.names():
        op = ops.get(name)
        assert op is not None
        lowered = op.impl.lower or op.impl.expand
        has = "".join(m for m, f in zip("irl", (op.impl.infer, op.impl.numpy, lowered), strict=True) if f)
        lines.append(f"| `{op.short}` | {has or 'parameters'} | {op.kind.name.lower() if lowered else ''} |\n")
    return HEAD + "".join(sorted(lines))


def test_table_is_up_to_date(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    before = text.partition(HEAD)[0].rstrip("\n") + "\n\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + table())
    assert PAGE.read_text() == before + table()
