"""Traces of TVM's, of the kinds that its design spaces consist of, replay to TVM's modules."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

from tests.interop.schedule.kinds import KINDS, case, replayed  # noqa: E402


@pytest.mark.parametrize("kind", KINDS)
def test_tvms_traces_replay_to_its_modules(kind: str, all_cases: bool) -> None:
    for seed in range(40 if all_cases else 4):
        difference = replayed(case(kind, seed))
        assert difference is None, f"{kind}, seed {seed}:\n{difference}"
