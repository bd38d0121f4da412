"""The backend suite of ONNX: no wrong numbers, no crash, and no more refused than docs/onnx.md says."""

from __future__ import annotations

import zlib

import pytest

from tests.frontend.onnx_suite import cases, report
from tests.frontend.onnx_suite.cases import SuiteCase
from tests.frontend.onnx_suite.verdicts import State, compiled, judge

pytestmark = pytest.mark.usefixtures("onnx")

PARTS = 4
COMPILED = 40  # one case in so many is compiled as well


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())


@pytest.mark.parametrize("part", range(PARTS))
def test_interpreted_cases_agree(part: int) -> None:
    """All cases in both modes, an operator's together."""
    mine = [case for case in cases.all_cases() if _hash(case.operator) % PARTS == part]
    verdicts = [judge(case, mode) for case in mine for mode in cases.MODES]
    bad = [v for v in verdicts if v.state in (State.WRONG, State.CRASHED)]
    assert not bad, "\n".join(f"{v.case.name} ({v.mode}): {v.state.value}: {v.reason}" for v in bad)
    claimed = report.claims(report.PAGE.read_text())
    for row in report.rows(verdicts).values():
        frozen, run_time = claimed[row.operator]
        assert row.frozen >= frozen and row.run_time >= run_time, f"docs/onnx.md claims more than this: {row}"


def test_the_page_has_every_operator() -> None:
    claimed = report.claims(report.PAGE.read_text())
    recent = [c for c in cases.node_cases() if all(o.version >= 7 for o in c.model.opset_import if not o.domain)]
    missing = {case.operator for case in recent} - set(claimed)
    assert not missing, f"run `python -m tests.frontend.onnx_suite --write`: {missing}"


@pytest.mark.parametrize("opt_level", [1, 2])
def test_compiled_cases_agree(opt_level: int, all_cases: bool) -> None:
    """A share of the cases, or all, as code."""
    build = compiled(opt_level)
    for case in cases.all_cases():
        if all_cases or _hash(case.name + str(opt_level)) % COMPILED == 0:
            _must_not_be_wrong(case, build)


def _must_not_be_wrong(case: SuiteCase, build: object) -> None:
    verdict = judge(case, cases.FROZEN, build)  # type: ignore[arg-type]
    assert verdict.state in (State.PASSED, State.REFUSED), f"{case.name}: {verdict.state.value}: {verdict.reason}"
    if verdict.state is State.REFUSED:
        assert judge(case, cases.FROZEN).state is State.REFUSED, f"{case.name}: {verdict.reason}"
