"""The table in docs/ops.md says what the library has."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcc import ops

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
HEAD = "| operator | has | fusion kind |\n| --- | --- | --- |\n"


def table() -> str:
    """One line per group of operators that are alike; those known by signature alone come last."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name in ops.names():
        op = ops.get(name)
        assert op is not None
        lowered = op.impl.lower or op.impl.expand
        has = "".join(m for m, f in zip("irl", (op.impl.infer, op.impl.numpy, lowered), strict=True) if f)
        kind = op.kind.name.lower() if lowered else ""
        groups.setdefault((has, kind), []).append(op.short)
    lines = []
    for (has, kind), members in sorted(groups.items(), key=lambda g: (-len(g[0][0]), g[0])):
        lines.append(f"| {', '.join(f'`{m}`' for m in members)} | {has or 'parameters only'} | {kind} |\n")
    return HEAD + "".join(lines)


def test_table(request: pytest.FixtureRequest) -> None:
    text = PAGE.read_text()
    before = text.partition(HEAD)[0].rstrip("\n") + "\n\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(before + table())
    assert PAGE.read_text() == before + table()
