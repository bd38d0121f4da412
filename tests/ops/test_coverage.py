"""Every operator agrees with its reference however it runs, and docs/ops-tables.md claims no more than that."""

from __future__ import annotations

import pytest

from tests.generate import op_calls
from tests.ops import coverage
from tests.ops.cases import Case, T

PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_share_of_calls_matches_references(part: int, all_cases: bool) -> None:
    """A seeded share of all calls (all of them with --all-cases), compiled many at a time."""
    claims = coverage.read_table(coverage.PAGE.read_text())
    names = op_calls.subjects()[part::PARTS]
    seeds = range(3) if all_cases else range(1)
    problems, passed = [], set()
    for verdict in coverage.judge(coverage.campaign(names, seeds, all_cases)):
        claim = claims.get((verdict.name, verdict.call.dtype), "")
        if verdict.wrong or coverage.contradicted(verdict, claim):
            problems.append(f"{verdict.mode} {verdict.call}: {verdict.wrong or verdict.refused} (claimed: {claim!r})")
        if verdict.interpreted or verdict.compiled:
            passed.add(verdict.name)
    assert not problems, "\n".join(problems)
    assert passed == set(names), "no call of these was judged"


def test_every_operator_is_judged() -> None:
    known = {c.case.name for c in op_calls.corpus()}
    assert [n for n in op_calls.subjects() if n not in op_calls.GENERATORS and n not in known] == []
    assert set(op_calls.GENERATORS) <= set(op_calls.subjects())


def test_table_has_every_operator() -> None:
    claims = coverage.read_table(coverage.PAGE.read_text())
    assert {name for name, _ in claims} == set(op_calls.subjects()), "run `python -m tests.ops.coverage --write`"
    assert coverage.table(claims) in coverage.PAGE.read_text()


def test_a_wrong_result_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself: a reference that is off by a little fails in each form."""
    call = op_calls.OpCall(Case("add", (T((3,)), T((3,)))), "float32", "")
    expected = coverage.numbers.expected
    assert [v.wrong for v in coverage.judge([call])] == [[]]
    monkeypatch.setattr(coverage.numbers, "expected", lambda *a: [v * 1.001 for v in expected(*a)])
    (verdict,) = coverage.judge([call])
    assert verdict.wrong and coverage.contradicted(verdict, "s") and not coverage.cells([verdict])


def test_sizes_of_a_symbolic_call() -> None:
    call = op_calls.call("matmul", "float32", 3)
    assert all(isinstance(d, int) for t in op_calls.tensors(call.static) for d in t.shape or ())
    assert {d for t in op_calls.tensors(call.symbolic) for d in t.shape or () if isinstance(d, str)} == set(call.names)
    assert set(call.resized(dict.fromkeys(call.names, 2)).sizes.values()) <= {2, *call.sizes.values()}
