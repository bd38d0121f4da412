"""Texts that parse and break a rule: every violation is announced on its line, and no other is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mlcc
from mlcc.codes import codes
from mlcc.verify import buildable, lint, verify

CASES = sorted((Path(__file__).parent / "cases").glob("*.mlc"))
MARK = re.compile(r"# (error|warning)\[([EW]\d{4})\]: (.*)$")


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_announced_violations_are_found(case: Path) -> None:
    text = case.read_text()
    announced = []
    for number, line in enumerate(text.splitlines(), 1):
        found = MARK.search(line)
        if found:
            announced.append((number, *found.groups()))
    module = mlcc.parse(text, name=case.name)
    made = []
    more = buildable(module) if text.startswith("# build") else lint(module) if text.startswith("# warnings") else []
    for finding in verify(module) + more:
        span = finding.primary.span
        assert span is not None, finding
        made.append((span.source.line_col(span.start)[0], finding.severity.value, finding.code, finding.message))
    assert [m[:3] for m in sorted(made)] == [a[:3] for a in announced]
    for (number, *_, said), (_, _, _, message) in zip(announced, sorted(made), strict=True):
        assert said in message, f"line {number}: {message}"


def test_codes_are_explained() -> None:
    known = codes()
    used = {code for case in CASES for _, code, _ in MARK.findall(case.read_text())}
    assert used <= set(known)
