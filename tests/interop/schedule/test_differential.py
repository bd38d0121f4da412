"""A share of the differential campaign of schedules: each primitive on generated programs, by mlcc and by TVM."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("tvm")

from tests.interop.schedule import cases  # noqa: E402
from tests.interop.schedule.differential import CRASH, DISAGREE, ROOT, Outcome, Theirs, replay, run_case, shrink  # noqa: E402
from tests.interop.schedule.known import reason, table  # noqa: E402
from tests.interop.schedule.run import WANTED  # noqa: E402

SHARE = 3  # cases of each primitive


@pytest.fixture(scope="module")
def theirs() -> Iterator[Theirs]:
    with Theirs() as made:
        yield made


def test_random_schedules_agree_with_tvm(theirs: Theirs) -> None:
    names = [n for n in cases.PRIMITIVES if cases.implemented(n)]
    found: list[Outcome] = []
    for name in names:
        for number in range(SHARE):
            found += run_case(name, f"ci.{number}", theirs, lambda n: n not in names)
    different = [o for o in found if o.status in DISAGREE and reason(o) is None]
    final = [o for o in found if o.is_final and o.status != "they-die"]
    said = "\n\n".join(str(shrink(o, theirs)) for o in different[:3])
    assert len(different) <= (1 - WANTED) * len(final), said
    assert not any(o.status == CRASH for o in different), said


def test_a_wrong_result_would_be_seen(theirs: Theirs) -> None:
    """The comparison itself: a step that only one side takes, and one with another factor."""
    program = """
@T.prim_func(s_tir=True)
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("B"):
            vi = T.axis.spatial(8, i)
            B[vi] = A[vi]
"""
    step = cases.Step("split", 'sch.get_loops("B")[0], factors=[2, 4]', "r1")
    assert replay(program, [step], theirs).status == "agree-accept"
    assert (
        replay(program, [cases.Step("split", 'sch.get_loops("B")[0], factors=[2, 2]')], theirs).status == "agree-refuse"
    )
    from tests.interop.schedule.differential import Ours, judge

    theirs.start(program)
    reply, ours = theirs.step(step), Ours(program)
    other = ours.step(cases.Step("split", 'sch.get_loops("B")[0], factors=[4, 2]'))
    assert judge(step, reply, other, ours.sch.mod)[0] == "differ"
    ours = Ours(program)
    refused = ours.step(cases.Step("split", 'sch.get_loops("B")[0], factors=[2, 2]'))
    assert judge(step, reply, refused, ours.sch.mod)[0] == "we-refuse"
    assert judge(step, {"ok": False, "error": "no"}, ours.step(step), ours.sch.mod)[0] == "they-refuse"


def test_tvm_may_die(theirs: Theirs) -> None:
    """A step that aborts TVM is told from a refusal, and the next case is not harmed."""
    theirs.start(cases.programs.program("matmul", 1))
    assert theirs.process is not None
    theirs.process.kill()
    with pytest.raises(Exception, match="ended with"):
        theirs.start(cases.programs.program("matmul", 1))
    assert theirs.start(cases.programs.program("matmul", 1))["ok"]


def test_the_documentation_lists_what_differs() -> None:
    text = (ROOT / "docs" / "schedules.md").read_text()
    assert table() in text, f"docs/schedules.md should have these rows:\n{table()}"
