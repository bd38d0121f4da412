"""`python -m bench ops`: every case computes what its peers do."""

from __future__ import annotations

import pytest

import mlcc
from bench import operators
from bench.operators import SIZES, Case, cases, prepare

SMALL = min(SIZES)


@pytest.mark.parametrize("case", cases(), ids=lambda c: c.name)
def test_peers_compute_the_same(case: Case) -> None:
    calls = prepare(case, SMALL, level=2)
    assert set(calls) - {"mlcc"} == {n for n in ("numpy", "torch") if getattr(case, n) is not None}
    for call in calls.values():
        call()


def test_another_result_is_not_timed() -> None:
    wrong = Case("exp", "R.exp(a)", lambda a, out: a + 1, None)
    with pytest.raises(ValueError, match="exp: off by"):
        prepare(wrong, SMALL, level=2)


def test_a_line_for_each_size(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        operators.main(["--only", "tanh", "--sizes", "1e3"])
    finally:
        mlcc.set_num_threads(None)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[2:]] == [["tanh", "1000"]] and lines[-1].endswith(" x")
