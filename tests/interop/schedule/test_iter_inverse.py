"""The way back through iteration maps is TVM's, expression by expression."""

from __future__ import annotations

from typing import Any

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.arith.iter_inverse import inverse_affine_iter_map  # noqa: E402
from mlcc.arith.iter_map import detect_iter_map  # noqa: E402
from mlcc.arith.iter_rewrite import NotAffine  # noqa: E402
from tests.interop.schedule.iter_cases import LEVELS, Case, digits, scheduled, spelled  # noqa: E402

sym = tvm.sym.iter_affine_map


def both(case: Case, level: str) -> tuple[Any, Any] | None:
    """The inverses that mlcc and TVM make, variable by variable; None where there is no map."""
    mine = detect_iter_map(
        [case.mine(b) for b in case.bindings], case.my_iters, case.mine(True), level,  # type: ignore[arg-type]
        None, False,
    )  # fmt: skip
    theirs = sym.detect_iter_map(
        [case.theirs(b) for b in case.bindings], case.their_iters,
        check_level=level if level != "none" else sym.IterMapLevel.NoCheck, simplify_trivial_iterators=False,
    )  # fmt: skip
    if not mine or [spelled(i) for i in mine.indices] != [spelled(i) for i in theirs.indices]:
        return None
    names = [f"out{k}" for k in range(len(case.bindings))]
    one: Any
    two: Any
    try:
        found = inverse_affine_iter_map(mine.indices, [case.mine(n) for n in names])
        one = sorted((v.name, spelled(e)) for v, e in found.items())
    except NotAffine:
        one = "none"
    try:
        found = sym.inverse_affine_iter_map(theirs.indices, [case.theirs(n) for n in names])
        two = sorted((str(v.name), spelled(e)) for v, e in found.items())
    except Exception:
        two = "none"
    return one, two


@pytest.mark.parametrize("make", [scheduled, digits])
@pytest.mark.parametrize("start", range(0, 400, 100))
def test_inverses_agree(make: Any, start: int) -> None:
    compared = 0
    for seed in range(start, start + 100):
        for level in LEVELS:
            found = both(make(seed), level)
            if found is not None:
                compared += 1
                assert found[0] == found[1], f"{make.__name__}({seed}) {level}"
    assert compared > 20
