"""Each case begins with `# PASSES: ...`; the text that comes out lies beside it. `make golden` rewrites those."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import mlcc
from mlcc.driver import parse_file
from mlcc.passes.manage.reproducer import directive
from mlcc.verify import check

HERE = Path(__file__).resolve().parent / "cases"
CASES = sorted(HERE.glob("*.mlc"))


@pytest.mark.parametrize("case", CASES, ids=lambda p: p.stem)
def test_cases_match_their_golden_files(case: Path, golden: Callable[[Path, str], None]) -> None:
    module = parse_file(str(case))
    before = mlcc.script(module)
    pipeline = directive(case.read_text())
    assert pipeline is not None, "the first line names the passes"
    made = mlcc.run_passes(module, pipeline, folder=str(HERE))
    check(made)
    text = mlcc.script(made)
    again = mlcc.parse(text, name="printed.mlc")
    mlcc.assert_structural_equal(made, again)
    assert mlcc.script(again) == text
    assert mlcc.script(module) == before
    golden(case.with_suffix(".expected"), text)


def test_there_are_cases() -> None:
    assert CASES
