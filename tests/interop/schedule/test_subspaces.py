"""Divided iteration maps are TVM's: blockize spells its outer and inner bindings by them."""

from __future__ import annotations

import random

import pytest

tvm = pytest.importorskip("tvm")

from mlcc.arith.subspace import subspace_divide  # noqa: E402
from tests.interop.schedule.iter_cases import LEVELS, Case, scheduled, spelled  # noqa: E402

sym = tvm.sym.iter_affine_map


def both_results(case: Case, inner: list[str], level: str) -> tuple[str, str]:
    """What mlcc and TVM make of a case, with the loops `inner` inside."""
    mine = subspace_divide(
        [case.mine(b) for b in case.bindings], case.my_iters, [case.mine(v) for v in inner], case.mine(case.predicate),
        level,  # type: ignore[arg-type]
    )  # fmt: skip
    one = [f"{spelled(m.source)} < {spelled(m.extent)}" for pair in mine.pairs for m in pair]
    try:
        theirs = sym.subspace_divide(
            [case.theirs(b) for b in case.bindings], case.their_iters, [case.theirs(v) for v in inner],
            case.theirs(case.predicate), check_level=level if level != "none" else sym.IterMapLevel.NoCheck,
        )  # fmt: skip
    except tvm.error.InternalError:
        return "; ".join(one), ""
    if not theirs:
        return "; ".join(one), ""
    two = [f"{spelled(m.source)} < {spelled(m.extent)}" for pair in theirs[:-1] for m in pair]
    one += [spelled(mine.outer_predicate), spelled(mine.inner_predicate)]
    two += [spelled(m.extent) for m in theirs[-1]]
    return "; ".join(one), "; ".join(two)


def test_random_divisions_agree(all_cases: bool) -> None:
    count, different = 6000 if all_cases else 300, []
    found = 0
    for seed in range(count):
        case = scheduled(seed)
        loops = list(case.loops)
        inner = loops[random.Random(seed).randint(0, len(loops)) :]
        one, two = both_results(case, inner, LEVELS[seed % 3])
        found += bool(two)
        if one != two:
            different.append(f"{seed} {LEVELS[seed % 3]} {inner} {case}:\n  {one}\n  {two}")
    assert found > count * 0.4
    assert len(different) <= count * 0.01, f"{len(different)}\n" + "\n".join(different)
